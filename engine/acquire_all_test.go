package engine

import (
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/policy"
)

// Promise: `AcquireAll` waits in each key's line and takes all or nothing.
func TestAcquireAllTakesAllOrNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		config := Config{MaxWaiting: 3}
		config.Policy = funnel(1, 1, time.Second)
		fast := open[string](t, config)
		config.Policy = funnel(100, 1, time.Second)
		wide := open[int](t, config)
		began := time.Now()
		type end struct {
			err error
			at  time.Duration
		}
		var ends [6]end
		var line sync.WaitGroup
		for i := range ends {
			line.Go(func() {
				out, err := AcquireAll(background, 2500*time.Millisecond, wide.Claim(1, 1), fast.Claim("key", 1))
				ends[i] = end{err, time.Since(began)}
				assert.Equal(t, time.Since(began), out.Waited)
				assert.Equal(t, err == nil, out.Allowed)
				assert.Len(t, out.Decisions, 2)
				if err != nil {
					assert.Equal(t, 1, out.Binding)
					assert.Positive(t, out.RetryAfter)
					assert.True(t, out.Decisions[0].Allowed)
				}
			})
			synctest.Wait()
		}
		line.Wait()
		for i, want := range []time.Duration{0, time.Second, 2 * time.Second} {
			assert.Equal(t, end{nil, want}, ends[i])
		}
		for _, late := range ends[3:] {
			assert.ErrorIs(t, late.err, ErrDeadline)
			assert.Zero(t, late.at, "the late call must be refused at once")
		}
		assert.Equal(t, time.Second, wide.Peek(1, 0).ResetAfter, "three units must be taken, of which two have drained")

		// These wait for nothing.
		for _, c := range []struct {
			claims  []Claim
			allowed bool
		}{{nil, true}, {units(0, wide.Claim(1, 1), fast.Claim("key", 1)), true}, {units(-1, wide.Claim(1, 1)), false}, {units(101, wide.Claim(1, 1)), false}} {
			out, err := AcquireAll(background, time.Hour, c.claims...)
			assert.Equal(t, c.allowed, out.Allowed)
			assert.Equal(t, !c.allowed, errors.Is(err, ErrNever))
		}
		assert.Equal(t, []uint64{3, 3}, []uint64{fast.Stats().Admitted, fast.Stats().Refused})
		assert.Equal(t, []uint64{3, 2}, []uint64{wide.Stats().Admitted, wide.Stats().Refused})
		noLines(t, fast)
		noLines(t, wide)
	})
}

// A turn that comes while another limit has no room is given back, and the wait goes on there. If
// that takes too long nothing is taken.
func TestAcquireAllGoesFromLineToLine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := open[string](t, Config{Policy: funnel(10, 1, time.Second)}), open[string](t, Config{Policy: funnel(10, 1, time.Second)})
		claims := []Claim{a.Claim("key", 1), b.Claim("key", 1)}
		require.True(t, TakeAll(units(10, claims...)...).Allowed)
		began := time.Now()
		time.AfterFunc(4*time.Second, func() { b.Refund("key", -2) })
		out, err := AcquireAll(background, time.Minute, units(5, claims...)...)
		require.NoError(t, err)
		assert.True(t, out.Allowed)
		assert.Equal(t, 7*time.Second, time.Since(began))
		assert.Equal(t, 7*time.Second, out.Waited, "the call must wait in both lines")
		assert.Equal(t, []policy.Decision{a.Peek("key", 0), b.Peek("key", 0)}, out.Decisions, "the decisions must be those of now, not of the take")
		assert.Equal(t, 8*time.Second, a.Peek("key", 0).ResetAfter, "the call must wait for both keys, and take once")
		assert.Equal(t, 10*time.Second, b.Peek("key", 0).ResetAfter)

		// Too long for one: it does not wait for the other.
		b.Refund("key", -10)
		began = time.Now()
		out, err = AcquireAll(background, 10*time.Second, units(5, claims...)...)
		assert.ErrorIs(t, err, ErrDeadline)
		assert.Equal(t, 1, out.Binding)
		assert.Equal(t, 15*time.Second, out.RetryAfter)
		assert.Zero(t, time.Since(began))
		assert.Equal(t, 8*time.Second, a.Peek("key", 0).ResetAfter)

		// It gives up in the second line, and has given back the units of the first.
		time.Sleep(time.Minute)
		require.True(t, TakeAll(units(10, claims...)...).Allowed)
		// The call waits for 12 s in all.
		time.AfterFunc(4*time.Second, func() { b.Refund("key", -7) })
		began = time.Now()
		_, err = AcquireAll(background, 10*time.Second, units(5, claims...)...)
		assert.ErrorIs(t, err, ErrDeadline)
		assert.Equal(t, 5*time.Second, time.Since(began))
		assert.Equal(t, 5*time.Second, a.Peek("key", 0).ResetAfter)
		noLines(t, a)
		noLines(t, b)
	})
}

// A later call stands behind those in line, even if there is room. It stands in no line if another
// limit has no room for longer than its patience.
func TestAcquireAllStandsInLine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := open[string](t, Config{Policy: funnel(10, 1, time.Second)}), open[string](t, Config{Policy: funnel(30, 1, time.Second)})
		claims := []Claim{a.Claim("key", 1), b.Claim("key", 1)}
		require.True(t, TakeAll(units(10, claims...)...).Allowed)
		began := time.Now()
		var line sync.WaitGroup
		wait := func(n int64, want time.Duration) {
			line.Go(func() {
				_, err := AcquireAll(background, time.Minute, units(n, claims...)...)
				assert.NoError(t, err)
				assert.Equal(t, want, time.Since(began), "%d", n)
			})
			synctest.Wait()
		}
		wait(5, 5*time.Second)
		wait(10, 6*time.Second)
		a.Refund("key", 9)
		// There are four units, but other calls came before.
		wait(1, 7*time.Second)
		b.Refund("key", -100)
		out, err := AcquireAll(background, 50*time.Second, units(1, claims...)...)
		assert.ErrorIs(t, err, ErrDeadline)
		assert.Equal(t, 1, out.Binding)
		assert.Zero(t, time.Since(began))
		b.Refund("key", 100)
		line.Wait()
	})
}

func TestAcquireAllStandsWhereItIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		everybody := open[string](t, Config{Policy: funnel(1, 10, time.Second)})
		own := open[string](t, Config{Policy: funnel(1, 1, time.Hour)})
		require.True(t, everybody.Choke("all"))
		require.True(t, own.Choke("greedy"))
		for range 20 {
			go func() {
				_, err := AcquireAll(t.Context(), 2*time.Hour, everybody.Claim("all", 1), own.Claim("greedy", 1))
				assert.Error(t, err, "the call that waits must end before the test")
			}()
		}
		synctest.Wait()
		began := time.Now()
		out, err := AcquireAll(t.Context(), time.Second, everybody.Claim("all", 1), own.Claim("modest", 1))
		require.NoError(t, err)
		assert.True(t, out.Allowed)
		assert.Equal(t, 100*time.Millisecond, time.Since(began))
		require.NoError(t, own.Close())
		require.NoError(t, everybody.Close())
		synctest.Wait()
	})
}

// No call waits for a closed engine, whatever WhenUnavailable.
func TestAcquireAllOfAClosedEngine(t *testing.T) {
	for _, when := range []WhenUnavailable{Admit, Refuse} {
		synctest.Test(t, func(t *testing.T) {
			config := Config{Policy: funnel(1, 1, time.Second), WhenUnavailable: when}
			good, closed, closes := open[string](t, config), open[string](t, config), open[string](t, config)
			require.NoError(t, closed.Close())
			began := time.Now()
			out, err := AcquireAll(background, time.Hour, good.Claim("key", 1), closed.Claim("key", 1))
			assert.ErrorIs(t, err, ErrClosed)
			assert.False(t, out.Allowed)
			assert.Equal(t, 1, out.Binding)
			assert.Equal(t, defaultOpenTimeout, out.RetryAfter)
			assert.Zero(t, good.Peek("key", 0).ResetAfter)
			require.True(t, closes.Choke("key"))
			time.AfterFunc(100*time.Millisecond, func() { assert.NoError(t, closes.Close()) })
			var single Reservation[string]
			var alone sync.WaitGroup
			alone.Go(func() { single, err = closes.Acquire(background, "key", 1, time.Hour) })
			synctest.Wait()
			out, all := AcquireAll(background, time.Hour, closes.Claim("key", 1), good.Claim("other", 1))
			alone.Wait()
			assert.ErrorIs(t, err, ErrClosed)
			assert.ErrorIs(t, all, ErrClosed)
			assert.Equal(t, 100*time.Millisecond, time.Since(began))
			assert.Equal(t, 100*time.Millisecond, single.Waited)
			assert.Equal(t, 100*time.Millisecond, out.Waited)
			assert.False(t, out.Provenance(0).Exact(), "RetryAfter must be a guess")
			assert.True(t, out.Provenance(1).Exact())
			assert.Zero(t, good.Peek("other", 0).ResetAfter)
		})
	}
}

// PolicyFor panics when AcquireAll looks at the key that it has waited for.
func TestAcquireAllThatPanicsHoldsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		var healed atomic.Bool
		e := openFor(t, Config{Policy: funnel(1, 1, time.Second)}, func(string) policy.Policy {
			if !healed.Load() && time.Since(began) >= time.Second {
				panic("choose")
			}
			return nil
		})
		other := open[string](t, Config{Policy: funnel(10, 1, time.Hour)})
		require.True(t, e.Choke("key"))
		assert.PanicsWithValue(t, "choose", func() {
			_, _ = AcquireAll(background, time.Minute, other.Claim("key", 4), e.Claim("key", 1))
		})
		healed.Store(true)
		assert.EqualValues(t, time.Second, time.Since(began), "the call must wait for its turn")
		assert.EqualValues(t, 1, e.Peek("key", 0).Remaining)
		assert.EqualValues(t, 10, other.Peek("key", 0).Remaining)
	})
}
