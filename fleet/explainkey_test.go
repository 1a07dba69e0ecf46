package fleet

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/engine"
	"github.com/ral-limiter/ral/fleet/internal/storetest"
	"github.com/ral-limiter/ral/internal/testkit/must"
	"github.com/ral-limiter/ral/limits"
	"github.com/ral-limiter/ral/policy"
)

func explain(t testing.TB, l limits.Limiter[string], key string) limits.Explanation {
	t.Helper()
	return must.Get(limits.Explain(t.Context(), l, key))
}

func peek(t testing.TB, l *Limiter, key string, n int64) limits.Answer {
	return must.Get(l.Peek(t.Context(), key, n))
}

func TestExplainCountsTheUseOfALog(t *testing.T) {
	inBubble(t, func(t *testing.T, redis *storetest.Redis) {
		log := policy.Must(SlidingLog(5, time.Hour))
		l := open(t, on(redis, log))
		assert.False(t, explain(t, l, "a").Known)
		take(t, l, "a", 3)
		x := explain(t, l, "a")
		assert.Equal(t, []any{true, int64(3), int64(5), int64(2), true}, []any{x.Known, x.Used, x.Of, x.Remaining, x.Allowed})
		rest, late := peek(t, l, "a", 2), peek(t, l, "a", 3)
		assert.Equal(t, []any{true, int64(0), time.Duration(0)}, []any{rest.Allowed, rest.Remaining, rest.RetryAfter})
		assert.Equal(t, []any{false, int64(2), late.ResetAfter}, []any{late.Allowed, late.Remaining, late.RetryAfter})
		assert.Equal(t, policy.Never, peek(t, l, "a", 6).RetryAfter)
		take(t, l, "a", 2)
		x = explain(t, l, "a")
		assert.Equal(t, []any{int64(5), false, time.Duration(0)}, []any{x.Used, x.Allowed, x.RetryAfter})
		assert.Contains(t, x.String(), "5 of 5 used. A call is refused.")
		assert.Positive(t, x.ResetAfter)
		assert.Empty(t, x.Returns)

		require.NoError(t, l.Block(t.Context(), "a", time.Minute))
		x = explain(t, l, "a")
		assert.Equal(t, []any{int64(0), int64(0), false}, []any{x.Used, x.Of, x.Allowed}, "the figures must be unknown, as Redis told only the end of the block")
		assert.InDelta(t, time.Minute, x.Blocked, float64(30*time.Second))
		assert.GreaterOrEqual(t, x.RetryAfter, x.Blocked)
		assert.NotContains(t, x.String(), "used.")
	})
}

func TestExplainWithAgreesWithTakeWith(t *testing.T) {
	inBubble(t, func(t *testing.T, redis *storetest.Redis) {
		for _, f := range families(t) {
			l := open(t, on(redis, f[0]))
			must.Get(l.TakeWith(t.Context(), f[1], "a", 50))
			for i, limit := range []policy.Policy{f[1], f[0], nil} {
				x := must.Get(l.ExplainWith(t.Context(), limit, "a"))
				look := must.Get(l.TakeWith(t.Context(), limit, "a", 0))
				assert.Equal(t, f[min(i, 1)^1], x.Limit)
				assert.Equal(t, look.Remaining, x.Remaining, "%v", x.Limit)
				assert.Equal(t, x.Of, x.Used+x.Remaining, "%v", x.Limit)
				assert.Equal(t, must.Get(l.TakeWith(t.Context(), limit, "a", 1)).Allowed, x.Allowed, "%v", x.Limit)
			}
			x := must.Get(l.ExplainWith(t.Context(), policy.Must(policy.FixedWindow(1, time.Second)), "a"))
			assert.Equal(t, []any{false, policy.Never}, []any{x.Allowed, x.RetryAfter})
			require.ErrorIs(t, x.Err(), ErrMisfit)
			assert.Zero(t, l.Stats().Misfits, "an explanation must not be counted")
		}
	})
}

// Promise: Explanations leave out figures of other servers' leases.
func TestExplainLeavesOutLeasedUnits(t *testing.T) {
	inBubble(t, func(t *testing.T, redis *storetest.Redis) {
		c := inLeases(on(redis, window(10_000, time.Hour)))
		// Nothing comes back by itself while the test runs.
		c.Term = time.Minute
		l, other := open(t, c), open(t, c)
		warm(t, l, "a", 200)
		eventually(t, func() bool { return l.leased.leases.Held("a") > 0 }, "a lease")
		x := explain(t, l, "a")
		assert.Equal(t, []any{limits.SourceLease, false, int64(0), int64(0), true}, []any{x.Source(), x.Exact(), x.Used, x.Of, x.Allowed})
		assert.Empty(t, x.Returns)
		held := l.leased.leases.Held("a")
		for _, n := range []int64{0, 1, held, held + 1} {
			assert.True(t, peek(t, l, "a", n).Allowed, "%d units must pass beside a lease of %d", n, held)
		}
		assert.Equal(t, held, l.leased.leases.Held("a"), "a look must take nothing")
		assert.Equal(t, policy.Never, peek(t, l, "a", 10_001).RetryAfter)
		assert.Contains(t, x.String(), "How much is used is not known, as servers may hold units on lease. A call is admitted.")
		x = explain(t, other, "a")
		assert.Equal(t, []any{limits.SourceRedis, false, int64(0), true}, []any{x.Source(), x.Exact(), x.Of, x.Allowed})

		// Redis has nothing left of the key, but leases have.
		take(t, l, "b", 9990)
		for take(t, other, "b", 1).Allowed {
			continue
		}
		x = explain(t, other, "b")
		assert.Equal(t, []any{false, int64(0)}, []any{x.Allowed, x.Of})
		assert.Positive(t, x.RetryAfter)
		assert.False(t, other.Choke(t.Context(), "b"))

		require.NoError(t, other.Block(t.Context(), "a", time.Minute))
		x = explain(t, l, "a")
		assert.False(t, x.Allowed, "the blocked key is admitted by its lease")
		assert.Positive(t, x.Blocked)
		assert.False(t, l.Choke(t.Context(), "a"), "a call passed on the blocked key after the explanation told of the block")
	})
}

func TestExplainInAnOutage(t *testing.T) {
	says := map[Fallback]string{
		FallbackShare:  "Without Redis, this server's share of the limit decides. A call is admitted.",
		FallbackOpen:   "Without Redis, calls pass as configured. A call is admitted.",
		FallbackClosed: "Without Redis, calls are refused as configured. A call is refused.",
	}
	for _, f := range fallbacks {
		t.Run(f.source.String(), func(t *testing.T) {
			inBubble(t, func(t *testing.T, redis *storetest.Redis) {
				c := on(redis, funnel(3, 1, time.Hour))
				c.Outage = f.outage
				l := open(t, c)
				// The share knows the key then.
				require.Equal(t, limits.SourceRedis, take(t, l, "a", 0).Source())
				require.NoError(t, l.Block(t.Context(), "blocked", time.Hour))
				redis.Set(gone)
				eventually(t, func() bool { return l.Health() != nil }, "it is away")
				x := explain(t, l, "a")
				assert.Equal(t, []any{f.source, f.outage != FallbackClosed, int64(0), int64(0), time.Duration(0), c.Name}, []any{x.Source(), x.Allowed, x.Used, x.Of, x.RetryAfter, x.Name})
				require.ErrorIs(t, x.Err(), ErrOutage)
				assert.Empty(t, x.Returns)
				assert.Contains(t, x.String(), says[f.outage])
				for _, n := range []int64{4, 3, 0, 2, 1, 1, 1} {
					first, second := peek(t, l, "a", n), peek(t, l, "a", n)
					taken := take(t, l, "a", n)
					assert.Equal(t, first.Allowed, second.Allowed, "%d units: two looks differ, though a look takes nothing", n)
					assert.Equal(t, taken.Allowed, first.Allowed, "%d units: the look and the take differ", n)
					assert.Equal(t, taken.RetryAfter == policy.Never, first.RetryAfter == policy.Never, "%d units: the look and the take differ in whether a call may ever pass", n)
				}
				// The share is used up.
				if f.outage == FallbackShare {
					x, next := explain(t, l, "a"), take(t, l, "a", 1)
					assert.False(t, x.Allowed)
					assert.Equal(t, next.RetryAfter, x.RetryAfter)
				}
				assert.Equal(t, policy.Never, peek(t, l, "blocked", 4).RetryAfter)
				x = explain(t, l, "blocked")
				assert.False(t, x.Allowed)
				assert.Positive(t, x.Blocked)
				assert.Contains(t, x.String(), "The key is blocked for ")
			})
		})
	}
}

func TestExplainMisfitsAndErrors(t *testing.T) {
	inBubble(t, func(t *testing.T, redis *storetest.Redis) {
		c := on(redis, funnel(10, 1, time.Hour))
		misfit := policy.Must(policy.FixedWindow(1, time.Hour))
		larger := funnel(20, 1, time.Hour)
		c.PolicyFor = func(key string) policy.Policy {
			return map[string]policy.Policy{"misfit": misfit, "larger": larger}[key]
		}
		l := open(t, c)
		x := explain(t, l, "misfit")
		assert.Equal(t, []any{misfit, false, policy.Never}, []any{x.Limit, x.Allowed, x.RetryAfter})
		require.ErrorIs(t, x.Err(), ErrMisfit)
		assert.Zero(t, l.Stats().Misfits)
		x = explain(t, l, "larger")
		assert.Equal(t, []any{larger, int64(20), true}, []any{x.Limit, x.Of, x.Allowed})

		_, err := l.Explain(t.Context(), strings.Repeat("k", 70_000))
		require.ErrorIs(t, err, ErrKeyTooLong)
		ended, end := context.WithCancel(t.Context())
		end()
		_, err = l.Explain(ended, "a")
		require.ErrorIs(t, err, context.Canceled)
		require.NoError(t, l.Close())
		_, err = l.Explain(t.Context(), "a")
		require.ErrorIs(t, err, engine.ErrClosed)
	})
}
