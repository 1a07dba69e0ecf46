package fleet

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/fleet/internal/redistest"
	"github.com/ral-limiter/ral/internal/limitstest"
	"github.com/ral-limiter/ral/limits"
	"github.com/ral-limiter/ral/policy"
)

// What package limits promises holds for a fleet: exact and leased.
func TestLimiterContract(t *testing.T) {
	for name, s := range map[string]limitstest.Subject{
		"exact": {Source: SourceRedis, Promised: true, Turns: true, New: func(t *testing.T, p policy.Policy) limits.Limiter[string] {
			return open(t, at(shared.Addr(), p))
		}},
		"leased": {Source: SourceRedis, New: func(t *testing.T, p policy.Policy) limits.Limiter[string] {
			c := at(shared.Addr(), p)
			c.Mode = Leased
			return open(t, c) // a key with few calls is decided by Redis
		}},
	} {
		for _, c := range limitstest.Cases {
			t.Run(name+"/"+c.Name, func(t *testing.T) {
				t.Parallel()
				c.Run(t, s)
			})
		}
	}
}

// While Redis is away, an answer says by what the fallback decided, and promises nothing.
func TestAskDuringOutage(t *testing.T) {
	for outage, want := range map[Fallback]struct {
		source  limits.Source
		allowed bool
	}{
		FallbackShare: {SourceShare, true}, FallbackOpen: {SourceOpen, true}, FallbackClosed: {SourceClosed, false},
	} {
		r, err := redistest.Open(redistest.Options{})
		require.NoError(t, err)
		c := at(r.Addr(), funnel(10, 1, time.Hour))
		c.Outage, c.Servers = outage, 1
		l := open(t, c)
		_, err = l.Ask(t.Context(), "known", 1)
		require.NoError(t, err)
		require.NoError(t, r.Close())
		for range 5 {
			a, err := l.Ask(t.Context(), "known", 1)
			require.NoError(t, err)
			assert.Equal(t, want.source, a.Source())
			assert.Equal(t, want.allowed, a.Allowed)
			assert.False(t, a.Promised())
			assert.ErrorIs(t, a.Cause(), ErrOutage)
			g, err := l.Hold(t.Context(), limits.Call[string]{Key: "known", N: 1, Patience: time.Millisecond})
			require.NoError(t, err)
			assert.Equal(t, want.source, g.Source())
			assert.Equal(t, want.allowed, g.Allowed)
			_ = g.Cancel(t.Context())
		}
		a, err := l.Ask(t.Context(), "known", 11)
		require.NoError(t, err)
		assert.Equal(t, policy.Never, a.RetryAfter)
	}
}

// Without a share to go by, because servers were never counted, a refusal is that of an
// outage.
func TestAskWithoutShare(t *testing.T) {
	l := launch(t, at("127.0.0.1:1", funnel(10, 1, time.Hour)))
	a, err := l.Ask(t.Context(), "key", 1)
	require.NoError(t, err)
	assert.False(t, a.Allowed)
	assert.Equal(t, SourceClosed, a.Source())
	assert.ErrorIs(t, a.Cause(), ErrUncounted)
}

// A call in Leased mode waits for units, and is told what is no promise.
func TestHoldOnLease(t *testing.T) {
	c := at(shared.Addr(), funnel(40, 40, time.Second))
	c.Mode = Leased
	l := open(t, c)
	leased := false
	for range 200 {
		g, err := l.Hold(t.Context(), limits.Call[string]{Key: "key", N: 1, Patience: patience})
		require.NoError(t, err)
		require.True(t, g.Allowed)
		assert.False(t, g.Promised())
		leased = leased || g.Source() == SourceLease
	}
	assert.True(t, leased, "no call was answered from a lease")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := l.Hold(ctx, limits.Call[string]{Key: "key", N: 1, Patience: patience})
	assert.ErrorIs(t, err, context.Canceled)
}

// A closed limiter has no answer.
func TestAskOfClosedLimiter(t *testing.T) {
	l := open(t, at(shared.Addr(), funnel(10, 1, time.Hour)))
	require.NoError(t, l.Close())
	_, err := l.Ask(t.Context(), "key", 1)
	assert.ErrorIs(t, err, ErrClosed)
	_, err = l.Hold(t.Context(), limits.Call[string]{Key: "key", N: 1})
	assert.ErrorIs(t, err, ErrClosed)
}
