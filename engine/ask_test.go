package engine

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/cell"
	"github.com/ral-limiter/ral/internal/testkit/limitstest"
	"github.com/ral-limiter/ral/limits"
	"github.com/ral-limiter/ral/policy"
)

// Promise: Engines and tiers keep `limits.Limiter`'s contract.
func TestEngineKeepsTheLimiterContract(t *testing.T) {
	subjects := map[string]limitstest.Subject{
		"engine": {Turns: true, New: func(t *testing.T, p policy.Policy) limits.Limiter[string] {
			return open[string](t, Config{Policy: p})
		}},
		"chosen": {Turns: true, New: func(t *testing.T, p policy.Policy) limits.Limiter[string] {
			return openFor(t, Config{Policy: p}, func(string) policy.Policy { return p })
		}},
		"tiers": {New: func(t *testing.T, p policy.Policy) limits.Limiter[string] {
			return openTiered[string](t, Config{Policy: policy.Must(policy.FixedWindow(1000, 48*time.Hour))}, p)
		}},
	}
	for name, s := range subjects {
		s.Source, s.Promised = limits.SourceProcess, true
		for _, c := range limitstest.Cases {
			t.Run(name+"/"+c.Name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { c.Run(t, s) })
			})
		}
	}
}

// A limit that comes with the call decides in and out of line, and gives units back in its own
// terms.
func TestHoldUnderAnotherLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, plan := open[string](t, Config{Policy: funnel(10, 10, time.Minute)}), funnel(100, 100, time.Minute)
		call := limits.Call[string]{Key: "key", N: 100, Limit: plan}
		g, err := e.Hold(t.Context(), call)
		require.NoError(t, err)
		require.True(t, g.Allowed)
		assert.Equal(t, int64(100), g.Limit)
		require.NoError(t, g.Settle(t.Context(), 40))
		call.N = 61
		refused, err := e.Hold(t.Context(), call)
		require.NoError(t, err)
		require.False(t, refused.Allowed, "a call for more than the 60 units left must be refused")
		call.Patience = time.Minute
		waited, err := e.Hold(t.Context(), call)
		require.NoError(t, err)
		require.True(t, waited.Allowed)
		assert.Equal(t, 600*time.Millisecond, waited.Wait, "the wait must be for one unit of 100 a minute")
		assert.Equal(t, int64(100), waited.Limit)
	})
}

func TestHoldGivesBackAfterPanic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, asked, panicAt := funnel(1, 1, time.Second), 0, 0
		e, err := New(Config{Policy: p, uncounted: true}, PolicyFor(func(string) policy.Policy {
			if asked++; asked == panicAt {
				panic("plans are not loaded")
			}
			return p
		}))
		require.NoError(t, err)
		defer e.Close()
		call := limits.Call[string]{Key: "key", N: 1, Patience: time.Minute}
		for panicAt = 1; ; panicAt++ {
			e.Reset("key")
			asked = -10
			_, basis := e.cell.TryTake("key", 1, false, new(policy.Decision), new(cell.Held[string]))
			require.Equal(t, cell.Basis{}, basis)
			began := time.Now()
			asked = 0
			panicked := func() (panicked bool) {
				defer func() { panicked = recover() != nil }()
				_, _ = e.Hold(context.Background(), call)
				return false
			}()
			asked = 1 << 20
			if !panicked {
				break
			}
			// The first unit has drained.
			time.Sleep(time.Until(began.Add(time.Second)))
			assert.True(t, e.Peek("key", 0).Remaining == 1, "the call that panicked at %d took", panicAt)
		}
		assert.Greater(t, panicAt, 3, "PolicyFor must be asked again after the wait")
	})
}

func TestAskUnderChosenQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		queue := policy.Must(policy.Queue(5, 1, time.Second))
		e := openFor(t, Config{Policy: queue}, func(string) policy.Policy { return queue })
		require.True(t, e.Choke("key"))
		for range 3 {
			ctx, cancel := context.WithCancel(t.Context())
			time.AfterFunc(time.Millisecond, cancel)
			a, err := e.Admit(ctx, "key", 1)
			assert.ErrorIs(t, err, ErrCancelled)
			assert.False(t, a.Allowed)
			assert.Equal(t, time.Millisecond, a.Wait)
		}
		a, err := e.Admit(t.Context(), "key", 1)
		require.NoError(t, err)
		assert.True(t, a.Allowed)
		assert.Equal(t, 997*time.Millisecond, a.Wait, "the next turn must be free")
	})
}
