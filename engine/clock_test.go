package engine

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/internal/core/clock"
	"github.com/ral-limiter/ral/policy"
)

// byCounter returns a configuration that reads the counter even if the kernel does not trust it.
func byCounter(t testing.TB, config Config) Config {
	t.Helper()
	config.counter = clock.New()
	if config.counter == nil {
		t.Skip("there is no counter")
	}
	return config
}

// Promise: `Stats.Clock` is the clock in use.
func TestStatsTellsTheClock(t *testing.T) {
	limit := Config{Policy: funnel(1, 1, time.Second)}
	require.Contains(t, []string{"counter", "package time"}, open[string](t, limit).Stats().Clock)
	limit.PackageTime = true
	require.Equal(t, "package time", open[string](t, limit).Stats().Clock)
	limit.Clock = newHandClock().Now
	require.Equal(t, "Config.Clock", open[string](t, limit).Stats().Clock)
}

// A bubble's time differs from the counter's, so the counter is given up.
func TestStatsTellsThatTheCounterIsGivenUp(t *testing.T) {
	e := open[string](t, byCounter(t, Config{Policy: funnel(1, 1, time.Hour)}))
	require.Equal(t, "counter", e.Stats().Clock)
	require.True(t, e.Choke("k"))
	synctest.Test(t, func(*testing.T) {
		for e.time.counter.Counts() {
			// The loop ends once the clock finds no anchor that holds.
			e.Peek("other", 0)
		}
	})
	require.Equal(t, "package time", e.Stats().Clock)
	require.False(t, e.Choke("k"))
}

// A clock that begins later goes on as fast, and never returns an earlier instant.
func TestClockBeginsElsewhere(t *testing.T) {
	const first = policy.Instant(8 * 365 * 24 * time.Hour)
	hand := newHandClock()
	hand.Advance(time.Hour)
	for _, c := range []struct {
		name    string
		config  Config
		advance func(time.Duration)
	}{
		{"package time", Config{PackageTime: true}, time.Sleep},
		{"Config.Clock", Config{Clock: hand.Now}, hand.Advance},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c.config.Policy = funnel(1, 1, time.Hour)
				e, err := start(c.config.withDefaults(), options[string]{}, &loaded[string]{first: first, last: first}, nil)
				require.NoError(t, err)
				defer check(t, e)
				require.Equal(t, first, e.control.Now())
				c.advance(time.Hour)
				require.Equal(t, first+policy.Instant(time.Hour), e.control.Now())
				require.True(t, e.Choke("k"))
				require.EqualValues(t, time.Hour, e.Take("k", 1).RetryAfter)
				c.advance(time.Hour - 1)
				require.False(t, e.Choke("k"))
				c.advance(1)
				require.True(t, e.Choke("k"))
			})
		})
	}
	hand.Advance(-24 * time.Hour)
	clock, _ := beginAt(first, hand.Now)
	hand.Advance(-time.Hour)
	require.Equal(t, first, clock())
}

// By the counter it is off by a microsecond at most, and never before the least instant.
func TestCounterBeginsElsewhere(t *testing.T) {
	const first, off = policy.Instant(time.Hour), policy.Instant(clock.Late + clock.Early)
	for range 1000 {
		config := byCounter(t, Config{})
		before := config.counter.PackageTime()
		source := newTimeSource(config, first, 1)
		now := source.now()
		passed := policy.Instant(config.counter.PackageTime() - before)
		require.GreaterOrEqual(t, now, first-off)
		require.LessOrEqual(t, now, first+passed+off)
		require.GreaterOrEqual(t, source.first, first-off)
		require.Equal(t, first, newTimeSource(config, first, first).first)
		require.GreaterOrEqual(t, newTimeSource(config, 1, 1).now(), policy.Instant(2), "an instant below 2 must be raised")
	}
}

// A refused call is admitted a microsecond later than told, and not a microsecond before.
func TestRetryAfterByTheCounterIsExactToAMicrosecond(t *testing.T) {
	const off = clock.Late + clock.Early
	config := byCounter(t, Config{Policy: funnel(1, 1, 50*time.Microsecond)})
	packageTime := func() time.Duration { return time.Duration(config.counter.PackageTime()) }
	e := open[string](t, config)
	for i := range 2000 {
		e.Choke("k")
		before := packageTime()
		d := e.Take("k", 1)
		after := packageTime()
		if d.Allowed {
			// This goroutine was held up.
			continue
		}
		if i%2 == 0 {
			for packageTime()-after < d.RetryAfter+off {
			}
			require.True(t, e.Choke("k"), "a call after RetryAfter must pass")
			continue
		}
		for !e.Choke("k") {
		}
		require.GreaterOrEqual(t, packageTime()-before, d.RetryAfter-off, "a call was admitted too early")
	}
}

// Promise: The processor's counter keeps limits and `RetryAfter` to a microsecond of package time.
func TestHotKeyByTheCounterIsExact(t *testing.T) {
	const capacity, every, callers, calls = 50, 10 * time.Microsecond, 4, 50_000
	config := byCounter(t, Config{Policy: funnel(capacity, 1, every)})
	e := open[string](t, config)
	before := config.counter.PackageTime()
	together(callers, func(int) {
		for range calls {
			e.Choke("k")
		}
	})
	passed := time.Duration(config.counter.PackageTime()-before) + clock.Late + clock.Early
	require.LessOrEqual(t, e.Stats().Admitted, uint64(capacity+passed/every))
	require.GreaterOrEqual(t, e.Stats().Admitted, uint64(capacity))
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
	// A coarse clock is at 0 until its first tick.
	now.Store(0)
	e = open[string](t, Config{Policy: funnel(1, 1, time.Second), Clock: clock})
	require.NoError(t, e.Health())
	now.Store(int64(begun))
	require.ErrorIs(t, e.Health(), errClock)
}
