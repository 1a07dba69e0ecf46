package store_test

import (
	"context"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/fleet/internal/store"
	"github.com/ral-limiter/ral/internal/testkit/must"
	"github.com/ral-limiter/ral/policy"
)

// wordPolicies has a policy of each kind with words.
func wordPolicies() []policy.Policy {
	return []policy.Policy{
		policy.Must(policy.Funnel(10, 7, time.Second)),
		policy.Must(policy.Queue(5, 7, time.Second)),
		policy.Must(policy.Bursty(7, time.Second, 3)),
		policy.Must(policy.FixedWindow(10, time.Second)),
		policy.Must(policy.SlidingWindow(10, time.Second)),
		aligned(10, time.Second),
	}
}

// aligned returns an AlignedWindow of the default epoch.
func aligned(limit int64, per time.Duration) policy.Policy {
	return policy.Must(policy.AlignedWindow(limit, per)).(policy.Anchored).Anchor(store.DefaultEpoch)
}

func TestLeaseRefuses(t *testing.T) {
	var clock int64
	s := clocked(t, connect(t, shared), &clock)
	funnel := limit(t, s, policy.Must(policy.Funnel(10, 1, time.Second)))
	queue := limit(t, s, policy.Must(policy.Queue(10, 1, time.Second)))
	log := limit(t, s, newLog(t, 10, time.Second))
	replies := s.Lease(context.Background(), []store.LeaseAsk{
		{Limit: queue, Key: "a", Need: 1, Most: 1},
		{Limit: log, Key: "a", Need: 1, Most: 1},
		{Limit: funnel, Key: "a", Need: 0, Most: 1},
		{Limit: funnel, Key: "a", Need: 11, Most: 20},
		{Limit: funnel, Key: string(make([]byte, 1<<16+1)), Need: 1, Most: 1},
		{Limit: funnel, Key: "a", Need: 1, Most: 20},
	})
	assert.ErrorContains(t, replies[0].Err, "a Funnel, FixedWindow or SlidingWindow")
	assert.ErrorContains(t, replies[1].Err, "a Funnel, FixedWindow or SlidingWindow")
	assert.ErrorContains(t, replies[2].Err, "Need is 0, want between 1 and 1")
	assert.ErrorContains(t, replies[3].Err, "Need is 11, want between 1 and 10")
	assert.ErrorIs(t, replies[4].Err, store.ErrKeyTooLong)
	require.NoError(t, replies[5].Err)
	assert.EqualValues(t, 10, replies[5].Granted)
}

func TestLimitRefusesPolicies(t *testing.T) {
	s := store.New(connect(t, shared), store.Options{Name: own(t)})
	for _, p := range []policy.Policy{
		nil,
		policy.Must(policy.AtMost(10, time.Second)),
		policy.Must(policy.WarmingUp(10, time.Second, time.Second, 3)),
		policy.Must(policy.SlidingWindow(10, time.Second/3)),
		policy.Must(policy.SlidingWindow(10, 999*time.Microsecond)),
		struct{ policy.Policy }{policy.Must(policy.Funnel(1, 1, 1))},
	} {
		_, err := s.Limit(p)
		var field *policy.FieldError
		if assert.ErrorAs(t, err, &field, "%v", p) {
			assert.Equal(t, "Policy", field.Field)
		}
	}
}

// Promise: Redis counts the longest aligned windows exactly.
func TestLongestAlignedWindowIsCountedExactly(t *testing.T) {
	const most, counted = 1 << 52, 1<<53 - 1
	ctx := context.Background()
	s := store.New(connect(t, shared), store.Options{Name: own(t)})
	l := limit(t, s, aligned(most, 366*24*time.Hour))
	taken := must.Get(s.Take(ctx, l, "k", most, 0))
	require.True(t, taken.Allowed)
	for range 3 {
		must.Get(s.Refund(ctx, l, "k", math.MinInt64))
	}
	for _, c := range []struct{ back, left int64 }{{counted - most, 0}, {1, 1}, {most - 2, most - 1}, {1, most}} {
		taken = must.Get(s.Refund(ctx, l, "k", c.back))
		assert.Equal(t, c.left, taken.Remaining)
	}
	_, err := s.Limit(aligned(most+1, 366*24*time.Hour))
	assert.ErrorContains(t, err, "at most 4503599627370496 units")
}
