package fleet

import (
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/engine"
	"github.com/ral-limiter/ral/fleet/internal/storetest"
	"github.com/ral-limiter/ral/internal/core/shape"
	"github.com/ral-limiter/ral/internal/testkit/must"
	"github.com/ral-limiter/ral/limits"
	"github.com/ral-limiter/ral/policy"
)

// families are limits of 10 units that do not come back during a test, each with 100 of its family.
func families(t testing.TB) [][2]policy.Policy {
	t.Helper()
	const long = 366 * 24 * time.Hour
	pair := func(of func(limit int64) (policy.Policy, error)) [2]policy.Policy {
		return [2]policy.Policy{policy.Must(of(10)), policy.Must(of(100))}
	}
	return [][2]policy.Policy{
		pair(func(n int64) (policy.Policy, error) { return policy.Funnel(n, n, 10*long) }),
		pair(func(n int64) (policy.Policy, error) { return policy.Bursty(n, long/4, n-1) }),
		pair(func(n int64) (policy.Policy, error) { return policy.FixedWindow(n, long) }),
		pair(func(n int64) (policy.Policy, error) { return policy.SlidingWindow(n, long) }),
		pair(func(n int64) (policy.Policy, error) { return policy.AlignedWindow(n, long) }),
		pair(func(n int64) (policy.Policy, error) { return SlidingLog(n, long) }),
	}
}

// Promise: Limits that come with calls share a key's word.
func TestLimitsOfCallsShareAWord(t *testing.T) {
	inBubble(t, func(t *testing.T, redis *storetest.Redis) {
		ctx := t.Context()
		for _, f := range families(t) {
			small, large := f[0], f[1]
			c := on(redis, small)
			l, other := open(t, c), open(t, c)
			a := must.Get(l.TakeWith(ctx, large, "a", 50))
			require.True(t, a.Allowed)
			require.Equal(t, limits.SourceRedis, a.Source())
			require.Equal(t, large.Limit(), a.Limit)
			require.Equal(t, small.Limit(), take(t, l, "b", 1).Limit)

			half := take(t, other, "a", 1)
			same := must.Get(other.TakeWith(ctx, small, "b", 1))
			require.True(t, same.Allowed)
			require.EqualValues(t, take(t, l, "b", 0).Remaining, same.Remaining)
			if _, log := small.(interface{ Window() time.Duration }); log && strings.Contains(small.String(), "funnel") {
				require.True(t, half.Allowed, "half of the time is left, so half of the units must be")
				require.EqualValues(t, 4, half.Remaining)
			} else if !strings.Contains(small.String(), "bursty") {
				require.False(t, half.Allowed, "%v: 50 units must be refused under a limit of 10", small)
			}

			// The units of a Bursty cost as the limit says.
			if !strings.Contains(small.String(), "bursty") {
				out := must.Get(TakeAll(ctx, l.ClaimWith(large, "d", 10), l.Claim("e", 10), l.ClaimWith(large, "c", 1), l.Claim("c", 1)))
				require.True(t, out.Allowed, "%v", small)
				require.Equal(t, []int64{90, 0}, []int64{out.Answers[0].Remaining, out.Answers[1].Remaining})
				require.NotEqual(t, out.Answers[2].Limit, out.Answers[3].Limit)
				a = must.Get(l.TakeWith(ctx, large, "c", 0))
				require.LessOrEqual(t, a.Remaining, int64(98), "%v: the call must be charged under both limits", small)
			}

			must.Get(l.RefundWith(ctx, large, "a", 50))
			a = must.Get(other.TakeWith(ctx, large, "a", 0))
			require.LessOrEqual(t, shape.AtOnce(large)-a.Remaining, int64(10), "%v: the units must come back", large)
			a = must.Get(l.RefundWith(ctx, nil, "b", 2))
			require.EqualValues(t, small.Limit(), a.Limit)
			a = must.Get(l.TakeWith(ctx, nil, "b", 0))
			require.EqualValues(t, small.Limit(), a.Limit)
		}
	})
}

// Promise: A limit of another family is an error and records nothing.
func TestMisfitLimitRecordsNothing(t *testing.T) {
	inBubble(t, func(t *testing.T, redis *storetest.Redis) {
		ctx := t.Context()
		log := policy.Must(SlidingLog(10, time.Hour))
		limits := []policy.Policy{
			funnel(10, 1, time.Hour), policy.Must(policy.Queue(10, 1, time.Hour)), policy.Must(policy.Bursty(1, time.Hour, 9)),
			policy.Must(policy.FixedWindow(10, time.Hour)), policy.Must(policy.FixedWindow(10, time.Minute)),
			policy.Must(policy.SlidingWindow(10, time.Hour)), policy.Must(policy.AlignedWindow(10, time.Hour)), log,
		}
		never := []policy.Policy{policy.Must(policy.AtMost(10, time.Hour)), policy.Must(policy.CalendarWindow(1, policy.Day, "UTC"))}
		for _, p := range limits {
			l := open(t, on(redis, p))
			for _, other := range append(limits, never...) {
				if other == p {
					continue
				}
				// The limit is found by the policy, and by the text.
				for range 2 {
					a, err := l.TakeWith(ctx, other, "a", 1)
					require.ErrorIs(t, err, ErrMisfit, "%v under %v", other, p)
					require.ErrorContains(t, err, other.String())
					require.False(t, a.Allowed)
					require.Zero(t, a.Limit)
					require.Equal(t, policy.Never, a.RetryAfter)
				}
				_, err := TakeAll(ctx, l.Claim("a", 1), l.ClaimWith(other, "a", 1))
				require.ErrorIs(t, err, ErrMisfit)
				_, err = l.RefundWith(ctx, other, "a", -1)
				require.ErrorIs(t, err, ErrMisfit)
			}
			require.Zero(t, take(t, l, "a", 0).ResetAfter, "a refused limit recorded units")
			require.EqualValues(t, 4*(len(limits)+len(never)-1), l.Stats().Misfits)
			require.Zero(t, l.Stats().Admitted+l.Stats().Refused)
		}
		leased := open(t, inLeases(on(redis, funnel(100, 1, time.Second))))
		_, err := leased.TakeWith(ctx, funnel(10, 1, time.Second), "a", 1)
		require.ErrorIs(t, err, ErrModeUnsupported)
		require.True(t, must.Get(leased.TakeWith(ctx, nil, "a", 1)).Allowed)
	})
}

func TestPolicyForDecidesEveryVerb(t *testing.T) {
	inBubble(t, func(t *testing.T, redis *storetest.Redis) {
		ctx := t.Context()
		plans := map[string]policy.Policy{
			"big": funnel(100, 1, time.Hour), "odd": policy.Must(policy.FixedWindow(1, time.Hour)),
		}
		c := on(redis, funnel(2, 1, time.Hour))
		c.PolicyFor = func(key string) policy.Policy { return plans[key] }
		l := open(t, c)
		require.Equal(t, plans["big"], l.LimitFor("big"))
		require.Equal(t, c.Policy, l.LimitFor("any"))
		require.Equal(t, c.Policy, l.Limit())
		require.EqualValues(t, 97, take(t, l, "big", 3).Remaining)
		require.True(t, l.Choke(ctx, "big"))
		require.EqualValues(t, 96, must.Get(l.Peek(ctx, "big", 0)).Remaining)
		require.EqualValues(t, 97, must.Get(l.Refund(ctx, "big", 1)).Remaining)
		require.NoError(t, l.Wait(ctx, "big", 7))
		r := must.Get(l.Reserve(ctx, "big", 50, 0))
		require.EqualValues(t, 40, r.Remaining)
		require.NoError(t, r.Keep(ctx, 10))
		r = must.Get(l.Acquire(ctx, "big", 20, 0))
		require.EqualValues(t, 60, r.Remaining)
		require.ErrorIs(t, l.Wait(ctx, "big", 101), engine.ErrNever)
		out := must.Get(TakeAll(ctx, l.Claim("big", 2), l.Claim("any", 2)))
		require.True(t, out.Allowed)
		require.EqualValues(t, 58, out.Answers[0].Remaining)
		require.Zero(t, out.Answers[1].Remaining)
		require.Equal(t, 1, out.Binding)
		require.True(t, must.Get(l.Reset(ctx, "big")))
		require.False(t, must.Get(l.Reset(ctx, "big")))
		require.EqualValues(t, 100, take(t, l, "big", 0).Remaining)
		require.False(t, take(t, l, "any", 3).Allowed, "Policy must hold for the other keys")

		require.EqualValues(t, 40, must.Get(l.Admit(ctx, "big", 60)).Remaining)
		g := must.Get(l.Hold(ctx, limits.Call[string]{Key: "new", N: 50, Limit: plans["big"]}))
		require.NoError(t, g.Settle(ctx, 70))
		require.EqualValues(t, 30, must.Get(l.TakeWith(ctx, plans["big"], "new", 0)).Remaining, "the units must be settled in the measure of their own limit")

		_, err := l.Take(ctx, "odd", 1)
		require.ErrorIs(t, err, ErrMisfit)
		require.False(t, l.Choke(ctx, "odd"))
		require.ErrorIs(t, l.Wait(ctx, "odd", 1), ErrMisfit)
		require.Equal(t, policy.Decision{RetryAfter: policy.Never}, must.Get(l.Admit(ctx, "odd", 1)).Decision)
		_, err = l.Reserve(ctx, "odd", 1, 0)
		require.ErrorIs(t, err, ErrMisfit)
	})
}

// Promise: Calls' own limits have shares in outages.
func TestLimitsOfCallsHaveShares(t *testing.T) {
	for _, f := range families(t) {
		if strings.Contains(f[0].String(), "bursty") {
			continue
		}
		inBubble(t, func(t *testing.T, redis *storetest.Redis) {
			c := on(redis, f[0])
			c.Servers = 2
			l := open(t, c)
			with := func(source limits.Source, p policy.Policy, key string, n int64) limits.Answer {
				t.Helper()
				a := must.Get(l.TakeWith(t.Context(), p, key, n))
				require.Equal(t, source, a.Source())
				return a
			}
			require.True(t, with(limits.SourceRedis, f[1], "a", 60).Allowed)
			redis.Set(gone)
			a := with(limits.SourceShare, f[1], "a", 0)
			require.Equal(t, []int64{50, 20}, []int64{a.Limit, a.Remaining}, "of 50 units, the part that Redis told must be used")
			require.Equal(t, retry, with(limits.SourceShare, f[1], "a", 51).RetryAfter, "RetryAfter must be that of a call that the limit allows and the share never does")
			require.True(t, with(limits.SourceShare, f[1], "a", 5).Allowed)
			require.True(t, must.Get(TakeAll(t.Context(), l.ClaimWith(f[1], "a", 5))).Allowed)
			// A limit that is new in the outage knows the servers.
			if strings.Contains(f[0].String(), "funnel") {
				require.EqualValues(t, 20, with(limits.SourceShare, funnel(40, 40, 3660*24*time.Hour), "new", 1).Limit)
			}
			redis.Set(well)
			eventually(t, func() bool { return l.Health() == nil && l.Stats().Charged >= 10 }, "it is charged")
			require.EqualValues(t, 30, with(limits.SourceRedis, f[1], "a", 0).Remaining)
		})
	}
}

// Promise: Remembered limits are bounded.
func TestRememberedLimitsAreBounded(t *testing.T) {
	inBubble(t, func(t *testing.T, redis *storetest.Redis) {
		ctx := t.Context()
		c := on(redis, policy.Must(policy.FixedWindow(1, time.Hour)))
		l := open(t, c)
		var all sync.WaitGroup
		for range 4 {
			all.Go(func() {
				// Each limit is made anew.
				for i := range 2 * maxPolicies {
					of, err := l.under(policy.Must(policy.FixedWindow(int64(2+i%3), time.Hour)), "a")
					if !assert.NoError(t, err) || !assert.EqualValues(t, 2+i%3, of.maxTake) {
						return
					}
				}
			})
		}
		all.Wait()
		require.Len(t, l.others.all(), 3)
		require.LessOrEqual(t, l.others.policies, maxPolicies)
		for i := range maxLimits - 3 {
			must.Get(l.TakeWith(ctx, policy.Must(policy.FixedWindow(int64(10+i), time.Hour)), "a", 0))
		}
		_, err := l.TakeWith(ctx, policy.Must(policy.FixedWindow(99_999, time.Hour)), "a", 0)
		require.ErrorIs(t, err, ErrTooManyLimits)
		_, err = l.TakeWith(ctx, policy.Must(policy.FixedWindow(2, time.Hour)), "a", 0)
		require.NoError(t, err, "a known limit must be accepted")
	})
}
