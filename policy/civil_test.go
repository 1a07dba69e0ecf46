package policy

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A civil that begins after clocks were put back over midnight has the same days.
func TestDaysAreTheSameWheneverACivilBegins(t *testing.T) {
	zone, err := time.LoadLocation("America/St_Johns")
	require.NoError(t, err)
	// At back 00:01 becomes 23:01.
	back := time.Date(2010, time.November, 7, 2, 31, 0, 0, time.UTC).Unix()
	require.Equal(t, []int{7, 6}, []int{time.Unix(back-1, 0).In(zone).Day(), time.Unix(back, 0).In(zone).Day()})
	const step = 10 * 60
	all := newCivil(zone, back-10*daySeconds)
	for from := back - daySeconds; from < back+2*daySeconds; from += step {
		c := newCivil(zone, from)
		for at := from; at < from+daySeconds; at += step {
			if !assert.Equal(t, all.day(at), c.day(at), "%d s after the clocks were put back, from %d s on", at-back, from-back) {
				return
			}
		}
	}
}
