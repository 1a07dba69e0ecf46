package single

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/internal/testkit/limitstest"
	"github.com/ral-limiter/ral/internal/testkit/must"
	"github.com/ral-limiter/ral/limits"
	"github.com/ral-limiter/ral/policy"
)

// Promise: A `Limiter` keeps `limits.Limiter`'s contract.
func TestSingleKeepsTheLimiterContract(t *testing.T) {
	s := limitstest.Subject{
		Source: limits.SourceProcess, Promised: true, Turns: true,
		New: func(t *testing.T, p policy.Policy) limits.Limiter[string] {
			return limits.ForAnyKey[string](MustNew(p, nil))
		},
	}
	for _, c := range limitstest.Cases {
		t.Run(c.Name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { c.Run(t, s) })
		})
	}
}

// A queue delays calls by itself, and a call that leaves it takes nothing.
func TestHoldInAQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := MustNew(policy.Must(policy.Queue(2, 1, time.Second)), nil)
		for _, wait := range []time.Duration{0, time.Second} {
			a := must.Get(l.Admit(t.Context(), struct{}{}, 1))
			assert.True(t, a.Allowed)
			assert.Equal(t, wait, a.Wait.Round(time.Millisecond))
		}
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		defer cancel()
		g, err := l.Hold(ctx, limits.Call[struct{}]{N: 1})
		require.ErrorIs(t, err, ErrCancelled)
		assert.False(t, g.Allowed)
		assert.Equal(t, 300*time.Millisecond, g.Wait)
		assert.Equal(t, 700*time.Millisecond, must.Get(l.Admit(t.Context(), struct{}{}, 1)).Wait.Round(time.Millisecond), "the call that left has no turn")
	})
	var none Limiter
	assert.Equal(t, policy.Never, must.Get(none.Admit(t.Context(), struct{}{}, 1)).RetryAfter)
	assert.Equal(t, policy.Never, none.Explain().RetryAfter)
}

func TestExplainCountsUseAndWaiters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, err := New(policy.Must(policy.Funnel(4, 1, time.Second)))
		require.NoError(t, err)
		l.Take(4)
		x := l.Explain()
		assert.Equal(t, []any{true, false, time.Second, int64(4), int64(4), 4, 0},
			[]any{x.Known, x.Allowed, x.RetryAfter, x.Used, x.Of, len(x.Returns), x.Waiting})
		var call sync.WaitGroup
		call.Go(func() { assert.NoError(t, l.Wait(context.Background(), 1)) })
		synctest.Wait()
		assert.Equal(t, 1, l.Explain().Waiting)
		assert.Equal(t, 2*time.Second, l.Explain().RetryAfter, "behind the call that waits")
		call.Wait()

		require.NoError(t, l.SetPolicy(policy.Must(policy.Funnel(8, 1, time.Second))))
		assert.EqualValues(t, 8, l.Explain().Of)

		var none Limiter
		x = none.Explain()
		assert.Equal(t, []any{false, policy.Never}, []any{x.Allowed, x.RetryAfter})
		assert.Equal(t, "No limit. Every call is refused.", x.String())
	})
}
