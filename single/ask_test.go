package single

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/internal/testkit/limitstest"
	"github.com/ral-limiter/ral/internal/testkit/race"
	"github.com/ral-limiter/ral/limits"
	"github.com/ral-limiter/ral/policy"
)

// Promise: A `Limiter` keeps `limits.Limiter`'s contract.
func TestLimiterContract(t *testing.T) {
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

func TestAskAllocatesNothing(t *testing.T) {
	if race.Enabled {
		t.Skip("the race detector allocates")
	}
	l := limits.ForAnyKey[string](MustNew(policy.Funnel(1<<30, 1<<20, time.Second)))
	assert.Zero(t, testing.AllocsPerRun(1000, func() {
		if a, err := l.Ask(t.Context(), "any", 1); err != nil || !a.Allowed {
			t.Fatal(a, err)
		}
		g, err := l.Hold(t.Context(), limits.Call[string]{N: 3})
		if err != nil || !g.Allowed || g.Settle(t.Context(), 1) != nil {
			t.Fatal(g, err)
		}
	}))
}

// Nothing is taken.
func TestHoldRefusesALimitOfTheCall(t *testing.T) {
	l := MustNew(policy.FixedWindow(10, time.Hour))
	g, err := l.Hold(t.Context(), limits.Call[struct{}]{N: 1, Limit: l.Limit()})
	require.NoError(t, err)
	assert.False(t, g.Allowed)
	assert.Equal(t, policy.Never, g.RetryAfter)
	assert.ErrorContains(t, g.Err(), "SetPolicy")
	assert.Equal(t, int64(10), l.Peek(0).Remaining)
}
