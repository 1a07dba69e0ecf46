package limits_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ral-limiter/ral/engine"
	"github.com/ral-limiter/ral/internal/testkit/must"
	"github.com/ral-limiter/ral/limits"
	"github.com/ral-limiter/ral/policy"
	"github.com/ral-limiter/ral/single"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// anyPolicy returns a policy of up to 20 units.
func anyPolicy(r *rand.Rand) policy.Policy {
	n, period := 1+r.Int64N(20), time.Duration(1+r.IntN(5000))*time.Millisecond
	switch r.IntN(6) {
	case 0:
		return policy.Must(policy.FixedWindow(n, period))
	case 1:
		return policy.Must(policy.SlidingWindow(n, period))
	case 2:
		return policy.Must(policy.Queue(n, 1+r.Int64N(n), period))
	case 3:
		return policy.Must(policy.Bursty(n, period, 4))
	case 4:
		return policy.Must(policy.WarmingUp(1+r.Int64N(20), period, 10*period, 3))
	}
	return policy.Must(policy.Funnel(n, 1+r.Int64N(n), period))
}

// A nanosecond sooner the call is refused. Near and far limiters are asked for few keys, so that
// claims share limiters and keys.
//
// Promise: `RetryAfter` on several limiters is true, to the nanosecond.
func TestRetryAfterOfAskAllIsTrue(t *testing.T) {
	refused, together, never := 0, 0, 0
	for seed := range uint64(1000) {
		synctest.Test(t, func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 1))
			var all []limits.Limiter[string]
			var policies []policy.Policy
			for i := range 1 + r.IntN(3) {
				p := anyPolicy(r)
				e := under(t, p)
				var l limits.Limiter[string] = e
				switch r.IntN(4) {
				case 0:
					l = limits.ForAnyKey[string](single.MustNew(p, nil))
				case 1:
					l = &far{Limiter: e}
				case 2:
					if i > 0 {
						tiers := must.Get(engine.NewTiered[string](engine.Config{Policy: p}, anyPolicy(r)))
						defer tiers.Close()
						l = tiers
					}
				}
				all, policies = append(all, l), append(policies, p)
			}
			for range r.IntN(12) {
				_, _ = all[r.IntN(len(all))].Hold(t.Context(), limits.Call[string]{Key: "ab"[:1+r.IntN(2)], N: r.Int64N(8), NoWait: true})
				time.Sleep(time.Duration(r.IntN(500)) * time.Millisecond)
			}
			var claims []limits.Claim
			var about string
			shared := map[string]bool{}
			for range 1 + r.IntN(4) {
				at, key, n := r.IntN(len(all)), "ab"[:1+r.IntN(2)], r.Int64N(6)
				claims = append(claims, limits.NewClaim(all[at], limits.Call[string]{Key: key, N: n}))
				what := fmt.Sprintf("%v %s", policies[at], key)
				shared[what] = true
				about += fmt.Sprintf("%s: %d; ", what, n)
			}
			out := must.Get(limits.AskAll(t.Context(), 0, claims...))
			for range 5 {
				switch {
				case out.Allowed:
					return
				case out.RetryAfter == policy.Never:
					never++
					return
				}
				refused++
				if len(shared) < len(claims) {
					together++
				}
				time.Sleep(out.RetryAfter - 1)
				if !assert.False(t, must.Get(limits.AskAll(t.Context(), 0, claims...)).Allowed, "seed %d: admitted too soon: %s", seed, about) {
					return
				}
				time.Sleep(1)
				out = must.Get(limits.AskAll(t.Context(), 0, claims...))
			}
			assert.True(t, out.Allowed, "seed %d: %v: %s", seed, out.RetryAfter, about)
		})
		if t.Failed() {
			return
		}
	}
	assert.Greater(t, refused, 200)
	assert.Greater(t, together, 100, "claims share keys")
	assert.Greater(t, never, 50)
}

// Each claim is settled by its own units. Different keys or limiters are met apart.
func TestClaimsOnOneKey(t *testing.T) {
	e, other, one := window(t, 10), window(t, 10), single.MustNew(policy.FixedWindow(10, time.Hour))
	claimOf := func(l limits.Limiter[string], key string, n int64) limits.Claim {
		return limits.NewClaim(l, limits.Call[string]{Key: key, N: n})
	}
	far := &far{Limiter: e}
	out := must.Get(limits.AskAll(t.Context(), 0, claimOf(far, "key", 3), claimOf(other, "key", 9), claimOf(far, "key", 4), claimOf(far, "b", 9)))
	require.True(t, out.Allowed)
	assert.Equal(t, []int64{3, 1, 3, 1}, []int64{
		out.Answers[0].Remaining, out.Answers[1].Remaining, out.Answers[2].Remaining, out.Answers[3].Remaining,
	})
	assert.Equal(t, 1, out.Binding)
	assert.Equal(t, 2, far.trips, "one for each key")
	require.NoError(t, out.Settle(t.Context(), 1, 2, 2))
	assert.Equal(t, []int64{7, 8, 1}, []int64{left(e), left(other), e.Peek("b", 0).Remaining})
	out = must.Get(limits.AskAll(t.Context(), 0, claimOf(far, "key", 3), claimOf(far, "key", 4)))
	require.NoError(t, out.Settle(t.Context(), 6), "the second is charged as taken")
	assert.Equal(t, int64(0), left(e), "6 and 4")
	out = must.Get(limits.AskAll(t.Context(), 0, claimOf(other, "key", 3), claimOf(other, "key", 4)))
	require.NoError(t, out.Cancel(t.Context()))
	assert.Equal(t, int64(8), left(other))

	// More than the limit together is refused for ever, and so is less than 0.
	for _, n := range []int64{6, -1, 1 << 62} {
		out = must.Get(limits.AskAll(t.Context(), 0, claimOf(other, "key", 5), claimOf(other, "key", n), claimOf(other, "key", 1<<62)))
		assert.Equal(t, policy.Never, out.RetryAfter, n)
	}
	for _, n := range [][2]int64{{-1, 2}, {2, -1}, {-1, 1}, {-3, 3}} {
		out = must.Get(limits.AskAll(t.Context(), 0, claimOf(other, "key", n[0]), claimOf(other, "key", n[1])))
		assert.False(t, out.Allowed, n)
		assert.Equal(t, policy.Never, out.RetryAfter, n)
		assert.Equal(t, int64(8), left(other), n)
	}
	// All keys of a limit without keys are the same, whatever their type.
	out = must.Get(limits.AskAll(t.Context(), 0, claimOf(limits.ForAnyKey[string](one), "a", 6),
		limits.NewClaim(limits.ForAnyKey[int](one), limits.Call[int]{Key: 1, N: 3}), claimOf(limits.ForAnyKey[string](one), "b", 1)))
	require.True(t, out.Allowed)
	assert.Equal(t, []int64{0, 0, 0}, []int64{out.Answers[0].Remaining, out.Answers[1].Remaining, out.Answers[2].Remaining})
	require.NoError(t, out.Cancel(t.Context()))
	assert.Equal(t, int64(10), one.Peek(0).Remaining)
	// Limiters that cannot be compared are asked in turn.
	odd := uncomparable{window(t, 10), nil}
	out = must.Get(limits.AskAll(t.Context(), 0, claimOf(odd, "key", 6), claimOf(odd, "key", 4)))
	require.True(t, out.Allowed)
	assert.Equal(t, int64(4), out.Answers[0].Remaining)
	require.NoError(t, out.Cancel(t.Context()))
}

type uncomparable struct {
	limits.Limiter[string]
	_ []int
}

// A refusal promises nothing, as the instant at which both would be met is unknown. Equal limits do
// not differ.
func TestClaimsOnOneKeyUnderTwoLimits(t *testing.T) {
	e := window(t, 10)
	small, large := policy.Must(policy.FixedWindow(5, time.Hour)), policy.Must(policy.FixedWindow(20, time.Hour))
	by := func(limit policy.Policy, n int64) limits.Claim {
		return limits.NewClaim(e, limits.Call[string]{Key: "key", N: n, Limit: limit})
	}
	ask := func(claims ...limits.Claim) limits.Outcome {
		return must.Get(limits.AskAll(t.Context(), 0, append(claims, claim(window(t, 1), 1))...))
	}
	out := ask(by(small, 2), by(large, 3))
	require.True(t, out.Allowed)
	assert.True(t, out.Answers[0].Exact())
	out = ask(by(small, 1), by(large, 16))
	require.False(t, out.Allowed)
	for _, a := range out.Answers[:2] {
		assert.False(t, a.Exact())
		assert.ErrorContains(t, a.Err(), "different limits")
	}
	assert.True(t, out.Answers[2].Exact())
	out = ask(by(large, 8), by(large, 8))
	require.False(t, out.Allowed)
	assert.True(t, out.Answers[0].Exact())
	assert.Equal(t, out.Answers[0], out.Answers[1])
	// Nor does a call alternate between them until its patience ends.
	synctest.Test(t, func(t *testing.T) {
		e := under(t, small)
		out := must.Get(limits.AskAll(t.Context(), 2*time.Hour,
			claim(e, 4), limits.NewClaim(e, limits.Call[string]{Key: "key", N: 17, Limit: large})))
		assert.False(t, out.Allowed)
		assert.Equal(t, int64(5), left(e))
	})
}
