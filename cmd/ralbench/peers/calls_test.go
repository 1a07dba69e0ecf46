package peers

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/ral-limiter/ral/bench"
)

func TestPeersOfVerbsPassAllThatHasRoom(t *testing.T) {
	for _, c := range Calls() {
		if slices.Contains(c.For, bench.VerbsWorkload) {
			l := open(t, c, bench.Setup{Limit: bench.Limit{Capacity: 100, Count: 1, Per: time.Hour}, Keys: 1})
			assert.True(t, l.Choke("a"), c.Name)
			assert.Equal(t, 99, l.ChokeAll(times("a", 99)), c.Name)
		}
	}
}
