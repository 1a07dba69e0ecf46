package engine

import (
	"math"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/internal/core/decide"
	"github.com/ral-limiter/ral/limits"
	"github.com/ral-limiter/ral/policy"
)

func standing() policy.Instant { return 7 }

// A charge above the bound changes nothing; up to it the debt lasts days at most.
func TestChargeIsBounded(t *testing.T) {
	for _, c := range []struct {
		p    policy.Policy
		most int64
		debt time.Duration // at most
	}{
		{funnel(10, 10, time.Second), 26_784_000, 31*24*time.Hour + time.Second},
		{funnel(10, 10, 24*time.Hour), 310, 32 * 24 * time.Hour},
		{funnel(5, 1, 24*time.Hour), 31, 32 * 24 * time.Hour},
		{funnel(10_000, 10_000, 90*24*time.Hour), 10_000, 91 * 24 * time.Hour}, // the limit itself
		{policy.Must(policy.Queue(4, 1, time.Second)), 2_678_400, 31*24*time.Hour + time.Second},
		{policy.Must(policy.Bursty(10, time.Second, 5)), 26_784_000, 31*24*time.Hour + time.Second},
		{policy.Must(policy.WarmingUp(10, time.Second, time.Minute, 3)), 26_784_000, 32 * 24 * time.Hour},
		{policy.Must(policy.FixedWindow(10, time.Minute)), 446_400, time.Minute + time.Millisecond},
		{policy.Must(policy.SlidingWindow(10, time.Minute)), 446_400, 2 * time.Minute},
		{policy.Must(policy.AtMost(5, time.Hour)), 3720, 31 * 24 * time.Hour},
	} {
		e := open[string](t, Config{Policy: c.p, Clock: standing})
		most := decide.MostCharge(c.p)
		assert.Equal(t, c.most, most, "%v", c.p)
		for _, key := range []string{"new", "used"} {
			if key == "used" {
				require.True(t, e.Choke(key))
			}
			before := e.Peek(key, 0)
			for _, n := range []int64{-most - 1, -1 << 50, math.MinInt64} {
				d := e.Refund(key, n)
				assert.False(t, d.Allowed, "%v: %d", c.p, n)
				assert.Equal(t, policy.Never, d.RetryAfter)
				assert.Equal(t, before, e.Peek(key, 0), "%v: %d", c.p, n)
				assert.False(t, e.RefundWith(c.p, key, n).Allowed)
			}
			d := e.Refund(key, -most)
			assert.True(t, d.Allowed, "%v: %d", c.p, most)
			assert.LessOrEqual(t, d.ResetAfter, c.debt, "%v", c.p)
		}
	}
}

func TestSettleChargesAsMuchAsACallMay(t *testing.T) {
	e := open[string](t, Config{Policy: funnel(10, 10, time.Second), Clock: standing})
	for _, used := range []int64{26_784_001, 1 << 50, math.MaxInt64} {
		g, err := e.Hold(t.Context(), limits.Call[string]{Key: "key", N: 1})
		require.NoError(t, err)
		require.NoError(t, g.Settle(t.Context(), used))
		assert.Equal(t, 31*24*time.Hour+100*time.Millisecond, e.Peek("key", 0).ResetAfter)
		e.Reset("key")
	}
}

// The limit that holds already changes nothing: reservations are settled exactly.
func TestSetPolicyOfTheSameLimitChangesNothing(t *testing.T) {
	for _, make := range []func() policy.Policy{
		func() policy.Policy { return funnel(10, 1, time.Hour) },
		func() policy.Policy { return policy.Must(policy.Queue(9, 1, time.Hour)) },
		func() policy.Policy { return policy.Must(policy.FixedWindow(10, time.Hour)) },
		func() policy.Policy { return policy.Must(policy.SlidingWindow(10, time.Hour)) },
		func() policy.Policy { return policy.Must(policy.AlignedWindow(10, 24*time.Hour)) },
		func() policy.Policy { return policy.Must(policy.CalendarWindow(10, policy.Month, "Europe/Berlin")) },
		func() policy.Policy { return policy.Must(policy.AtMost(10, time.Hour)) },
	} {
		e := open[string](t, Config{Policy: make(), Clock: standing})
		want := e.Peek("key", 0).Remaining - 1
		r := e.Reserve("key", 5, 24*time.Hour)
		require.True(t, r.Allowed)
		require.NoError(t, e.SetPolicy(make()))
		r.Keep(1)
		assert.Equal(t, want, e.Peek("key", 0).Remaining, "%v", make())
	}
}

// Health reports a clock at which no time passes, until it passes again.
func TestClockThatWasSetAfterNewIsTold(t *testing.T) {
	begun := policy.Instant(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC).UnixNano())
	var now atomic.Int64
	clock := func() policy.Instant { return policy.Instant(now.Load()) }
	now.Store(int64(begun))
	e := open[string](t, Config{Policy: funnel(1, 1, time.Second), Clock: clock})
	for _, c := range []struct {
		at   policy.Instant
		told bool
	}{
		{begun, false}, {begun - 1, true}, {0, true}, {begun + 1, false},
		{begun + policy.Instant(8*365*24*time.Hour), false}, {begun + policy.Instant(10*365*24*time.Hour), true}, {begun, false},
	} {
		now.Store(int64(c.at))
		if c.told {
			assert.ErrorIs(t, e.Health(), errClock)
		} else {
			assert.NoError(t, e.Health())
		}
	}
	now.Store(0) // a coarse clock until its first tick
	e = open[string](t, Config{Policy: funnel(1, 1, time.Second), Clock: clock})
	require.NoError(t, e.Health())
	now.Store(int64(begun))
	require.ErrorIs(t, e.Health(), errClock)
}

// A block records a key, even if nothing of its limit was ever used.
func TestBlockedKeyIsKnown(t *testing.T) {
	e := open[string](t, Config{Policy: funnel(1, 1, time.Second)})
	require.False(t, e.Explain("key").Known)
	require.NoError(t, e.Block("key", time.Hour))
	require.True(t, e.Explain("key").Known)
	require.False(t, e.Explain("other").Known)
}
