package single

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/limits"
	"github.com/ral-limiter/ral/policy"
)

func inFlight(n int64, longest time.Duration) policy.Policy {
	return policy.Must(policy.InFlight(n, longest))
}

// Promise: `Release`, `Cancel`, `Keep` and a grant's `Settle` give back all units in use, once, and `Extend` keeps them.
func TestReleaseGivesBackUnitsInUse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := MustNew(policy.InFlight(2, time.Minute))
		for _, end := range []func(r *Reservation){(*Reservation).Release, (*Reservation).Cancel, func(r *Reservation) { r.Keep(2) }} {
			r := l.Reserve(2, time.Hour)
			require.True(t, r.Allowed)
			assert.False(t, l.Choke())
			time.Sleep(45 * time.Second)
			require.True(t, r.Extend())
			time.Sleep(45 * time.Second)
			assert.False(t, l.Choke(), "a call passed beside the extended unit")
			end(&r)
			assert.EqualValues(t, 2, l.Peek(0).Remaining)
			other := l.Reserve(1, 0)
			end(&r)
			assert.False(t, r.Extend(), "a unit that has ended was extended")
			assert.EqualValues(t, 1, l.Peek(0).Remaining, "a second end took another call's unit")
			other.Release()
		}
		for used := range int64(4) {
			g, err := l.Hold(t.Context(), limits.Call[struct{}]{N: 2})
			require.NoError(t, err)
			require.NoError(t, g.Settle(t.Context(), used))
			assert.EqualValues(t, 2, l.Peek(0).Remaining, "settled with %d", used)
		}
		g, err := l.Hold(t.Context(), limits.Call[struct{}]{N: 2})
		require.NoError(t, err)
		require.NoError(t, g.Release(t.Context()))
		assert.EqualValues(t, 2, l.Peek(0).Remaining)
		late := l.Reserve(2, 0)
		time.Sleep(2 * time.Minute)
		require.True(t, l.Choke(), "units end by themselves")
		late.Release()
		assert.EqualValues(t, 1, l.Peek(0).Remaining, "a late release took another call's unit")
	})
}

// Promise: A release counts after changes of the limit, and frees no other unit after a `Reset`.
func TestReleaseCountsAfterChangesOfTheLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := MustNew(policy.InFlight(4, time.Minute))
		first, second := l.Reserve(3, 0), l.Reserve(1, 0)
		for _, p := range []policy.Policy{inFlight(2, time.Minute), inFlight(5, time.Hour), inFlight(500, time.Minute), inFlight(4, time.Minute)} {
			// Units of another longest time count from the change.
			time.Sleep(20 * time.Second)
			require.NoError(t, l.SetPolicy(p))
			assert.EqualValues(t, max(p.Limit()-4, 0), l.Peek(0).Remaining, p)
		}
		first.Release()
		assert.EqualValues(t, 3, l.Peek(0).Remaining)
		assert.True(t, l.Reset())
		third := l.Reserve(4, 0)
		require.True(t, third.Allowed)
		require.NoError(t, l.SetPolicy(inFlight(4, time.Hour)))
		second.Release()
		assert.Zero(t, l.Peek(0).Remaining)
		assert.True(t, l.Reset())
		fourth := l.Reserve(4, 0)
		third.Release()
		assert.Zero(t, l.Peek(0).Remaining)
		fourth.Release()
		assert.EqualValues(t, 4, l.Peek(0).Remaining)
	})
}

// Promise: A release finds its unit after as many as 64 changes of the longest time; after more, the unit ends by itself.
func TestReleaseAfterManyChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for changes := 63; changes <= 66; changes++ {
			l := MustNew(policy.InFlight(1, time.Minute))
			r := l.Reserve(1, 0)
			for i := range changes {
				require.NoError(t, l.SetPolicy(inFlight(1, time.Minute+time.Duration(i+1)%2*time.Second)))
			}
			assert.Equal(t, changes <= 64, r.Extend(), changes)
			r.Release()
			require.Equal(t, changes <= 64, l.Peek(1).Allowed, changes)
			time.Sleep(2 * time.Minute)
			assert.True(t, l.Choke())
		}
	})
}

// Promise: Calls wait for units in use in the order of arrival, and a call that does not wait passes none.
func TestLineForUnitsInUse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := MustNew(policy.InFlight(2, time.Minute))
		wait := func(n int64, patience time.Duration) chan *Reservation {
			done := make(chan *Reservation, 1)
			go func() {
				r, err := l.Acquire(t.Context(), n, patience)
				assert.Equal(t, r.Allowed, err == nil)
				done <- &r
			}()
			synctest.Wait()
			return done
		}
		held := l.Reserve(1, 0)
		both, one := wait(2, time.Second), wait(1, time.Hour)
		assert.Equal(t, 2, l.Explain().Waiting)
		assert.False(t, l.Choke())
		assert.False(t, l.Take(1).Allowed)
		assert.Positive(t, l.Take(1).RetryAfter)
		r := l.Reserve(1, time.Hour)
		assert.False(t, r.Allowed)
		_, err := l.Acquire(t.Context(), 1, 0)
		assert.ErrorIs(t, err, ErrDeadline)
		_, err = l.Acquire(t.Context(), 3, time.Hour)
		assert.ErrorIs(t, err, ErrNever)
		held.Release()
		synctest.Wait()
		first := <-both
		require.True(t, first.Allowed)
		assert.Empty(t, one)
		impatient := wait(1, time.Second)
		time.Sleep(time.Second)
		assert.False(t, (<-impatient).Allowed)
		first.Cancel()
		second := <-one
		require.True(t, second.Allowed)
		second.Release()
		assert.EqualValues(t, 2, l.Peek(0).Remaining)

		// What makes room otherwise.
		for _, makesRoom := range []func(){
			func() { assert.True(t, l.Reset()) },
			func() { assert.NoError(t, l.SetPolicy(inFlight(4, time.Minute))) },
			func() { time.Sleep(2 * time.Minute) },
		} {
			require.Positive(t, l.Reserve(l.Peek(0).Remaining, 0).Limit)
			waiting := wait(1, time.Hour)
			assert.Empty(t, waiting)
			makesRoom()
			time.Sleep(10 * time.Millisecond)
			synctest.Wait()
			require.Len(t, waiting, 1)
		}
	})
}

// meddler is a limit of units in use that calls meanwhile between the look of a take and its swap.
type meddler struct {
	policy.Policy
	policy.Occupier
	meanwhile func()
}

func (m *meddler) Take(word uint64, now policy.Instant, n int64, patience time.Duration) (uint64, policy.Decision) {
	next, d := m.Policy.Take(word, now, n, patience)
	if meanwhile := m.meanwhile; n > 0 && meanwhile != nil {
		m.meanwhile = nil
		meanwhile()
	}
	return next, d
}

// Promise: A `Reset` within a take loses no release of that take, also if no unit is in use or if others are taken after.
func TestResetWithinATake(t *testing.T) {
	for before, reset := range map[string]func(l *Limiter){
		"never used":         func(*Limiter) {},
		"in use":             func(l *Limiter) { l.Reserve(1, 0) },
		"reset":              func(l *Limiter) { l.Reserve(1, 0); l.Reset() },
		"reset and in use":   func(l *Limiter) { l.Reserve(1, 0); l.Reset(); l.Reserve(1, 0) },
		"reset and released": func(l *Limiter) { l.Reserve(1, 0); l.Reset(); r := l.Reserve(1, 0); r.Release() },
	} {
		p := inFlight(2, time.Hour)
		m := &meddler{Policy: p, Occupier: p.(policy.Occupier)}
		l := MustNew(m, nil)
		reset(l)
		for range 3 {
			used := 2 - l.Peek(0).Remaining
			m.meanwhile = func() {
				l.Reset()
				l.Take(used) // the word comes back, if it can
			}
			r := l.Reserve(1, 0)
			require.True(t, r.Allowed)
			require.Nil(t, m.meanwhile)
			require.EqualValues(t, 1-used, l.Peek(0).Remaining)
			r.Release()
			assert.EqualValues(t, 2-used, l.Peek(0).Remaining, "a limit that was %s has lost a release", before)
		}
	}
}

// Each change comes while all three units are in use, by calls of one unit each, and another call waits for two.
//
// Promise: A call that waits for units in use goes by the limit as it is changed, and by a reset.
func TestChangesReachCallsThatWaitForUnitsInUse(t *testing.T) {
	const soon = 20 * time.Millisecond
	setPolicy := func(p policy.Policy) func(*Limiter) error {
		return func(l *Limiter) error { return l.SetPolicy(p) }
	}
	// A step releases so many calls, or lets time pass. isOver reports whether the call must be over after it.
	type step struct {
		releases int
		pass     time.Duration
		isOver   bool
	}
	for name, test := range map[string]struct {
		change func(l *Limiter) error
		err    error // of the waiting call
		steps  []step
	}{
		"a higher limit":         {setPolicy(inFlight(5, time.Minute)), nil, []step{{0, soon, true}}},
		"a lower limit":          {setPolicy(inFlight(2, time.Minute)), nil, []step{{0, soon, false}, {2, soon, false}, {3, soon, true}}},
		"a limit below the call": {setPolicy(inFlight(1, time.Minute)), ErrNever, []step{{0, soon, true}}},
		"a longer time":          {setPolicy(inFlight(3, time.Hour)), nil, []step{{0, 59 * time.Minute, false}, {0, time.Minute + time.Hour/8 + 1, true}}},
		"a shorter time":         {setPolicy(inFlight(3, time.Second)), nil, []step{{0, time.Second - soon, false}, {0, time.Second/8 + 2*soon, true}}},
		"a reset": {func(l *Limiter) error {
			l.Reset()
			return nil
		}, nil, []step{{0, soon, true}, {3, soon, true}}},
		"another kind": {func(l *Limiter) error {
			if l.SetPolicy(policy.Must(policy.FixedWindow(9, time.Minute))) == nil {
				return errors.New("a limit of another family is accepted")
			}
			return nil
		}, nil, []step{{0, soon, false}, {2, soon, true}}},
	} {
		for _, verb := range []string{"Acquire", "Wait"} {
			t.Run(name+", "+verb, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					l := MustNew(policy.InFlight(3, time.Minute))
					held := []Reservation{l.Reserve(1, 0), l.Reserve(1, 0), l.Reserve(1, 0)}
					var r Reservation
					var err error
					done := make(chan struct{})
					go func() {
						defer close(done)
						if verb == "Wait" {
							err = l.Wait(t.Context(), 2)
						} else {
							r, err = l.Acquire(t.Context(), 2, 3*time.Hour)
						}
					}()
					isOver := func() bool {
						synctest.Wait()
						select {
						case <-done:
							return true
						default:
							return false
						}
					}
					require.False(t, isOver())
					require.NoError(t, test.change(l))
					for i, s := range test.steps {
						for i := range held[:s.releases] {
							held[i].Release()
						}
						time.Sleep(s.pass)
						require.Equal(t, s.isOver, isOver(), "after step %d", i)
					}
					require.ErrorIs(t, err, test.err)
					if err == nil {
						assert.GreaterOrEqual(t, l.Explain().Used, int64(2), "the call's units are not in use")
					}
					if r.Release(); verb == "Wait" {
						l.Reset()
					}
					for i := range held {
						held[i].Release()
					}
					d := l.Peek(0)
					assert.Equal(t, d.Limit, d.Remaining, "units are in use at the end")
				})
			})
		}
	}
}

// Never more units are in use than the limit, and none at the end, whatever calls overlap.
func TestUnitsInUseAreExact(t *testing.T) {
	const limit = 3
	l := MustNew(policy.InFlight(limit, time.Hour))
	var all sync.WaitGroup
	inUse := make(chan struct{}, limit)
	for i := range 8 {
		all.Go(func() {
			for range 2000 {
				var r Reservation
				if i%2 == 0 {
					r, _ = l.Acquire(context.Background(), 1, time.Hour)
				} else {
					r = l.Reserve(1, 0)
				}
				if !r.Allowed {
					continue
				}
				select {
				case inUse <- struct{}{}:
					<-inUse
				default:
					assert.Fail(t, "more than the limit were in use")
				}
				r.Release()
			}
		})
	}
	all.Wait()
	assert.EqualValues(t, limit, l.Peek(0).Remaining)
}
