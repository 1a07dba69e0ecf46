package engine_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ral-limiter/ral/engine"
	"github.com/ral-limiter/ral/policy"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// wait has a call wait for n units of "a" by one of the verbs that wait, asleep when it returns.
type wait func(t *testing.T, e *engine.Engine[string], n int64) *waitingCall

type waitingCall struct {
	release func()
	err     error
	done    chan struct{}
}

func (c *waitingCall) isOver() bool {
	synctest.Wait()
	select {
	case <-c.done:
		return true
	default:
		return false
	}
}

func waitingVerbs() map[string]wait {
	call := func(f func() (func(), error)) *waitingCall {
		c := &waitingCall{done: make(chan struct{})}
		go func() {
			defer close(c.done)
			c.release, c.err = f()
		}()
		synctest.Wait()
		return c
	}
	return map[string]wait{
		"Acquire": func(t *testing.T, e *engine.Engine[string], n int64) *waitingCall {
			return call(func() (func(), error) {
				r, err := e.Acquire(t.Context(), "a", n, 3*time.Hour)
				return r.Release, err
			})
		},
		"Wait": func(t *testing.T, e *engine.Engine[string], n int64) *waitingCall {
			return call(func() (func(), error) {
				// Units of Wait end by themselves or with the key's reset.
				return func() { e.Reset("a") }, e.Wait(t.Context(), "a", n)
			})
		},
		"AcquireAll": func(t *testing.T, e *engine.Engine[string], n int64) *waitingCall {
			rates, err := engine.New[string](engine.Config{Policy: policy.Must(policy.FixedWindow(1000, 100*time.Hour))})
			require.NoError(t, err)
			t.Cleanup(func() { assert.NoError(t, rates.Close()) })
			return call(func() (func(), error) {
				out, err := engine.AcquireAll(t.Context(), 3*time.Hour, rates.Claim("a", 1), e.Claim("a", n))
				if err != nil {
					assert.EqualValues(t, 1000, rates.Peek("a", 0).Remaining, "a refused call has spent a rate")
				}
				return out.Release, err
			})
		},
	}
}

// Each change comes while all three units are in use, by calls of one unit each, and another call waits for two.
//
// Promise: A call that waits for units in use goes by the limit of the key as it is changed, and a block, a reset or the engine's end reaches it.
func TestChangesReachCallsThatWaitForUnitsInUse(t *testing.T) {
	const soon = 20 * time.Millisecond // a line that a change has paused looks again after a moment
	setPolicy := func(p policy.Policy) func(*testing.T, *engine.Engine[string]) error {
		return func(_ *testing.T, e *engine.Engine[string]) error { return e.SetPolicy(p) }
	}
	// A step releases so many calls, resets the key if it says so, and lets time pass. isOver reports whether the
	// waiting call must be over after it.
	type step struct {
		releases int
		pass     time.Duration
		isOver   bool
		resets   bool
	}
	for name, test := range map[string]struct {
		change func(*testing.T, *engine.Engine[string]) error
		err    error // of the waiting call
		steps  []step
	}{
		"a higher limit":         {setPolicy(inFlight(5, time.Minute)), nil, []step{{0, soon, true, false}}},
		"a lower limit":          {setPolicy(inFlight(2, time.Minute)), nil, []step{{0, soon, false, false}, {2, soon, false, false}, {3, soon, true, false}}},
		"a limit below the call": {setPolicy(inFlight(1, time.Minute)), engine.ErrNever, []step{{0, soon, true, false}}},
		"a longer time": {setPolicy(inFlight(3, time.Hour)), nil, []step{
			{0, 59 * time.Minute, false, false}, {0, time.Minute + time.Hour/8 + 1, true, false},
		}},
		"a shorter time": {setPolicy(inFlight(3, time.Second)), nil, []step{
			{0, time.Second - soon, false, false}, {0, time.Second/8 + 2*soon, true, false},
		}},
		"another kind": {func(t *testing.T, e *engine.Engine[string]) error {
			var refusal *policy.FieldError
			assert.ErrorAs(t, e.SetPolicy(policy.Must(policy.FixedWindow(9, time.Minute))), &refusal)
			return nil
		}, nil, []step{{0, soon, false, false}, {2, soon, true, false}}},
		"a limit of the key": {func(_ *testing.T, e *engine.Engine[string]) error {
			return e.ChangeLimit("a", nil, inFlight(2, time.Minute), engine.KeepShare)
		}, nil, []step{{0, soon, false, false}, {1, soon, false, false}, {2, soon, true, false}}},
		"a block": {func(_ *testing.T, e *engine.Engine[string]) error {
			return e.Block("a", 10*time.Second)
		}, nil, []step{{3, soon, false, false}, {0, 9 * time.Second, false, false}, {0, time.Second, true, false}}},
		"a block that a reset lifts": {func(_ *testing.T, e *engine.Engine[string]) error {
			return e.Block("a", time.Hour)
		}, nil, []step{{0, time.Second, false, false}, {0, soon, true, true}}},
		"a reset": {func(t *testing.T, e *engine.Engine[string]) error {
			assert.True(t, e.Reset("a"))
			return nil
		}, nil, []step{{0, soon, true, false}, {3, soon, true, false}}},
		"the end": {func(_ *testing.T, e *engine.Engine[string]) error { return e.Close() }, engine.ErrClosed, []step{{0, 0, true, false}}},
	} {
		for verb, wait := range waitingVerbs() {
			t.Run(name+", "+verb, func(t *testing.T) {
				waitsInFlight(t, 3, engine.Config{}, func(t *testing.T, e *engine.Engine[string]) {
					held := []engine.Reservation[string]{e.Reserve("a", 1, 0), e.Reserve("a", 1, 0), e.Reserve("a", 1, 0)}
					call := wait(t, e, 2)
					require.False(t, call.isOver())
					require.NoError(t, test.change(t, e))
					for i, step := range test.steps {
						for j := range held[:step.releases] {
							held[j].Release()
						}
						if step.resets {
							assert.True(t, e.Reset("a"))
						}
						time.Sleep(step.pass)
						require.Equal(t, step.isOver, call.isOver(), "after step %d", i)
					}
					require.ErrorIs(t, call.err, test.err)
					if errors.Is(test.err, engine.ErrClosed) {
						return
					}
					if call.err == nil {
						assert.GreaterOrEqual(t, e.Explain("a").Used, int64(2), "the call's units are not in use")
						call.release()
					}
					for i := range held {
						held[i].Release()
					}
					d := e.Peek("a", 0)
					assert.Equal(t, d.Limit, d.Remaining, "units are in use at the end")
					assert.Zero(t, e.Stats().Waiting)
				})
			})
		}
	}
}

// A call waits for two keys in turn while either has no unit left, and holds none of the other meanwhile.
func TestCallsThatWaitForSeveralKeysHoldNone(t *testing.T) {
	waitsInFlight(t, 1, engine.Config{}, func(t *testing.T, e *engine.Engine[string]) {
		a, b := e.Reserve("a", 1, 0), e.Reserve("b", 1, 0)
		done := make(chan error)
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		go func() {
			out, err := engine.AcquireAll(ctx, time.Hour, e.Claim("a", 1), e.Claim("b", 1))
			out.Release()
			done <- err
		}()
		synctest.Wait()
		a.Release()
		time.Sleep(time.Second)
		synctest.Wait()
		other := e.Reserve("a", 1, 0)
		assert.True(t, other.Allowed, "a call that waits for another key holds a unit of this one")
		b.Release()
		time.Sleep(time.Second)
		other.Release()
		time.Sleep(time.Second)
		assert.NoError(t, <-done)
		assert.EqualValues(t, 1, e.Peek("a", 0).Remaining)
		assert.EqualValues(t, 1, e.Peek("b", 0).Remaining)
	})
}
