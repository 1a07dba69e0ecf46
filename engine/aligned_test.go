package engine

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/policy"
)

// A bubble begins at midnight, UTC.
func sleepUntil(t *testing.T, clock time.Duration) {
	t.Helper()
	now := time.Now()
	time.Sleep(now.Truncate(24*time.Hour).Add(clock).Sub(now) - time.Nanosecond)
	time.Sleep(time.Nanosecond)
}

// Whichever limit decides, and whatever it was anchored to before.
//
// Promise: Aligned windows follow the wall clock read in `New`.
func TestAlignedWindowsFollowTheWallClock(t *testing.T) {
	const minute = time.Minute
	for name, config := range map[string]Config{
		"package time": {}, "a clock of its own": {Clock: func() policy.Instant { return policy.Instant(time.Now().UnixNano() - 1) }},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				sleepUntil(t, 20*minute)
				config := config
				config.Policy = parsed(t, "window 10/h aligned")
				e := open[string](t, config)
				sleepUntil(t, 40*minute)
				require.Equal(t, policy.Decision{Allowed: true, Limit: 10, Remaining: 6, ResetAfter: 20 * minute}, e.Take("k", 4))
				require.Equal(t, "window 10/h aligned", e.Limit().String())

				other := parsed(t, "window 20/h aligned")
				require.Equal(t, policy.Decision{Allowed: true, Limit: 20, Remaining: 13, ResetAfter: 20 * minute}, e.TakeWith(other, "k", 3))
				require.EqualValues(t, 15, e.RefundWith(other, "k", 2).Remaining)
				require.EqualValues(t, 5, e.Peek("k", 0).Remaining)

				// The next window's units go to the waiting call.
				r := e.Reserve("k", 6, time.Hour)
				require.Equal(t, 20*minute, r.Wait)
				require.False(t, e.Choke("k"))
				r.Cancel()
				require.EqualValues(t, 5, e.Peek("k", 0).Remaining)
				require.NoError(t, e.Wait(context.Background(), "k", 6))
				require.Equal(t, 60*minute, time.Since(time.Now().Truncate(24*time.Hour)))

				require.NoError(t, e.SetPolicy(parsed(t, "window 30/day in UTC")))
				require.Equal(t, policy.Decision{Allowed: true, Limit: 30, Remaining: 24, ResetAfter: 23 * 60 * minute}, e.Peek("k", 0))
				require.NoError(t, e.ChangeLimit("k", parsed(t, "window 7/day in UTC"), nil))
				require.ErrorContains(t, e.ChangeLimit("k", nil, parsed(t, "window 7/h aligned")), "reads the words of window 30/day in UTC")
				require.Error(t, e.SetPolicy(parsed(t, "window 30/d")), "a fixed window must be of another family")
				require.Zero(t, e.Stats().Misfits)
			})
		})
	}
}

// Limits of PolicyFor are anchored too, and a call under them allocates nothing.
func TestAlignedWindowsByKey(t *testing.T) {
	limits := map[string]policy.Policy{
		"free": parsed(t, "window 5/day in Europe/Berlin"),
		"paid": parsed(t, "window 100/day in Europe/Berlin"),
	}
	synctest.Test(t, func(t *testing.T) {
		sleepUntil(t, 22*time.Hour)
		e := openFor(t, Config{Policy: parsed(t, "window 1/day in Europe/Berlin")}, func(key string) policy.Policy { return limits[key] })
		for key, most := range map[string]int64{"free": 5, "paid": 100, "other": 1} {
			require.Equal(t, policy.Decision{Allowed: true, Limit: most, ResetAfter: time.Hour}, e.Take(key, most), key)
			require.False(t, e.Choke(key))
			require.Equal(t, most, e.LimitFor(key).Limit())
			require.Zero(t, testing.AllocsPerRun(100, func() { e.Choke(key) }))
		}
		sleepUntil(t, 23*time.Hour)
		for key := range limits {
			require.True(t, e.Choke(key), "a call must pass at midnight in Berlin")
		}
		require.Zero(t, e.Stats().Misfits)
	})
}

// An engine is anchored once: its windows are off by as much as the wall clock is stepped, each
// with no more than the limit.
func TestAlignedWindowsIgnoreASteppedWallClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sleepUntil(t, 20*time.Minute)
		clock := newHandClock()
		clock.Advance(time.Hour)
		e := open[string](t, Config{Policy: parsed(t, "window 10/h aligned"), Clock: clock.Now})
		// The wall clock advances half an hour, the engine's clock does not.
		time.Sleep(30 * time.Minute)
		clock.Advance(10 * time.Minute)
		require.Equal(t, policy.Decision{Allowed: true, Limit: 10, ResetAfter: 30 * time.Minute}, e.Take("k", 10))
		// The window of the wall clock is over.
		time.Sleep(15 * time.Minute)
		clock.Advance(15 * time.Minute)
		require.False(t, e.Choke("k"))
		clock.Advance(15 * time.Minute)
		require.True(t, e.Choke("k"))
	})
}
