package fleet

import (
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/engine"
	"github.com/ral-limiter/ral/fleet/internal/storetest"
	"github.com/ral-limiter/ral/internal/testkit/must"
	"github.com/ral-limiter/ral/policy"
)

// Two servers and an engine take under two limits of a family, and change from one to the other.
// Promise: `ChangeLimit` matches an engine's.
func TestChangeLimitAgreesWithAnEngine(t *testing.T) {
	all := families(t)
	for seed, pair := range all[:4] { // an engine counts aligned windows from elsewhere, and has no log
		inBubble(t, func(t *testing.T, redis *storetest.Redis) {
			r := rand.New(rand.NewPCG(uint64(seed), 78))
			var clock atomic.Int64
			c := on(redis, pair[0])
			c.clock = clock.Load
			servers := []*Limiter{open(t, c), open(t, c)}
			e := must.Get(engine.New[string](engine.Config{Name: c.Name, Policy: pair[0], Clock: func() policy.Instant {
				return policy.Instant(max(clock.Load()*1000, 1))
			}}))
			defer e.Close()
			clock.Store(int64(366 * 24 * time.Hour / time.Microsecond))
			changed := 0
			for step := range 300 {
				l, i := servers[r.IntN(2)], r.IntN(2)
				switch r.IntN(6) {
				case 0:
					clock.Add(r.Int64N(int64(30 * 24 * time.Hour / time.Microsecond)))
				case 1:
					keep := []engine.Keep{engine.KeepUsed, engine.KeepShare}[r.IntN(2)]
					from, to := pair[i], pair[1-i]
					if i == 0 && r.IntN(2) == 0 {
						from = nil
					}
					before := e.TakeWith(to, "a", 0)
					require.NoError(t, e.ChangeLimit("a", from, to, keep))
					require.NoError(t, l.ChangeLimit(t.Context(), "a", from, to, keep))
					if e.TakeWith(to, "a", 0) != before {
						changed++
					}
				default:
					n := r.Int64N(8)
					require.Equal(t, e.TakeWith(pair[i], "a", n), must.Get(l.TakeWith(t.Context(), pair[i], "a", n)).Decision, "%v step %d", pair, step)
				}
			}
			require.Positive(t, changed)
		})
	}
}

func TestChangeLimitIsRefused(t *testing.T) {
	inBubble(t, func(t *testing.T, redis *storetest.Redis) {
		ctx, small, large := t.Context(), policy.Must(policy.FixedWindow(10, time.Hour)), policy.Must(policy.FixedWindow(1000, time.Hour))
		c := on(redis, small)
		l := open(t, c)
		take(t, l, "a", 10)
		left := func(p policy.Policy) int64 { return must.Get(l.TakeWith(ctx, p, "a", 0)).Remaining }
		var field *policy.FieldError
		require.ErrorAs(t, l.ChangeLimit(ctx, "a", small, large, 7), &field)
		require.Equal(t, "keep", field.Field)
		for _, other := range []policy.Policy{funnel(1, 1, time.Hour), policy.Must(policy.FixedWindow(10, time.Minute))} {
			require.ErrorIs(t, l.ChangeLimit(ctx, "a", other, large), ErrMisfit)
			require.ErrorIs(t, l.ChangeLimit(ctx, "a", small, other), ErrMisfit)
		}
		require.ErrorIs(t, l.ChangeLimit(ctx, string(make([]byte, 1<<17)), small, large), ErrKeyTooLong)
		require.ErrorIs(t, open(t, leased(on(redis, small))).ChangeLimit(ctx, "a", small, large), ErrModeUnsupported)
		redis.Set(gone)
		require.ErrorIs(t, l.ChangeLimit(ctx, "a", small, large), ErrOutage)
		redis.Set(well)
		eventually(t, func() bool { return l.Health() == nil }, "Redis is back")
		require.EqualValues(t, 0, left(small))
		require.NoError(t, l.ChangeLimit(ctx, "a", small, large))
		require.EqualValues(t, 990, left(large))
		require.NoError(t, l.ChangeLimit(ctx, "unused", small, large))
		require.NoError(t, l.Close())
		require.ErrorIs(t, l.ChangeLimit(ctx, "a", small, large), engine.ErrClosed)
	})
}
