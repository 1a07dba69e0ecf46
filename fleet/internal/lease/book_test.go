package lease

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

// The sum has the earlier end, and the rest of the hold that was sent earlier, in either order.
func TestHoldWith(t *testing.T) {
	begun := time.Now()
	at := func(sent, end time.Duration, units int64) hold {
		return hold{units: units, sent: begun.Add(sent), end: begun.Add(end), window: 7, word: uint64(units), at: 10}
	}
	for _, c := range []struct{ old, young, want hold }{
		{at(0, 5, 3), at(1, 6, 4), hold{units: 7, sent: begun, end: begun.Add(5), window: 7, word: 3, at: 10}},
		{at(0, 6, 3), at(1, 5, 4), hold{units: 7, sent: begun, end: begun.Add(5), window: 7, word: 3, at: 10}},
		{at(0, 5, 3), at(1, 5, 0), hold{units: 3, sent: begun, end: begun.Add(5), window: 7, word: 3, at: 10}},
	} {
		assert.Equal(t, c.want, c.old.with(c.young))
		assert.Equal(t, c.want, c.young.with(c.old))
	}
	same := at(0, 5, 3)
	assert.EqualValues(t, 6, same.with(same).units)
}
