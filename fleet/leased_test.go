package fleet

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/engine"
	"github.com/ral-limiter/ral/fleet/internal/storetest"
	"github.com/ral-limiter/ral/internal/testkit/must"
	"github.com/ral-limiter/ral/internal/testkit/testenv"
	"github.com/ral-limiter/ral/limits"
	"github.com/ral-limiter/ral/policy"
)

func inLeases(c Config) Config {
	c.Mode = Leased
	return c
}

// Promise: Calls on leases allocate nothing.
func TestLeasedAllocatesNothing(t *testing.T) {
	inBubble(t, func(t *testing.T, redis *storetest.Redis) {
		if testenv.Race {
			t.Skip("the race detector allocates")
		}
		c := inLeases(on(redis, policy.Must(policy.FixedWindow(1_000_000, time.Hour))))
		c.Term = time.Minute
		l := open(t, c)
		ctx := context.Background()
		// Leases grow with the demand.
		for range 10_000 {
			require.True(t, l.Choke(ctx, "a"))
		}
		require.InDelta(t, 0, testing.AllocsPerRun(1000, func() { l.Choke(ctx, "a") }), 0.2, "a call allocates more often than a lease is renewed")
	})
}

// Promise: Leased `Choke` answers and counts as `Take` of 1.
func TestLeasedChokeIsTake(t *testing.T) {
	for _, choke := range []bool{false, true} {
		inBubble(t, func(t *testing.T, redis *storetest.Redis) {
			c := inLeases(on(redis, window(10_000, 366*24*time.Hour)))
			c.Term = time.Minute
			l := open(t, c)
			var admitted, refused uint64
			for refused < 100 {
				if choke && l.Choke(t.Context(), "a") || !choke && take(t, l, "a", 1).Allowed {
					admitted++
				} else {
					refused++
				}
				s := l.Stats()
				require.Equal(t, []uint64{admitted, refused, admitted + refused}, []uint64{s.Admitted, s.Refused, s.Exact + s.Leased})
			}
			require.EqualValues(t, 10_000, admitted)
			require.Greater(t, l.Stats().Leased, l.Stats().Exact)
			gone, cancel := context.WithCancel(t.Context())
			cancel()
			require.False(t, l.Choke(gone, "b"))
			require.NoError(t, l.Close())
			require.False(t, l.Choke(t.Context(), "b"))
		})
	}
}

func window(limit int64, per time.Duration) policy.Policy {
	return policy.Must(policy.FixedWindow(limit, per))
}

// warm makes calls that must pass, at least 100µs apart. Redis decides the first.
func warm(t testing.TB, l *Limiter, key string, calls int) {
	t.Helper()
	for range calls {
		a := take(t, l, key, 1)
		require.True(t, a.Allowed)
		require.Contains(t, []limits.Source{limits.SourceRedis, limits.SourceLease}, a.Source())
		time.Sleep(100 * time.Microsecond)
	}
}

func TestLeasedVerbsOfAWindow(t *testing.T) {
	inBubble(t, func(t *testing.T, redis *storetest.Redis) {
		const limit = 100_000
		c := inLeases(on(redis, window(limit, time.Hour)))
		// Nothing comes back by itself while the test runs.
		c.Term = time.Minute
		l := open(t, c)
		ctx := t.Context()
		warm(t, l, "a", 200)
		require.True(t, l.Choke(ctx, "a"))
		a := take(t, l, "a", 5)
		require.Equal(t, limits.SourceLease, a.Source())
		require.EqualValues(t, limit, a.Limit)
		require.NoError(t, a.Err())

		used := int64(206)
		require.LessOrEqual(t, peek(t, l, "a", 0).Remaining, limit-used)
		eventually(t, func() bool { return peek(t, l, "a", 0).Remaining == limit-used }, "what this server holds remains")
		require.Greater(t, l.Stats().LeasedUnits+l.Stats().Exact, uint64(used), "nothing was leased ahead of need")
		require.Positive(t, l.leased.leases.Held("a"))
		for _, n := range []int64{-3, 3} {
			used -= n
			a := must.Get(l.Refund(ctx, "a", n))
			require.Equal(t, limit-used, a.Remaining)
			require.False(t, a.Exact())
		}
		for _, n := range []int64{-1, limit + 1} {
			a = take(t, l, "a", n)
			require.False(t, a.Allowed)
			require.Equal(t, policy.Never, a.RetryAfter)
		}
		require.ErrorIs(t, l.Wait(ctx, "a", limit+1), engine.ErrNever)
		require.NoError(t, l.Wait(ctx, "a", 1))

		_, err := l.Reserve(ctx, "a", 1, time.Second)
		require.ErrorIs(t, err, ErrModeUnsupported)
		require.ErrorContains(t, err, "; use Exact mode")
		_, err = TakeAll(ctx, l.Claim("a", 1))
		require.ErrorIs(t, err, ErrModeUnsupported)
		_, err = l.Take(ctx, strings.Repeat("x", 1<<16+1), 1)
		require.ErrorIs(t, err, ErrKeyTooLong)
		mine := errors.New("mine")
		ended, cancel := context.WithCancelCause(ctx)
		cancel(mine)
		_, err = l.Take(ended, "a", 1)
		require.Equal(t, mine, err)
		require.ErrorIs(t, l.Wait(ended, "a", 1), engine.ErrCancelled)
		require.True(t, must.Get(l.Reset(ctx, "a")))
		require.Zero(t, l.leased.leases.Held("a"))

		s := l.Stats()
		require.Equal(t, []uint64{200 + 1 + 1 + 1, 3}, []uint64{s.Admitted, s.Refused})
		require.Equal(t, s.Admitted+s.Refused, s.Leased+s.Exact)
		require.Less(t, s.Exact, uint64(10), "a key with many calls must be leased")

		// Close returns held units to others.
		warm(t, l, "c", 200)
		require.Positive(t, l.leased.leases.Held("c"))
		require.NoError(t, l.Close())
		_, err = l.Take(ctx, "c", 1)
		require.ErrorIs(t, err, engine.ErrClosed)
		require.False(t, l.Choke(ctx, "c"))
		require.Positive(t, l.Stats().ReturnedUnits)
		require.EqualValues(t, limit-200, peek(t, open(t, c), "c", 0).Remaining)
	})
}

// When Redis dies, held leases are used up, then the fallback answers, until there are leases
// again.
func TestHeldLeasesAreUsedWithoutRedis(t *testing.T) {
	for _, f := range fallbacks {
		t.Run(f.source.String(), func(t *testing.T) {
			inBubble(t, func(t *testing.T, redis *storetest.Redis) {
				c := inLeases(on(redis, window(100_000, time.Hour)))
				c.Outage, c.Term = f.outage, time.Minute
				l := open(t, c)
				warm(t, l, "a", 300)
				redis.Set(gone)
				held := l.leased.leases.Held("a")
				require.Positive(t, held)
				for range held {
					a := take(t, l, "a", 1)
					require.Equal(t, limits.SourceLease, a.Source())
					require.True(t, a.Allowed, "a call on a lease that was paid for is refused")
				}
				a := take(t, l, "a", 1)
				require.Equal(t, f.source, a.Source())
				require.ErrorIs(t, a.Err(), ErrOutage)
				require.Equal(t, f.outage != FallbackClosed, a.Allowed)
				if f.outage == FallbackShare {
					require.InDelta(t, 100_000-300, a.Remaining, 2000, "the answer must follow the figure that Redis told")
				}
				eventually(t, func() bool {
					take(t, l, "b", 1)
					return l.Health() != nil
				}, "the breaker opens")
				begun := time.Now()
				require.Equal(t, f.source, take(t, l, "c", 1).Source())
				require.Zero(t, time.Since(begun), "the call waited as if Redis had been asked")

				redis.Set(well)
				eventually(t, func() bool {
					return l.Health() == nil && take(t, l, "d", 1).Source() == limits.SourceLease
				}, "there are leases again")
				s := l.Stats()
				require.Positive(t, s.Openings)
				require.Equal(t, s.Admitted+s.Refused, s.Leased+s.Exact+s.Local+s.Open+s.Closed)
			})
		})
	}
}
