// Package limitstest tests the promises of package limits on a Limiter.
package limitstest

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/limits"
	"github.com/ral-limiter/ral/policy"
)

// Subject is a kind of limiter.
type Subject struct {
	// New returns a limiter of that policy, which is closed with the test.
	New func(t *testing.T, p policy.Policy) limits.Limiter[string]
	// Source is the source of its answers.
	Source limits.Source
	// Promised reports whether its answers are exact.
	Promised bool
	// Turns reports whether it can promise a turn: see limits.Call.NoWait.
	Turns bool
}

// Case is a test. It may run in a bubble of testing/synctest.
type Case struct {
	Name string
	Run  func(t *testing.T, s Subject)
}

const key = "key"

// window is the limit of most cases: returned units come back whole, and time does not matter.
func window() policy.Policy { return policy.Must(policy.FixedWindow(100, 24*time.Hour)) }

func ask(t *testing.T, limiter limits.Limiter[string], n int64) limits.Answer {
	t.Helper()
	answer, err := limiter.Admit(t.Context(), key, n)
	require.NoError(t, err)
	return answer
}

func hold(t *testing.T, limiter limits.Limiter[string], call limits.Call[string]) limits.Grant {
	t.Helper()
	call.Key = key
	grant, err := limiter.Hold(t.Context(), call)
	require.NoError(t, err)
	return grant
}

// has checks that n units are left, and no more, by taking them.
func has(t *testing.T, limiter limits.Limiter[string], n int64, about string) {
	t.Helper()
	assert.False(t, ask(t, limiter, n+1).Allowed, "%s: more than %d units are left", about, n)
	assert.True(t, ask(t, limiter, n).Allowed, "%s: fewer than %d units are left", about, n)
}

// Cases are the tests.
var Cases = []Case{
	{"all or nothing", func(t *testing.T, s Subject) {
		limiter := s.New(t, window())
		assert.True(t, ask(t, limiter, 70).Allowed)
		refused := ask(t, limiter, 31)
		assert.False(t, refused.Allowed)
		assert.Positive(t, refused.RetryAfter)
		assert.Less(t, refused.RetryAfter, policy.Never)
		assert.False(t, hold(t, limiter, limits.Call[string]{N: 31}).Allowed)
		has(t, limiter, 30, "refused calls took")
	}},
	{"no units, too few and too many", func(t *testing.T, s Subject) {
		limiter := s.New(t, window())
		for range 3 {
			assert.True(t, ask(t, limiter, 0).Allowed)
			grant := hold(t, limiter, limits.Call[string]{})
			assert.True(t, grant.Allowed)
			for _, n := range []int64{-1, 101, 1 << 62, -1 << 63} {
				assert.Equal(t, policy.Never, ask(t, limiter, n).RetryAfter, n)
				assert.Equal(t, policy.Never, hold(t, limiter, limits.Call[string]{N: n, Patience: time.Minute}).RetryAfter, n)
			}
		}
		has(t, limiter, 100, "looking took")
	}},
	{"an answer says how it was reached", func(t *testing.T, s Subject) {
		limiter := s.New(t, window())
		for _, n := range []int64{100, 1} {
			answer := ask(t, limiter, n)
			assert.Equal(t, s.Source, answer.Source(), n)
			assert.Equal(t, s.Promised, answer.Exact(), n)
			assert.NoError(t, answer.Err(), n)
			assert.Equal(t, answer.Limit, limiter.LimitFor(key).Limit(), n)
		}
		assert.Equal(t, s.Source, hold(t, limiter, limits.Call[string]{N: 1}).Source())
	}},
	{"settled with fewer", func(t *testing.T, s Subject) {
		limiter := s.New(t, window())
		grant := hold(t, limiter, limits.Call[string]{N: 60})
		require.True(t, grant.Allowed)
		require.True(t, ask(t, limiter, 10).Allowed, "others take meanwhile")
		require.NoError(t, grant.Settle(t.Context(), 20))
		require.NoError(t, grant.Settle(t.Context(), 0), "a second call does nothing")
		require.NoError(t, grant.Cancel(t.Context()))
		has(t, limiter, 70, "20 and 10 of 100 are used")
	}},
	{"settled with all, or none", func(t *testing.T, s Subject) {
		limiter := s.New(t, window())
		grant := hold(t, limiter, limits.Call[string]{N: 60})
		require.NoError(t, grant.Settle(t.Context(), 60))
		grant = hold(t, limiter, limits.Call[string]{N: 30})
		require.NoError(t, grant.Settle(t.Context(), -5))
		grant = hold(t, limiter, limits.Call[string]{N: 30})
		require.NoError(t, grant.Cancel(t.Context()))
		has(t, limiter, 40, "60 of 100 are used")
	}},
	{"settled with more", func(t *testing.T, s Subject) {
		limiter := s.New(t, window())
		grant := hold(t, limiter, limits.Call[string]{N: 10})
		require.NoError(t, grant.Settle(t.Context(), 25))
		grant = hold(t, limiter, limits.Call[string]{})
		require.NoError(t, grant.Settle(t.Context(), 5), "a call for nothing can be charged")
		has(t, limiter, 70, "25 and 5 of 100 are used")
	}},
	{"a refusal holds nothing", func(t *testing.T, s Subject) {
		limiter := s.New(t, window())
		require.True(t, ask(t, limiter, 90).Allowed)
		grant := hold(t, limiter, limits.Call[string]{N: 20})
		require.False(t, grant.Allowed)
		require.NoError(t, grant.Settle(t.Context(), 15))
		require.NoError(t, grant.Cancel(t.Context()))
		has(t, limiter, 10, "a refused call was settled")
	}},
	{"a call waits for its turn", func(t *testing.T, s Subject) {
		if !s.Turns {
			t.Skip("it promises no turns")
		}
		limiter := s.New(t, policy.Must(policy.Funnel(1, 1, 50*time.Millisecond)))
		require.True(t, ask(t, limiter, 1).Allowed)
		began := time.Now()
		grant := hold(t, limiter, limits.Call[string]{N: 1, Patience: time.Minute})
		assert.True(t, grant.Allowed)
		assert.Positive(t, grant.Wait)
		assert.GreaterOrEqual(t, time.Since(began), grant.Wait)
	}},
	{"patience is bounded", func(t *testing.T, s Subject) {
		limiter := s.New(t, window())
		require.True(t, ask(t, limiter, 100).Allowed)
		grant := hold(t, limiter, limits.Call[string]{N: 1, Patience: time.Millisecond})
		assert.False(t, grant.Allowed)
		assert.Greater(t, grant.RetryAfter, time.Millisecond)
	}},
	{"a turn is promised, and given back", func(t *testing.T, s Subject) {
		if !s.Turns {
			t.Skip("it promises no turns")
		}
		limiter := s.New(t, policy.Must(policy.Funnel(1, 1, time.Hour)))
		require.True(t, ask(t, limiter, 1).Allowed)
		for range 3 {
			grant := hold(t, limiter, limits.Call[string]{N: 1, Patience: 90 * time.Minute, NoWait: true})
			require.True(t, grant.Allowed, "the turn was not given back")
			assert.Positive(t, grant.Wait)
			assert.LessOrEqual(t, grant.Wait, time.Hour)
			require.NoError(t, grant.Cancel(t.Context()))
		}
		// A context that ends gives the units back, too.
		ctx, cancel := context.WithCancel(t.Context())
		defer time.AfterFunc(10*time.Millisecond, cancel).Stop()
		_, err := limiter.Hold(ctx, limits.Call[string]{Key: key, N: 1, Patience: 90 * time.Minute})
		assert.ErrorIs(t, err, context.Canceled)
		assert.True(t, hold(t, limiter, limits.Call[string]{N: 1, Patience: 90 * time.Minute, NoWait: true}).Allowed)
	}},
	{"a context that has ended", func(t *testing.T, s Subject) {
		limiter := s.New(t, window())
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		grant, err := limiter.Hold(ctx, limits.Call[string]{Key: key, N: 40, Patience: time.Minute})
		assert.ErrorIs(t, err, context.Canceled)
		assert.False(t, grant.Allowed)
		require.NoError(t, grant.Settle(t.Context(), 50))
		has(t, limiter, 100, "nothing was taken")
	}},
	{"a limit of another family", func(t *testing.T, s Subject) {
		limiter := s.New(t, window())
		grant := hold(t, limiter, limits.Call[string]{N: 1, Limit: policy.Must(policy.Funnel(10, 1, time.Second))})
		assert.False(t, grant.Allowed)
		assert.Equal(t, policy.Never, grant.RetryAfter)
		assert.Zero(t, grant.Limit)
		has(t, limiter, 100, "nothing was taken")
	}},
	{"several at once", func(t *testing.T, s Subject) {
		limiter, b := s.New(t, window()), s.New(t, window())
		claims := func(n, m int64) []limits.Claim {
			return []limits.Claim{
				limits.NewClaim(limiter, limits.Call[string]{Key: key, N: n}), limits.NewClaim(b, limits.Call[string]{Key: key, N: m}),
			}
		}
		out, err := limits.AskAll(t.Context(), 0, claims(60, 90)...)
		require.NoError(t, err)
		require.True(t, out.Allowed)
		assert.Equal(t, 1, out.Binding)
		refused, err := limits.AskAll(t.Context(), time.Millisecond, claims(30, 30)...)
		require.NoError(t, err)
		require.False(t, refused.Allowed)
		assert.Equal(t, 1, refused.Binding)
		assert.Positive(t, refused.RetryAfter)
		require.NoError(t, out.Settle(t.Context(), 10, 95))
		has(t, limiter, 90, "the refused call took from the first")
		has(t, b, 5, "95 are used of the second")
	}},
}
