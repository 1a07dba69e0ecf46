package cell

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/policy"
)

// greedy is a policy that breaks its contract, once broken.
type greedy struct {
	policy.Policy
	policy.Refunder
	broken bool
}

func (g *greedy) Take(word uint64, now policy.Instant, n int64, patience time.Duration) (uint64, policy.Decision) {
	if next, d := g.Policy.Take(word, now, n, patience); !g.broken || n == 0 {
		return next, d
	}
	return policy.MaxWord + 1, policy.Decision{Allowed: true, Limit: 1}
}

func (g *greedy) Choke(word uint64, now policy.Instant) (uint64, bool) {
	if g.broken {
		return math.MaxUint64, true
	}
	return g.Policy.(policy.Choker).Choke(word, now)
}

// Promise: A policy breaking its contract leaves the table intact.
func TestPolicyThatReturnsReservedWordsIsRefused(t *testing.T) {
	funnel := funnel(10, 1, time.Hour)
	limit := &greedy{Policy: funnel, Refunder: funnel.(policy.Refunder)}
	d := newDesk(t, limit, nil)
	r := d.Reserve("key", 4, 0)
	require.True(t, r.Allowed)
	d.settle()
	limit.broken = true
	for range 3 {
		assert.False(t, d.Choke("key"))
		assert.Equal(t, policy.Never, d.Take("key", 1).RetryAfter)
		assert.Equal(t, policy.Never, d.TakeWith(nil, "key", 1).RetryAfter)
	}
	r.Keep(1)
	limit.broken = false
	assert.EqualValues(t, 9, d.Peek("key").Remaining, "the reservation must give back all units that it can")
	assert.True(t, d.Take("key", 9).Allowed)
	assert.False(t, d.Choke("key"))
}
