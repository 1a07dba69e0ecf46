package fleet

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/engine"
	"github.com/ral-limiter/ral/fleet/internal/redistest"
	"github.com/ral-limiter/ral/fleet/internal/storetest"
	"github.com/ral-limiter/ral/internal/core/shape"
	"github.com/ral-limiter/ral/internal/testkit/must"
	"github.com/ral-limiter/ral/limits"
	"github.com/ral-limiter/ral/policy"
)

func used(t testing.TB, l *Limiter, key string) int64 {
	t.Helper()
	return shape.AtOnce(l.config.Policy) - take(t, l, key, 0).Remaining
}

// requireUsed expects so many used units, and under a limit that drains up to another: units that
// would drain between take and return do not come back.
func requireUsed(t *testing.T, want int64, l *Limiter, key string) {
	t.Helper()
	got := used(t, l, key)
	if s, ok := l.config.Policy.(shape.Shaped); ok && s.Shape().Interval > 0 {
		require.Contains(t, []int64{want, want + 1}, got, "%v", l.config.Policy)
		return
	}
	require.Equal(t, want, got, "%v", l.config.Policy)
}

// Promise: `Keep` returns exactly the unused units to their source.
func TestKeepReturnsTheUnusedUnits(t *testing.T) {
	inBubble(t, func(t *testing.T, redis *storetest.Redis) {
		ctx := t.Context()
		for _, f := range families(t) {
			p := f[1]
			c := on(redis, p)
			one, other := open(t, c), open(t, c)
			reserve := func(key string) Reservation {
				r := must.Get(one.Reserve(ctx, key, 5, 0))
				require.True(t, r.Allowed, "%v", p)
				return r
			}
			for _, kept := range []int64{0, 1, 4, 5, 9, -1} {
				key := string(rune('a' + kept))
				r := reserve(key)
				require.NoError(t, r.Keep(ctx, kept))
				require.EqualValues(t, min(max(kept, 0), 5), used(t, other, key), "%v, %d kept", p, kept)
				require.NoError(t, r.Keep(ctx, 0))
				require.NoError(t, r.Cancel(ctx))
				require.EqualValues(t, min(max(kept, 0), 5), used(t, other, key), "%v: a second call changed the units of a reservation that was over", p)
			}
			r := reserve("both")
			require.True(t, other.Choke(ctx, "both"))
			require.NoError(t, r.Keep(ctx, 2))
			requireUsed(t, 3, one, "both")
		}
	})
}

func TestAcquireThatFailsTakesNothing(t *testing.T) {
	inBubble(t, func(t *testing.T, redis *storetest.Redis) {
		ctx := t.Context()
		l := open(t, on(redis, funnel(2, 1, time.Hour)))
		r := must.Get(l.Acquire(ctx, "a", 2, 0))
		require.True(t, r.Allowed)
		require.Zero(t, r.Waited)
		require.NoError(t, r.Keep(ctx, 1))
		require.EqualValues(t, 1, used(t, l, "a"))

		for patience, wrapped := range map[time.Duration]bool{0: false, -1: false, 59 * time.Minute: false, policy.Never: true} {
			soon, cancel := context.WithTimeout(ctx, 59*time.Minute+30*time.Second)
			before := l.Stats().Exact
			r, err := l.Acquire(soon, "a", 2, patience)
			cancel()
			require.Equal(t, before+1, l.Stats().Exact, "one call of Redis must foresee the deadline")
			require.ErrorIs(t, err, engine.ErrDeadline)
			require.Equal(t, wrapped, errors.Is(err, context.DeadlineExceeded), "patience of %v: the error must wrap the context's if and only if its deadline was too early", patience)
			require.False(t, r.Allowed)
			require.Positive(t, r.RetryAfter)
			require.NoError(t, r.Cancel(ctx))
			require.EqualValues(t, 1, used(t, l, "a"), "the call that failed took units")
		}
		for _, n := range []int64{3, -1} {
			r, err := l.Acquire(ctx, "a", n, time.Hour)
			require.ErrorIs(t, err, engine.ErrNever)
			require.Equal(t, policy.Never, r.RetryAfter)
			require.ErrorIs(t, l.Wait(ctx, "a", n), engine.ErrNever)
		}

		fast := open(t, on(redis, funnel(10, 10, time.Second)))
		require.True(t, take(t, fast, "a", 10).Allowed)
		begun := time.Now()
		r = must.Get(fast.Acquire(ctx, "a", 2, time.Hour))
		require.Positive(t, r.Waited)
		require.Equal(t, r.Waited, time.Since(begun))
		require.Positive(t, r.Wait, "the wait must count from the moment of the request")
		require.NoError(t, r.Cancel(ctx))

		mine := errors.New("mine")
		gone, leave := context.WithCancelCause(ctx)
		require.NoError(t, l.Wait(ctx, "b", 2))
		ended := make(chan error)
		go func() {
			r, err := l.Acquire(gone, "b", 1, 2*time.Hour)
			assert.False(t, r.Allowed)
			ended <- err
		}()
		eventually(t, func() bool { return take(t, l, "b", 0).ResetAfter > 150*time.Minute }, "it has a turn")
		leave(mine)
		err := <-ended
		require.ErrorIs(t, err, engine.ErrCancelled)
		require.ErrorIs(t, err, mine)
		require.LessOrEqual(t, take(t, l, "b", 0).ResetAfter, 2*time.Hour, "the cancelled call's units did not come back")
		r, err = l.Acquire(gone, "b", 1, time.Hour)
		require.ErrorIs(t, err, engine.ErrCancelled)
		require.False(t, r.Allowed)
	})
}

// Units come back to their lease once.
func TestKeepReturnsUnitsToTheirLease(t *testing.T) {
	inBubble(t, func(t *testing.T, redis *storetest.Redis) {
		const limit = 3000
		ctx := t.Context()
		redis.Set(redistest.Weather{Answers: 50 * time.Microsecond})
		c := inLeases(on(redis, policy.Must(policy.FixedWindow(limit, 366*24*time.Hour))))
		c.Term = time.Minute
		l := open(t, c)
		var r Reservation
		for r.ask.receipt == nil || r.Source() != limits.SourceLease || l.leased.leases.Held("a") < 10 {
			r = must.Get(l.Acquire(ctx, "a", 5, 0))
			if r.Source() != limits.SourceLease {
				require.NoError(t, r.Cancel(ctx))
			}
		}
		before := l.leased.leases.Held("a")
		require.NoError(t, r.Keep(ctx, 2))
		require.Equal(t, before+3, l.leased.leases.Held("a"))
		require.NoError(t, r.Keep(ctx, 0))
		require.Equal(t, before+3, l.leased.leases.Held("a"), "a second Keep returned units again")
	})
}

func TestAcquireOfAQueue(t *testing.T) {
	inBubble(t, func(t *testing.T, redis *storetest.Redis) {
		ctx := t.Context()
		l := open(t, on(redis, policy.Must(policy.Queue(2, 1, time.Hour))))
		// The call would wait for an hour.
		for i, want := range []error{nil, engine.ErrDeadline} {
			r, err := l.Acquire(ctx, "a", 1, 0)
			require.ErrorIs(t, err, want)
			require.Zero(t, r.Wait, i)
		}
		for range 2 {
			require.True(t, must.Get(l.Reserve(ctx, "a", 1, 0)).Allowed)
		}
		for patience, want := range map[time.Duration]error{time.Hour: engine.ErrDeadline, 20 * time.Hour: engine.ErrCrowded} {
			_, err := l.Acquire(ctx, "a", 1, patience)
			require.ErrorIs(t, err, want)
		}
		require.ErrorIs(t, l.Wait(ctx, "a", 1), engine.ErrCrowded)
	})
}
