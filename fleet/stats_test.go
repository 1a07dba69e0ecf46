package fleet

import (
	"context"
	"reflect"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/engine"
	"github.com/ral-limiter/ral/fleet/internal/redistest"
	"github.com/ral-limiter/ral/fleet/internal/storetest"
	"github.com/ral-limiter/ral/internal/testkit/observetest"
	"github.com/ral-limiter/ral/limits"
	"github.com/ral-limiter/ral/observe/metrics"
)

// Promise: `Stats` counts round trips, their time, failures and breakers.
func TestStatsTellOfRedis(t *testing.T) {
	inBubble(t, func(t *testing.T, redis *storetest.Redis) {
		l := open(t, on(redis, funnel(10, 1, time.Hour)))
		redis.Set(redistest.Weather{Answers: time.Millisecond})
		before := l.Stats()
		for range 5 {
			require.Equal(t, limits.SourceRedis, take(t, l, "a", 1).Source())
		}
		s := l.Stats()
		require.GreaterOrEqual(t, s.RoundTrips, before.RoundTrips+4, "fewer round trips are counted than were made, except the last")
		require.Equal(t, time.Duration(s.RoundTrips-before.RoundTrips)*time.Millisecond, s.RedisTime-before.RedisTime)
		require.Equal(t, []any{false, 1, 0, 0}, []any{s.Outage, s.Breakers, s.OpenBreakers, s.HalfOpenBreakers})
		redis.Set(gone)
		for ; s.OpenBreakers == 0; s = l.Stats() {
			take(t, l, "a", 1)
		}
		require.Equal(t, []any{true, 1}, []any{s.Outage, s.Breakers})
		require.Positive(t, s.FailedTrips)
		require.NoError(t, l.Close())
		require.False(t, l.Stats().Outage, "the outage must end with the limiter, as calls are not answered any more")
	})
}

// A call that has to wait is counted once it has ended, served or not.
func TestStatsCountWaits(t *testing.T) {
	inBubble(t, func(t *testing.T, redis *storetest.Redis) {
		l := open(t, on(redis, funnel(1, 1, time.Hour)))
		require.NoError(t, l.Wait(t.Context(), "a", 1))
		_, err := l.Acquire(t.Context(), "a", 1, 0)
		require.ErrorIs(t, err, engine.ErrDeadline)
		s := l.Stats()
		require.Equal(t, []any{0, uint64(0), time.Duration(0)}, []any{s.Waiting, s.Waits, s.WaitTime})

		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- l.Wait(ctx, "a", 1) }()
		eventually(t, func() bool { return l.Stats().Waiting == 1 }, "it waits")
		require.Equal(t, []int{1, 0}, []int{explain(t, l, "a").Waiting, explain(t, l, "b").Waiting})
		require.Contains(t, explain(t, l, "a").String(), "1 call waits on this server.")
		eventually(t, func() bool { return take(t, l, "a", 0).ResetAfter > time.Hour }, "it has its turn, an hour from now")
		time.Sleep(time.Second)
		cancel()
		require.ErrorIs(t, <-ended, engine.ErrCancelled)
		s = l.Stats()
		require.Equal(t, []any{0, uint64(1)}, []any{s.Waiting, s.Waits})
		require.GreaterOrEqual(t, s.WaitTime, time.Second)
	})
}

// A call for more than the limit is refused by the limit, even in an outage.
func TestRefusalsAreCountedByReason(t *testing.T) {
	inBubble(t, func(t *testing.T, redis *storetest.Redis) {
		refusals := func(l *Limiter) [4]uint64 {
			s := l.Stats()
			return [4]uint64{s.OverLimit, s.Blocked, s.Unavailable, s.Refused}
		}
		for _, mode := range []Mode{Exact, Leased} {
			c := on(redis, window(2, time.Hour))
			c.Mode = mode
			l := open(t, c)
			take(t, l, "a", 2)
			for range 3 {
				require.False(t, take(t, l, "a", 1).Allowed)
			}
			require.NoError(t, l.Block(t.Context(), "b", time.Hour))
			for range 2 {
				require.False(t, l.Choke(t.Context(), "b"))
			}
			require.False(t, take(t, l, "a", 3).Allowed, "a call for more than the limit must be refused")
			require.Equal(t, [4]uint64{4, 2, 0, 6}, refusals(l), mode)
		}
		redis.Set(gone)
		c := on(redis, funnel(10, 1, time.Hour))
		uncounted := launch(t, c)
		c.Name, c.Outage = name(), FallbackClosed
		closed := launch(t, c)
		for _, l := range []*Limiter{uncounted, closed} {
			require.False(t, take(t, l, "a", 1).Allowed)
			require.Equal(t, [4]uint64{0, 0, 1, 1}, refusals(l))
			require.False(t, take(t, l, "a", 11).Allowed)
			require.Equal(t, [4]uint64{1, 0, 1, 2}, refusals(l))
		}
	})
}

// Each counter of Stats changes a single series or, of the breakers, as many as it is in.
func TestEachCounterOfALimiterHasASeries(t *testing.T) {
	breakers := map[string]int{"Breakers": 1, "OpenBreakers": 2, "HalfOpenBreakers": 2}
	stats := reflect.TypeFor[Stats]()
	for i := range stats.NumField() {
		var s snapshot
		field := reflect.ValueOf(&s.Stats).Elem().Field(i)
		want := 7.0
		switch {
		case field.CanInt():
			field.SetInt(7)
			if stats.Field(i).Type == reflect.TypeFor[time.Duration]() {
				field.SetInt(int64(7 * time.Second))
			}
		case field.CanUint():
			field.SetUint(7)
		default:
			field.SetBool(true)
			want = 1
		}
		var zero snapshot
		changed := 0
		before := metrics.New("a", func() snapshot { return zero }, table).Read(nil)
		for j, got := range metrics.New("a", func() snapshot { return s }, table).Read(nil) {
			if got != before[j] {
				changed++
				assert.InDelta(t, want, max(got, -got), 0, "table[%d] of Stats.%s has another value than the metric", j, stats.Field(i).Name)
			}
		}
		assert.Equal(t, max(1, breakers[stats.Field(i).Name]), changed, "Stats.%s has another number of series than expected", stats.Field(i).Name)
	}
}

func TestMetricsAreThoseOfThePage(t *testing.T) {
	inBubble(t, func(t *testing.T, redis *storetest.Redis) {
		config := on(redis, funnel(1, 1, time.Hour))
		l := open(t, config)
		source := l.Metrics()
		observetest.PageHolds(t, `^ral\.fleet\.`, source)
		for _, healthy := range []float64{1, 0} {
			if healthy == 0 {
				require.NoError(t, l.Close())
			}
			for i, s := range source.Series() {
				assert.Equal(t, config.Name, s.Limit)
				if s.Metric.Name == "ral.healthy" {
					assert.Equal(t, healthy, source.Read(nil)[i])
				}
			}
		}
	})
}
