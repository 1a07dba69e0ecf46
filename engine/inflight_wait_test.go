package engine_test

import (
	"context"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ral-limiter/ral/engine"
	"github.com/ral-limiter/ral/limits"
	"github.com/ral-limiter/ral/policy"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// waitsInFlight runs a test in a bubble, with an engine of so many units in use for a minute at most.
func waitsInFlight(t *testing.T, n int64, config engine.Config, test func(t *testing.T, e *engine.Engine[string])) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		config.Policy = inFlight(n, time.Minute)
		e, err := engine.New[string](config)
		require.NoError(t, err)
		defer func() { assert.NoError(t, e.Close()) }()
		test(t, e)
	})
}

// acquired is a call of Acquire on its own goroutine.
type acquired struct {
	engine.Reservation[string]
	err   error
	after time.Duration
	done  chan struct{}
}

func (a *acquired) isOver() bool {
	synctest.Wait()
	select {
	case <-a.done:
		return true
	default:
		return false
	}
}

// acquire has a call wait for n units of "a", asleep when it returns.
func acquire(ctx context.Context, e *engine.Engine[string], n int64, patience time.Duration) *acquired {
	a, began := &acquired{done: make(chan struct{})}, time.Now()
	go func() {
		defer close(a.done)
		a.Reservation, a.err = e.Acquire(ctx, "a", n, patience)
		a.after = time.Since(began)
	}()
	synctest.Wait()
	return a
}

// Promise: Calls wait for units in use in the order of arrival, and a `Release` lets the first one go on at once.
func TestReleaseWakesTheFirstCallInLine(t *testing.T) {
	waitsInFlight(t, 2, engine.Config{}, func(t *testing.T, e *engine.Engine[string]) {
		first, second := e.Reserve("a", 1, 0), e.Reserve("a", 1, time.Hour)
		require.True(t, first.Allowed && second.Allowed)
		third := acquire(t.Context(), e, 2, time.Second)
		fourth := acquire(t.Context(), e, 1, time.Second)
		assert.Equal(t, 2, e.Stats().Waiting)
		assert.Equal(t, 2, e.Explain("a").Waiting)
		time.Sleep(time.Millisecond)
		first.Release()
		assert.False(t, third.isOver(), "a call for two units must wait while one is free")
		assert.False(t, fourth.isOver(), "a call must not overtake the call before it")
		second.Release()
		require.True(t, third.isOver())
		assert.True(t, third.Allowed)
		assert.Equal(t, time.Millisecond, third.after)
		assert.Equal(t, time.Millisecond, third.Waited)
		assert.False(t, fourth.isOver())
		third.Release()
		require.True(t, fourth.isOver())
		assert.True(t, fourth.Allowed)
		fourth.Release()
		assert.EqualValues(t, 2, e.Peek("a", 0).Remaining)
	})
}

// Promise: A waiting call goes on when units end by themselves, to the nanosecond.
func TestUnitsThatEndWakeTheFirstCallInLine(t *testing.T) {
	waitsInFlight(t, 2, engine.Config{}, func(t *testing.T, e *engine.Engine[string]) {
		assert.True(t, e.Choke("a"))
		time.Sleep(20 * time.Second)
		assert.True(t, e.Choke("a"))
		room := e.Peek("a", 1).RetryAfter
		waiting := acquire(t.Context(), e, 1, policy.Never)
		time.Sleep(room - 1)
		assert.False(t, waiting.isOver())
		time.Sleep(1)
		require.True(t, waiting.isOver())
		assert.Equal(t, room, waiting.after)
	})
}

// Promise: While a call waits for units in use, no call that does not wait takes any.
func TestNoCallPassesTheLine(t *testing.T) {
	waitsInFlight(t, 3, engine.Config{}, func(t *testing.T, e *engine.Engine[string]) {
		rates, err := engine.New[string](engine.Config{Policy: policy.Must(policy.FixedWindow(1000, time.Hour))})
		require.NoError(t, err)
		defer func() { assert.NoError(t, rates.Close()) }()
		// The key is known, and TakeAll decides known keys on a path of its own.
		require.True(t, rates.Choke("a"))
		held := e.Reserve("a", 1, 0)
		waiting := acquire(t.Context(), e, 3, time.Minute)
		for verb, passes := range map[string]func() bool{
			"Choke":    func() bool { return e.Choke("a") },
			"Take":     func() bool { return e.Take("a", 1).Allowed },
			"TakeWith": func() bool { return e.TakeWith(inFlight(4, time.Minute), "a", 1).Allowed },
			"TakeUpTo": func() bool { taken, _ := e.TakeUpTo("a", 2); return taken > 0 },
			"Reserve":  func() bool { r := e.Reserve("a", 1, time.Hour); return r.Allowed },
			"TakeAll":  func() bool { return engine.TakeAll(rates.Claim("a", 1), e.Claim("a", 1)).Allowed },
			"Admit": func() bool {
				a, err := e.Admit(t.Context(), "a", 1)
				assert.NoError(t, err)
				return a.Allowed
			},
			"Hold": func() bool {
				g, err := e.Hold(t.Context(), limits.Call[string]{Key: "a", N: 1, NoWait: true})
				assert.NoError(t, err)
				return g.Allowed
			},
			"Acquire": func() bool {
				_, err := e.Acquire(t.Context(), "a", 1, 0)
				assert.ErrorIs(t, err, engine.ErrDeadline)
				return err == nil
			},
		} {
			assert.False(t, passes(), "%s took a unit that a call waits for", verb)
		}
		assert.True(t, e.Choke("b"), "a call on another key must pass")
		assert.Positive(t, e.Take("a", 1).RetryAfter)
		held.Release()
		require.True(t, waiting.isOver())
		assert.True(t, waiting.Allowed)
		waiting.Release()
		assert.True(t, e.Choke("a"))
		assert.EqualValues(t, 999, rates.Peek("a", 0).Remaining)
	})
}

// Promise: A call that waits for several units is served, however many calls take and release one.
func TestCallForSeveralUnitsDoesNotStarve(t *testing.T) {
	waitsInFlight(t, 4, engine.Config{}, func(t *testing.T, e *engine.Engine[string]) {
		ctx, stop := context.WithCancel(t.Context())
		var busy sync.WaitGroup
		for i := range 16 {
			busy.Go(func() {
				dice := rand.New(rand.NewPCG(7, uint64(i)))
				for ctx.Err() == nil {
					if r := e.Reserve("a", 1, 0); r.Allowed {
						time.Sleep(time.Duration(1 + dice.Int64N(int64(10*time.Millisecond))))
						r.Release()
					}
					time.Sleep(time.Duration(1 + dice.Int64N(int64(time.Millisecond))))
				}
			})
		}
		for range 20 {
			r, err := e.Acquire(t.Context(), "a", 4, 20*time.Millisecond)
			require.NoError(t, err)
			assert.Zero(t, e.Peek("a", 0).Remaining)
			r.Release()
			time.Sleep(10 * time.Millisecond)
		}
		stop()
		busy.Wait()
		assert.EqualValues(t, 4, e.Peek("a", 0).Remaining)
	})
}

// Promise: No forecast refuses a call that waits for units in use. `MaxWaiting` does, and its patience and context end the wait.
func TestWhatEndsAWaitForUnitsInUse(t *testing.T) {
	waitsInFlight(t, 1, engine.Config{MaxWaiting: 3}, func(t *testing.T, e *engine.Engine[string]) {
		held := e.Reserve("a", 1, 0)
		_, err := e.Acquire(t.Context(), "a", 2, time.Hour)
		assert.ErrorIs(t, err, engine.ErrNever)
		ctx, leave := context.WithCancel(t.Context())
		leaves := acquire(ctx, e, 1, time.Hour)
		patient := acquire(t.Context(), e, 1, time.Second)
		within, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		bounded := acquire(within, e, 1, time.Hour)
		_, err = e.Acquire(t.Context(), "a", 1, time.Hour)
		assert.ErrorIs(t, err, engine.ErrCrowded)
		leave()
		require.True(t, leaves.isOver())
		assert.ErrorIs(t, leaves.err, engine.ErrCancelled)
		time.Sleep(time.Second)
		require.True(t, patient.isOver())
		assert.ErrorIs(t, patient.err, engine.ErrDeadline)
		time.Sleep(time.Second)
		require.True(t, bounded.isOver())
		assert.ErrorIs(t, bounded.err, engine.ErrCancelled)
		assert.Zero(t, e.Stats().Waiting)
		last := acquire(t.Context(), e, 1, time.Hour)
		held.Release()
		require.True(t, last.isOver())
		assert.NoError(t, last.err)
	})
}

// Whatever makes room lets the line go on.
func TestRoomWakesTheLine(t *testing.T) {
	for name, makesRoom := range map[string]func(t *testing.T, e *engine.Engine[string], r *engine.Reservation[string]){
		"Cancel": func(_ *testing.T, _ *engine.Engine[string], r *engine.Reservation[string]) { r.Cancel() },
		"Keep":   func(_ *testing.T, _ *engine.Engine[string], r *engine.Reservation[string]) { r.Keep(1) },
		"Reset": func(t *testing.T, e *engine.Engine[string], _ *engine.Reservation[string]) {
			assert.True(t, e.Reset("a"))
		},
		"SetPolicy": func(t *testing.T, e *engine.Engine[string], _ *engine.Reservation[string]) {
			assert.NoError(t, e.SetPolicy(inFlight(3, time.Minute)))
		},
	} {
		t.Run(name, func(t *testing.T) {
			waitsInFlight(t, 1, engine.Config{}, func(t *testing.T, e *engine.Engine[string]) {
				held := e.Reserve("a", 1, 0)
				require.True(t, held.Allowed)
				waiting := acquire(t.Context(), e, 1, time.Second)
				makesRoom(t, e, &held)
				// A line that a change has paused looks again after a moment.
				time.Sleep(10 * time.Millisecond)
				require.True(t, waiting.isOver())
				assert.NoError(t, waiting.err)
			})
		})
	}
}

// A call for a new key waits for a place, however long Idle is, if all places are keys in use.
//
// Promise: A call that waits for units of a new key gets a place of a full table soon after another key is released.
func TestReleaseMakesAPlaceForAWaitingCall(t *testing.T) {
	waitsInFlight(t, 1, engine.Config{MaxKeys: 1, Idle: time.Hour}, func(t *testing.T, e *engine.Engine[string]) {
		held := e.Reserve("other", 1, 0)
		require.True(t, held.Allowed)
		refused := e.Reserve("a", 1, time.Hour)
		require.False(t, refused.Allowed)
		waiting := acquire(t.Context(), e, 1, time.Minute/2)
		time.Sleep(time.Second)
		assert.False(t, waiting.isOver())
		held.Release()
		time.Sleep(50 * time.Millisecond)
		require.True(t, waiting.isOver())
		assert.NoError(t, waiting.err)
		waiting.Release()
	})
}

// A key's limit may change while calls wait for it, to keep the share that is used as well: units in use are counted, never scaled.
func TestChangeLimitWakesTheLine(t *testing.T) {
	for _, keep := range []engine.Keep{engine.KeepUsed, engine.KeepShare} {
		synctest.Test(t, func(t *testing.T) {
			small, large := inFlight(2, time.Minute), inFlight(3, time.Minute)
			chosen := small
			e, err := engine.New(engine.Config{Policy: inFlight(8, time.Minute)}, engine.PolicyFor(func(string) policy.Policy { return chosen }))
			require.NoError(t, err)
			defer func() { assert.NoError(t, e.Close()) }()
			held := e.Reserve("a", 2, 0)
			waiting := acquire(t.Context(), e, 1, time.Second)
			assert.False(t, waiting.isOver())
			chosen = large
			require.NoError(t, e.ChangeLimit("a", small, large, keep))
			require.True(t, waiting.isOver())
			assert.NoError(t, waiting.err)
			assert.False(t, e.Choke("a"))
			waiting.Release()
			held.Release()
			assert.EqualValues(t, 3, e.Peek("a", 0).Remaining)
			assert.Zero(t, e.Stats().Overstayed)
		})
	}
}

// Promise: A call on rates and units in use waits for both, and holds neither while it waits for the other.
func TestCallsWaitForRatesAndUnitsInUse(t *testing.T) {
	waitsInFlight(t, 1, engine.Config{}, func(t *testing.T, e *engine.Engine[string]) {
		rates, err := engine.New[string](engine.Config{Policy: policy.Must(policy.Funnel(1, 1, time.Second))})
		require.NoError(t, err)
		defer func() { assert.NoError(t, rates.Close()) }()
		held := e.Reserve("a", 1, 0)
		require.True(t, rates.Choke("a"))
		began := time.Now()
		go func() {
			time.Sleep(300 * time.Millisecond)
			held.Release()
		}()
		out, err := engine.AcquireAll(t.Context(), time.Minute, rates.Claim("a", 1), e.Claim("a", 1))
		require.NoError(t, err)
		assert.Equal(t, time.Second, time.Since(began))
		assert.Zero(t, e.Peek("a", 0).Remaining)
		out.Release()
		assert.EqualValues(t, 1, e.Peek("a", 0).Remaining)
		assert.Zero(t, rates.Peek("a", 0).Remaining)

		g, err := e.Hold(t.Context(), limits.Call[string]{Key: "a", N: 1})
		require.NoError(t, err)
		go func() {
			time.Sleep(time.Second)
			assert.NoError(t, g.Release(t.Context()))
		}()
		next, err := e.Hold(t.Context(), limits.Call[string]{Key: "a", N: 1, Patience: time.Hour})
		require.NoError(t, err)
		assert.True(t, next.Allowed)
		assert.Equal(t, time.Second, next.Wait)
	})
}

// Many calls of one and several units, with cancelled contexts and patience: no more are in use than the limit
// says, each call ends, and nothing is in use at the end.
func TestCrowdWaitsForUnitsInUse(t *testing.T) {
	const limit = 5
	waitsInFlight(t, limit, engine.Config{}, func(t *testing.T, e *engine.Engine[string]) {
		var all sync.WaitGroup
		var mu sync.Mutex
		inUse, served := int64(0), 0
		for i := range 400 {
			all.Go(func() {
				dice := rand.New(rand.NewPCG(9, uint64(i)))
				time.Sleep(time.Duration(dice.Int64N(int64(time.Second))))
				ctx, cancel := context.WithTimeout(t.Context(), time.Duration(1+dice.Int64N(int64(10*time.Second))))
				defer cancel()
				n := 1 + dice.Int64N(limit)
				r, err := e.Acquire(ctx, "a", n, time.Duration(dice.Int64N(int64(20*time.Second))))
				if err != nil {
					return
				}
				mu.Lock()
				inUse, served = inUse+n, served+1
				assert.LessOrEqual(t, inUse, int64(limit))
				mu.Unlock()
				time.Sleep(time.Duration(dice.Int64N(int64(100 * time.Millisecond))))
				mu.Lock()
				inUse -= n
				mu.Unlock()
				r.Release()
			})
		}
		all.Wait()
		assert.Greater(t, served, 100)
		assert.EqualValues(t, limit, e.Peek("a", 0).Remaining)
		assert.Zero(t, e.Stats().Waiting)
	})
}
