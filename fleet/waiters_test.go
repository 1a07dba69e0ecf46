package fleet

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/engine"
	"github.com/ral-limiter/ral/fleet/internal/storetest"
)

// Promise: `MaxWaiting` and `MaxWaitingTotal` bound waiting calls; others take nothing.
func TestWaitersAreBounded(t *testing.T) {
	inBubble(t, func(t *testing.T, redis *storetest.Redis) {
		c := on(redis, funnel(2, 1, time.Hour))
		c.MaxWaiting, c.MaxWaitingTotal = 2, 3
		l := open(t, c)
		ctx, leave := context.WithCancel(t.Context())
		for _, key := range []string{"a", "b", "c"} {
			require.NoError(t, l.Wait(ctx, key, 2))
		}
		ended := make(chan error)
		for _, step := range []struct{ key, crowded string }{
			{"a", ""}, {"a", ""}, {"a", "2 for this key on this server, of at most 2"},
			{"b", ""}, {"b", "3 for all keys on this server, of at most 3"}, {"c", "3 for all keys"},
		} {
			before := take(t, l, step.key, 0).ResetAfter
			if step.crowded == "" {
				go func() { ended <- l.Wait(ctx, step.key, 1) }()
				eventually(t, func() bool { return take(t, l, step.key, 0).ResetAfter > before+time.Hour/2 }, "it has a turn")
				continue
			}
			err := l.Wait(t.Context(), step.key, 1)
			require.ErrorIs(t, err, engine.ErrCrowded)
			require.ErrorContains(t, err, step.crowded)
			r, err := l.Acquire(t.Context(), step.key, 1, 100*time.Hour)
			require.ErrorIs(t, err, engine.ErrCrowded)
			require.False(t, r.Allowed)
			require.LessOrEqual(t, take(t, l, step.key, 0).ResetAfter, before, "a call that gave up was promised a turn")
		}
		require.NoError(t, l.Wait(t.Context(), "new", 1), "a call on a new key must not wait")
		require.NoError(t, l.Wait(t.Context(), "a", 0))
		require.ErrorIs(t, l.Wait(t.Context(), "a", 3), engine.ErrNever)
		_, err := l.Acquire(t.Context(), "a", 1, 0)
		require.ErrorIs(t, err, engine.ErrDeadline, "a call without patience must be refused at once")

		leave()
		for range 3 {
			require.ErrorIs(t, <-ended, engine.ErrCancelled)
		}
		require.Empty(t, l.waiters.perKey)
		require.Zero(t, l.waiters.total)
		soon, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		require.ErrorIs(t, l.Wait(soon, "a", 1), engine.ErrDeadline, "another call must have a place in line, and be too late there")
	})
}
