package cell

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/policy"
)

// greedy is a policy that breaks its contract for used words.
type greedy struct{ policy.Policy }

func (g greedy) Take(word uint64, now policy.Instant, n int64, patience time.Duration) (uint64, policy.Decision) {
	if word == 0 {
		return g.Policy.Take(word, now, n, patience)
	}
	return math.MaxUint64, policy.Decision{Allowed: true, Limit: 1}
}

func (greedy) Choke(uint64, policy.Instant) (uint64, bool) { return math.MaxUint64, true }

// Promise: A policy breaking its contract leaves the table intact.
func TestPolicyThatReturnsReservedWordsIsRefused(t *testing.T) {
	d := newDesk(t, greedy{funnel(2, 1, time.Hour)}, nil)
	require.True(t, d.Choke("key"))
	d.settle()
	for range 3 {
		assert.False(t, d.Choke("key"))
		assert.Equal(t, policy.Never, d.Take("key", 1).RetryAfter)
	}
}
