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

func ask(t *testing.T, l limits.Limiter[string], n int64) limits.Answer {
	t.Helper()
	a, err := l.Admit(t.Context(), key, n)
	require.NoError(t, err)
	return a
}

func hold(t *testing.T, limiter limits.Limiter[string], call limits.Call[string]) limits.Grant {
	t.Helper()
	call.Key = key
	g, err := limiter.Hold(t.Context(), call)
	require.NoError(t, err)
	return g
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
		l := s.New(t, window())
		assert.True(t, ask(t, l, 70).Allowed)
		refused := ask(t, l, 31)
		assert.False(t, refused.Allowed)
		assert.Positive(t, refused.RetryAfter)
		assert.Less(t, refused.RetryAfter, policy.Never)
		assert.False(t, hold(t, l, limits.Call[string]{N: 31}).Allowed)
		has(t, l, 30, "refused calls took")
	}},
	{"no units, too few and too many", func(t *testing.T, s Subject) {
		l := s.New(t, window())
		for range 3 {
			assert.True(t, ask(t, l, 0).Allowed)
			g := hold(t, l, limits.Call[string]{})
			assert.True(t, g.Allowed)
			for _, n := range []int64{-1, 101, 1 << 62, -1 << 63} {
				assert.Equal(t, policy.Never, ask(t, l, n).RetryAfter, n)
				assert.Equal(t, policy.Never, hold(t, l, limits.Call[string]{N: n, Patience: time.Minute}).RetryAfter, n)
			}
		}
		has(t, l, 100, "looking took")
	}},
	{"an answer says how it was reached", func(t *testing.T, s Subject) {
		l := s.New(t, window())
		for _, n := range []int64{100, 1} {
			a := ask(t, l, n)
			assert.Equal(t, s.Source, a.Source(), n)
			assert.Equal(t, s.Promised, a.Exact(), n)
			assert.NoError(t, a.Err(), n)
			assert.Equal(t, a.Limit, l.LimitFor(key).Limit(), n)
		}
		assert.Equal(t, s.Source, hold(t, l, limits.Call[string]{N: 1}).Source())
	}},
	{"settled with fewer", func(t *testing.T, s Subject) {
		l := s.New(t, window())
		g := hold(t, l, limits.Call[string]{N: 60})
		require.True(t, g.Allowed)
		require.True(t, ask(t, l, 10).Allowed, "others take meanwhile")
		require.NoError(t, g.Settle(t.Context(), 20))
		require.NoError(t, g.Settle(t.Context(), 0), "a second call does nothing")
		require.NoError(t, g.Cancel(t.Context()))
		has(t, l, 70, "20 and 10 of 100 are used")
	}},
	{"settled with all, or none", func(t *testing.T, s Subject) {
		l := s.New(t, window())
		g := hold(t, l, limits.Call[string]{N: 60})
		require.NoError(t, g.Settle(t.Context(), 60))
		g = hold(t, l, limits.Call[string]{N: 30})
		require.NoError(t, g.Settle(t.Context(), -5))
		g = hold(t, l, limits.Call[string]{N: 30})
		require.NoError(t, g.Cancel(t.Context()))
		has(t, l, 40, "60 of 100 are used")
	}},
	{"settled with more", func(t *testing.T, s Subject) {
		l := s.New(t, window())
		g := hold(t, l, limits.Call[string]{N: 10})
		require.NoError(t, g.Settle(t.Context(), 25))
		g = hold(t, l, limits.Call[string]{})
		require.NoError(t, g.Settle(t.Context(), 5), "a call for nothing can be charged")
		has(t, l, 70, "25 and 5 of 100 are used")
	}},
	{"a refusal holds nothing", func(t *testing.T, s Subject) {
		l := s.New(t, window())
		require.True(t, ask(t, l, 90).Allowed)
		g := hold(t, l, limits.Call[string]{N: 20})
		require.False(t, g.Allowed)
		require.NoError(t, g.Settle(t.Context(), 15))
		require.NoError(t, g.Cancel(t.Context()))
		has(t, l, 10, "a refused call was settled")
	}},
	{"a call waits for its turn", func(t *testing.T, s Subject) {
		if !s.Turns {
			t.Skip("it promises no turns")
		}
		l := s.New(t, policy.Must(policy.Funnel(1, 1, 50*time.Millisecond)))
		require.True(t, ask(t, l, 1).Allowed)
		began := time.Now()
		g := hold(t, l, limits.Call[string]{N: 1, Patience: time.Minute})
		assert.True(t, g.Allowed)
		assert.Positive(t, g.Wait)
		assert.GreaterOrEqual(t, time.Since(began), g.Wait)
	}},
	{"patience is bounded", func(t *testing.T, s Subject) {
		l := s.New(t, window())
		require.True(t, ask(t, l, 100).Allowed)
		g := hold(t, l, limits.Call[string]{N: 1, Patience: time.Millisecond})
		assert.False(t, g.Allowed)
		assert.Greater(t, g.RetryAfter, time.Millisecond)
	}},
	{"a turn is promised, and given back", func(t *testing.T, s Subject) {
		if !s.Turns {
			t.Skip("it promises no turns")
		}
		l := s.New(t, policy.Must(policy.Funnel(1, 1, time.Hour)))
		require.True(t, ask(t, l, 1).Allowed)
		for range 3 {
			g := hold(t, l, limits.Call[string]{N: 1, Patience: 90 * time.Minute, NoWait: true})
			require.True(t, g.Allowed, "the turn was not given back")
			assert.Positive(t, g.Wait)
			assert.LessOrEqual(t, g.Wait, time.Hour)
			require.NoError(t, g.Cancel(t.Context()))
		}
		// A context that ends gives the units back, too.
		ctx, cancel := context.WithCancel(t.Context())
		defer time.AfterFunc(10*time.Millisecond, cancel).Stop()
		_, err := l.Hold(ctx, limits.Call[string]{Key: key, N: 1, Patience: 90 * time.Minute})
		assert.ErrorIs(t, err, context.Canceled)
		assert.True(t, hold(t, l, limits.Call[string]{N: 1, Patience: 90 * time.Minute, NoWait: true}).Allowed)
	}},
	{"a context that has ended", func(t *testing.T, s Subject) {
		l := s.New(t, window())
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		g, err := l.Hold(ctx, limits.Call[string]{Key: key, N: 40, Patience: time.Minute})
		assert.ErrorIs(t, err, context.Canceled)
		assert.False(t, g.Allowed)
		require.NoError(t, g.Settle(t.Context(), 50))
		has(t, l, 100, "nothing was taken")
	}},
	{"a limit of another family", func(t *testing.T, s Subject) {
		l := s.New(t, window())
		g := hold(t, l, limits.Call[string]{N: 1, Limit: policy.Must(policy.Funnel(10, 1, time.Second))})
		assert.False(t, g.Allowed)
		assert.Equal(t, policy.Never, g.RetryAfter)
		assert.Zero(t, g.Limit)
		has(t, l, 100, "nothing was taken")
	}},
	{"several at once", func(t *testing.T, s Subject) {
		a, b := s.New(t, window()), s.New(t, window())
		claims := func(n, m int64) []limits.Claim {
			return []limits.Claim{
				limits.NewClaim(a, limits.Call[string]{Key: key, N: n}), limits.NewClaim(b, limits.Call[string]{Key: key, N: m}),
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
		has(t, a, 90, "the refused call took from the first")
		has(t, b, 5, "95 are used of the second")
	}},
}
