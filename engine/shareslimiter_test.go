package engine

import (
	"context"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/internal/core/shape"
	"github.com/ral-limiter/ral/internal/testkit/limitstest"
	"github.com/ral-limiter/ral/internal/testkit/testenv"
	"github.com/ral-limiter/ral/limits"
	"github.com/ral-limiter/ral/policy"
)

// A tenant that may not borrow has its guarantee as its limit. The windows of the cases are funnels that drain slowly.
//
// Promise: `Shares` keep `limits.Limiter`'s contract.
func TestSharesKeepTheContract(t *testing.T) {
	subject := limitstest.Subject{Source: limits.SourceProcess, Promised: true, Turns: true, New: func(t *testing.T, p policy.Policy) limits.Limiter[string] {
		guarantee := p
		if shaped, ok := p.(shape.Shaped); !ok || shaped.Shape().Kind != shape.Funnel {
			guarantee = funnel(p.Limit(), 1, 15*24*time.Hour)
		}
		return newShares(t, SharesConfig[string]{
			Total: funnel(p.Limit()+1, 1000, time.Second), Tenants: []string{"key"},
			Guarantee: func(string) policy.Policy { return guarantee },
			Ceiling:   func(string) policy.Policy { return policy.Must(policy.FixedWindow(1, time.Second)) }, // it bars loans
		})
	}}
	for _, c := range limitstest.Cases {
		t.Run(c.Name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { c.Run(t, subject) })
		})
	}
}

func TestHoldTellsNoFigureOfTheGroup(t *testing.T) {
	config := waitingTenants(1, 1, 1)
	config.Config.MaxWaiting = 1
	config.Ceiling = func(tenant int) policy.Policy {
		if tenant == 2 {
			return funnel(20, 1, time.Second)
		}
		return nil
	}
	inBubble(t, config, func(t *testing.T, s *Shares[int]) {
		call := limits.Call[int]{N: 15}
		g, err := s.Hold(t.Context(), call)
		require.NoError(t, err)
		assert.Equal(t, policy.Decision{Allowed: true, Limit: 20}, g.Decision, "no figure of the group")
		var all sync.WaitGroup
		all.Go(func() {
			g, err := s.Hold(t.Context(), limits.Call[int]{Key: 1, N: 10, Patience: time.Minute})
			assert.NoError(t, err)
			assert.True(t, g.Allowed)
			assert.Equal(t, 10*time.Millisecond, g.Wait)
			assert.Equal(t, limits.SourceProcess, g.Source())
		})
		synctest.Wait()
		_, ok := s.Look(limits.Call[int]{Key: 1, N: 1})
		assert.False(t, ok, "calls of the tenant are in line")
		a, ok := s.Look(limits.Call[int]{Key: 1, N: 1, NoWait: true})
		assert.True(t, ok)
		assert.False(t, a.Allowed)
		full, err := s.Hold(t.Context(), limits.Call[int]{Key: 1, N: 10, Patience: time.Minute})
		require.NoError(t, err)
		require.ErrorIs(t, full.Err(), ErrCrowded)
		time.Sleep(10 * time.Millisecond)
		require.NoError(t, g.Settle(t.Context(), 11), "4 of 15 come back, of which 1 has drained") //nolint:testifylint // each step depends on the one before
		all.Wait()

		// An excess is charged to the tenant and to the group.
		time.Sleep(time.Second)
		g, err = s.Hold(t.Context(), limits.Call[int]{Key: 2, N: 5})
		require.NoError(t, err)
		require.NoError(t, g.Settle(t.Context(), 18))
		assert.EqualValues(t, 18, s.Stats().Used)
		assert.Equal(t, time.Second, s.Peek(2, 3).RetryAfter)
		assert.Equal(t, policy.Decision{Limit: 20, RetryAfter: policy.Never}, mustHold(t, s, limits.Call[int]{Key: 2, N: 21}).Decision)
		g = mustHold(t, s, limits.Call[int]{Key: 1, N: 1})
		require.NoError(t, g.Release(t.Context()))
		assert.EqualValues(t, 19, s.Stats().Used)
		assert.Equal(t, "funnel 20, 100/s", s.LimitFor(1).String())

		require.NoError(t, s.Close())
		_, err = s.Admit(t.Context(), 0, 1)
		require.ErrorIs(t, err, ErrClosed)
		for _, patience := range []time.Duration{0, time.Hour} {
			_, err = s.Hold(t.Context(), limits.Call[int]{N: 1, Patience: patience})
			require.ErrorIs(t, err, ErrClosed)
		}
		_, ok = s.Look(limits.Call[int]{N: 1})
		assert.False(t, ok)
	})
}

func mustHold(t *testing.T, s *Shares[int], call limits.Call[int]) limits.Grant {
	t.Helper()
	g, err := s.Hold(t.Context(), call)
	require.NoError(t, err)
	return g
}

// takeBoth takes n units of shares, and m units of an engine.
type takeBoth func(t *testing.T, patience time.Duration, s *Shares[string], e *Engine[string], n, m int64) (allowed bool, cancel func())

// Shares and an engine are taken all or nothing, also with patience. A refused call, and a call that is settled
// with 0, leaves each word as if the call had never been.
//
// Promise: `engine.TakeAll`, `engine.AcquireAll` and `limits.AskAll` take shares and other limits all or nothing.
func TestSharesAndOtherLimitsAllOrNothing(t *testing.T) {
	for name, take := range map[string]takeBoth{
		"AskAll": func(t *testing.T, patience time.Duration, s *Shares[string], e *Engine[string], n, m int64) (allowed bool, cancel func()) {
			out, err := limits.AskAll(t.Context(), patience,
				limits.NewClaim(s, limits.Call[string]{Key: "a", N: n}), limits.NewClaim(e, limits.Call[string]{Key: "k", N: m}))
			require.NoError(t, err)
			return out.Allowed, func() { require.NoError(t, out.Cancel(t.Context())) }
		},
		"TakeAll and AcquireAll": func(t *testing.T, patience time.Duration, s *Shares[string], e *Engine[string], n, m int64) (allowed bool, cancel func()) {
			out := Outcome{}
			if patience == 0 {
				out = TakeAll(e.Claim("k", m), s.Claim("a", n))
			} else {
				var err error
				out, err = AcquireAll(t.Context(), patience, s.Claim("a", n), e.Claim("k", m))
				require.Equal(t, out.Allowed, err == nil)
			}
			return out.Allowed, out.Cancel
		},
	} {
		t.Run(name, func(t *testing.T) { testAllOrNothing(t, take) })
	}
}

func testAllOrNothing(t *testing.T, take takeBoth) {
	inBubble(t, SharesConfig[string]{
		Total: funnel(40, 10, time.Second), Tenants: []string{"a"},
		Guarantee: func(string) policy.Policy { return funnel(10, 2, time.Second) },
		Ceiling:   func(string) policy.Policy { return funnel(25, 5, time.Second) },
	}, func(t *testing.T, s *Shares[string]) {
		e := open[string](t, Config{Policy: funnel(12, 4, time.Second), PackageTime: true})
		words := func() [4]uint64 {
			var all [4]uint64
			all[0] = s.group.word.Load()
			for i, a := range []*account{s.own.load("a"), s.ceilings.load("a")} {
				if a != nil {
					all[i+1] = a.word.Load()
				}
			}
			all[3] = uint64(e.Peek("k", 0).ResetAfter)
			now := uint64(s.now()) * ticksPerNano
			for i := range 3 {
				all[i] = max(all[i], now) // drained
			}
			return all
		}
		dice := rand.New(rand.NewPCG(testenv.Seed(t), 6))
		refused, admitted, waited := 0, 0, 0
		for range 3000 {
			time.Sleep(time.Duration(dice.Int64N(int64Seconds)))
			if dice.IntN(20) == 0 {
				time.Sleep(10 * time.Second)
			}
			before := words()
			patience := time.Duration(0)
			if dice.IntN(3) == 0 {
				patience = time.Duration(dice.Int64N(3 * int64Seconds))
			}
			began := time.Now()
			allowed, cancel := take(t, patience, s, e, 1+dice.Int64N(12), 1+dice.Int64N(12))
			now := time.Since(began)
			switch {
			case allowed:
				if admitted++; now > 0 {
					waited++
					continue
				}
				require.NotEqual(t, before, words())
				if dice.IntN(2) == 0 {
					cancel()
					require.Equal(t, before, words())
				}
			case now == 0:
				refused++
				require.Equal(t, before, words())
			}
		}
		for _, n := range []int{refused, admitted, waited} {
			assert.Greater(t, n, 100)
		}
	})
}

// A wait that its context ends leaves nothing taken.
func TestAskAllOfSharesEnds(t *testing.T) {
	inBubble(t, waitingTenants(1), func(t *testing.T, s *Shares[int]) {
		e := open[string](t, Config{Policy: funnel(12, 4, time.Second), PackageTime: true})
		require.True(t, s.Take(0, 20).Borrowed)
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		out, err := limits.AskAll(ctx, time.Minute,
			limits.NewClaim(e, limits.Call[string]{Key: "k", N: 5}), limits.NewClaim(s, limits.Call[int]{N: 20}))
		require.NoError(t, err)
		assert.False(t, out.Allowed)
		assert.EqualValues(t, 12, e.Peek("k", 0).Remaining)
	})
}
