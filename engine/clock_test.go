package engine

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/internal/clock"
	"github.com/ral-limiter/ral/policy"
)

// byCounter returns a configuration that reads the processor's counter although this
// machine's kernel may not.
func byCounter(t testing.TB, config Config) Config {
	t.Helper()
	config.counter = clock.New()
	if config.counter == nil {
		t.Skip("there is no counter")
	}
	return config
}

// Stats says which clock an engine decides by. The default is package time's or the
// counter.
func TestStatsTellsTheClock(t *testing.T) {
	limit := Config{Policy: funnel(1, 1, time.Second)}
	require.Contains(t, []string{"counter", "package time"}, open[string](t, limit).Stats().Clock)
	limit.PackageTime = true
	require.Equal(t, "package time", open[string](t, limit).Stats().Clock)
	limit.Clock = newHandClock().Now
	require.Equal(t, "Config.Clock", open[string](t, limit).Stats().Clock)
}

// An engine that decides by the counter says so until the counter is given up. Here a
// bubble's time, which is not that of the counter, is the reason.
func TestStatsTellsThatTheCounterIsGivenUp(t *testing.T) {
	e := open[string](t, byCounter(t, Config{Policy: funnel(1, 1, time.Hour)}))
	require.Equal(t, "counter", e.Stats().Clock)
	require.True(t, e.Choke("k"))
	synctest.Test(t, func(*testing.T) {
		for e.time.counter.Counts() {
			e.Peek("other") // until it finds no anchor that holds
		}
	})
	require.Equal(t, "package time", e.Stats().Clock)
	require.False(t, e.Choke("k"))
}

// In a bubble an engine goes by the bubble's time.
func TestEngineInABubbleGoesByItsTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := open[string](t, Config{Policy: funnel(1, 1, time.Hour)})
		require.Equal(t, "package time", e.Stats().Clock)
		require.True(t, e.Choke("k"))
		require.False(t, e.Choke("k"))
		time.Sleep(time.Hour)
		require.True(t, e.Choke("k"))
	})
}

// The instants of an engine that decides by the counter begin at 1 or later.
func TestCounterBeginsAtOneOrLater(t *testing.T) {
	for range 1000 {
		source := newTimeSource(byCounter(t, Config{}))
		now := source.now()
		require.GreaterOrEqual(t, now, policy.Instant(2), "it had to be raised")
		require.Less(t, now, policy.Instant(time.Hour))
	}
}

// A refused call that comes back a microsecond later than it was told is admitted, and
// none is admitted a microsecond before. Time is package time.
func TestRetryAfterByTheCounterIsExactToAMicrosecond(t *testing.T) {
	const off = clock.Late + clock.Early
	e := open[string](t, byCounter(t, Config{Policy: funnel(1, 1, 50*time.Microsecond)}))
	for i := range 2000 {
		key := keys(1)[0]
		e.Choke(key)
		before := time.Now()
		d := e.Take(key, 1)
		after := time.Now()
		if d.Allowed {
			continue // this goroutine was held up
		}
		if i%2 == 0 {
			for time.Since(after) < d.RetryAfter+off {
			}
			require.True(t, e.Choke(key), "it came late enough")
			continue
		}
		for !e.Choke(key) {
		}
		require.GreaterOrEqual(t, time.Since(before), d.RetryAfter-off, "it was admitted too early")
	}
}

// Many callers of one key, by the counter, pass no more often than the limit allows in
// the time and a microsecond.
func TestHotKeyByTheCounterIsExact(t *testing.T) {
	const capacity, every, callers, calls = 50, 10 * time.Microsecond, 4, 50_000
	e := open[string](t, byCounter(t, Config{Policy: funnel(capacity, 1, every)}))
	begun := time.Now()
	together(callers, func(int) {
		for range calls {
			e.Choke("k")
		}
	})
	took := time.Since(begun) + clock.Late + clock.Early
	require.LessOrEqual(t, e.Stats().Admitted, uint64(capacity+took/every))
	require.GreaterOrEqual(t, e.Stats().Admitted, uint64(capacity))
}
