package peers

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"golang.org/x/time/rate"

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

func TestTwoLimitsTakeFromBothOrNone(t *testing.T) {
	p := xtimePair{first: rate.NewLimiter(rate.Every(time.Hour), 100), second: rate.NewLimiter(rate.Every(time.Hour), 3)}
	passed := 0
	for range 50 {
		if p.allow() {
			passed++
		}
	}
	assert.Equal(t, 3, passed)
	assert.InDelta(t, 97, p.first.Tokens(), 1)
}
