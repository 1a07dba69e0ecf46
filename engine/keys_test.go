package engine

import (
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/internal/testkit/must"
	"github.com/ral-limiter/ral/policy"
)

// Promise: Keys that cannot be found again are never recorded, and never panic.
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
			assert.False(t, floats.Choke(math.Copysign(0, -1)), "0 and -0 must be one key, as they are equal")
			assert.Equal(t, 1, floats.Len())
			assert.EqualValues(t, 3, floats.Stats().Unavailable)

			anything := open[any](t, config)
			for _, key := range []any{[]int{1}, map[string]int{}, func() {}, [1]any{[]int{1}}} {
				assert.Equal(t, admitted, anything.Choke(key))
				assert.Equal(t, admitted, anything.Take(key, 1).Allowed)
				assert.Equal(t, policy.Never, anything.Take(key, 2).RetryAfter)
				assert.True(t, anything.Peek(key, 0).Allowed)
				assert.False(t, anything.Reset(key))
				assert.NoError(t, anything.ChangeLimit(key, nil, nil))
			}
			assert.NoError(t, anything.ChangeLimit("new", nil, nil))
			assert.True(t, anything.Choke(1))
			assert.False(t, anything.Choke(1))
			assert.True(t, anything.Choke("1"))
			assert.True(t, anything.Choke(nil))
			assert.False(t, anything.Choke(nil))
			assert.Equal(t, 3, anything.Len())
		})
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
	must.Await(t, func() bool { return e.Len() == 0 }, "all keys leave")
}

// Promise: A clock may begin anywhere.
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

func TestPolicyForPanicsInItsCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := openFor(t, Config{Policy: funnel(1, 1, time.Hour)}, func(key string) policy.Policy {
			if key == "bad" {
				panic("no such plan")
			}
			return nil
		})
		for range 100 {
			assert.PanicsWithValue(t, "no such plan", func() { e.Choke("bad") })
			assert.PanicsWithValue(t, "no such plan", func() { _ = e.Wait(t.Context(), "bad", 1) })
		}
		assert.True(t, e.Choke("good"))
		assert.False(t, e.Choke("good"))
		synctest.Wait()
		require.NoError(t, e.Health())
		assert.Zero(t, e.Stats().Restarts)
		assert.Equal(t, 1, e.Len())
	})
}
