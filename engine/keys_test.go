package engine

import (
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/internal/testkit/await"
	"github.com/ral-limiter/ral/policy"
)

// No panic, no entry, and an answer as for an unavailable table.
func TestKeysThatCannotBeRecorded(t *testing.T) {
	for when, admitted := range map[string]bool{"Admit": true, "Refuse": false} {
		config := Config{Policy: funnel(1, 1, time.Hour)}
		if !admitted {
			config.WhenUnavailable = Refuse
		}
		t.Run(when, func(t *testing.T) {
			floats := open[float64](t, config)
			for range 3 {
				assert.Equal(t, admitted, floats.Choke(math.NaN()))
			}
			assert.True(t, floats.Choke(0))
			assert.False(t, floats.Choke(math.Copysign(0, -1)), "0 and -0 are equal")
			assert.Equal(t, 1, floats.Len())
			assert.EqualValues(t, 3, floats.Stats().Unavailable)

			anything := open[any](t, config)
			for _, key := range []any{[]int{1}, map[string]int{}, func() {}, [1]any{[]int{1}}} {
				assert.Equal(t, admitted, anything.Choke(key))
				assert.Equal(t, admitted, anything.Take(key, 1).Allowed)
				assert.Equal(t, policy.Never, anything.Take(key, 2).RetryAfter)
				assert.True(t, anything.Peek(key, 0).Allowed)
			}
			assert.True(t, anything.Choke(1))
			assert.False(t, anything.Choke(1))
			assert.True(t, anything.Choke("1"))
			assert.True(t, anything.Choke(nil))
			assert.False(t, anything.Choke(nil))
			assert.Equal(t, 3, anything.Len())

			type holder struct{ in [2]any }
			nested := open[holder](t, config)
			assert.Equal(t, admitted, nested.Choke(holder{[2]any{1, []int{}}}))
			assert.True(t, nested.Choke(holder{[2]any{1, 2}}))
			assert.False(t, nested.Choke(holder{[2]any{1, 2}}))
		})
	}
}

// greedy is a policy that breaks its contract, not the table.
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
	e := open[string](t, Config{Policy: greedy{funnel(2, 1, time.Hour)}})
	require.True(t, e.Choke("key"))
	settled(t, e)
	await.True(t, func() bool { return e.Peek("key", 0).Limit == 1 }, "the take is recorded")
	for range 3 {
		assert.False(t, e.Choke("key"))
		assert.Equal(t, policy.Never, e.Take("key", 1).RetryAfter)
	}
}

// TestGivingBackGoesOnAfterAPanic has a policy that panics in a Cancel.
//
// Promise: A panicking policy leaves nothing locked or taken.
func TestPolicyThatPanicsLeavesNothingBehind(t *testing.T) {
	clock := newHandClock()
	looks := 0
	dies := func(a *asked) {
		// The first look is for a new key; at the second its entry has landed.
		if a.word == 0 {
			if looks++; looks%2 == 0 {
				panic("policy")
			}
		}
	}
	e := open[int](t, Config{
		Policy: &hooked{Policy: funnel(1, 1, time.Hour), take: dies}, Clock: clock.Now,
		Idle: time.Millisecond, MaxKeys: 10,
	})
	for key := range 10 {
		assert.Panics(t, func() { e.Take(key, 1) })
	}
	require.Equal(t, 10, e.Len())
	settled(t, e)
	clock.Advance(time.Second)
	await.True(t, func() bool { return e.Len() == 0 }, "all keys leave")
}

// Nor is what it takes back forgiven.
//
// Promise: A clock going backwards mints nothing.
func TestClockGoingBackMintsNothing(t *testing.T) {
	clock := newHandClock()
	clock.Advance(time.Hour)
	e := open[string](t, Config{Policy: funnel(10, 1, time.Second), Clock: clock.Now, Idle: time.Nanosecond})
	admitted := 0
	for i := range 2000 {
		for e.Choke("key") {
			admitted++
		}
		if i%2 == 0 {
			clock.Advance(-time.Minute)
		} else {
			clock.Advance(time.Minute)
		}
	}
	assert.Equal(t, 10, admitted)
}

// Nor if the key was forgotten in the future that the clock came from.
func TestClockGoingBackBeforeAnEvictionMintsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		clock := newHandClock()
		e := open[string](t, Config{Policy: funnel(10, 1, time.Second), Clock: clock.Now, Idle: time.Millisecond})
		admitted := 0
		for range 20 {
			for e.Choke("key") {
				admitted++
			}
			clock.Advance(time.Minute)
			time.Sleep(time.Second) // the janitor's time
			clock.Advance(-time.Minute)
		}
		assert.Positive(t, e.Stats().Evicted)
		assert.LessOrEqual(t, admitted, 10+60, "what a minute allows")
	})
}

// A clock may count from anywhere, though a funnel's time ends 18 years after 1.
func TestClockMayBeginAnywhere(t *testing.T) {
	for _, begin := range []int64{math.MinInt64, -5, 0, 1, 1_800_000_000_000_000_000} {
		synctest.Test(t, func(t *testing.T) {
			clock := newHandClock()
			clock.now.Store(begin)
			e := open[string](t, Config{Policy: funnel(10, 100, time.Second), Clock: clock.Now, Idle: time.Nanosecond})
			admitted := 0
			for range 1000 {
				for e.Choke("key") {
					admitted++
				}
				clock.Advance(time.Millisecond)
				time.Sleep(time.Millisecond)
			}
			assert.Equal(t, 10+100-1, admitted)
		})
	}
}
