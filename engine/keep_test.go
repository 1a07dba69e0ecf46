package engine

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/policy"
)

// each is a limit of every kind.
func each() []policy.Policy {
	return []policy.Policy{
		funnel(10, 1, time.Second),
		policy.Must(policy.FixedWindow(10, 10*time.Second)),
		policy.Must(policy.SlidingWindow(10, 10*time.Second)),
		policy.Must(policy.AtMost(10, 10*time.Second)),
		policy.Must(policy.Queue(10, 1, time.Second)),
		policy.Must(policy.Bursty(1, time.Second, 10)),
		policy.Must(policy.WarmingUp(1, time.Second, 10*time.Second, 3)),
	}
}

// Now and later, under a chosen limit, and under a limit that cannot give back.
//
// Promise: `Keep` of the last take is like taking only the kept units.
func TestKeepIsAsIfNoMoreHadBeenAskedFor(t *testing.T) {
	for _, p := range append(each(), unrelated{funnel(10, 1, time.Second)}) {
		for _, after := range []time.Duration{0, 2500 * time.Millisecond, 12 * time.Second} {
			for kept := range int64(6) {
				clock := newHandClock()
				engines := []*Engine[string]{open[string](t, Config{Policy: p, Clock: clock.Now})}
				if _, bare := p.(unrelated); !bare {
					engines = append(engines, openFor(t, Config{Policy: p, Clock: clock.Now}, func(string) policy.Policy { return p }))
				}
				clock.Advance(time.Minute)
				var all []Reservation[string]
				for _, e := range engines {
					require.Equal(t, e.Take("asked", 2), e.Take("kept", 2))
					require.True(t, e.Reserve("asked", kept, time.Hour).Allowed)
					all = append(all, e.Reserve("kept", 5, time.Hour))
				}
				clock.Advance(after)
				for i := range all {
					all[i].Keep(kept)
					all[i].Keep(0) // once is enough
					all[i].Cancel()
				}
				for range 4 {
					for i, e := range engines {
						require.Equal(t, e.Peek("asked", 0), e.Peek("kept", 0), "%v (%d): %d kept after %v", p, i, kept, after)
						require.Equal(t, e.Take("asked", 3), e.Take("kept", 3))
					}
					clock.Advance(1700 * time.Millisecond)
				}
			}
		}
	}
}

func TestKeepAtTheEdges(t *testing.T) {
	clock := newHandClock()
	e := open[string](t, Config{Policy: funnel(10, 1, time.Second), Clock: clock.Now})
	for kept, remaining := range map[int64]int64{math.MinInt64: 10, -1: 10, 0: 10, 3: 7, 4: 6, 5: 6, math.MaxInt64: 6} {
		r := e.Reserve("key", 4, 0)
		r.Keep(kept)
		assert.Equal(t, remaining, e.Peek("key", 0).Remaining, "%d kept", kept)
		r.Cancel()
		assert.Equal(t, remaining, e.Peek("key", 0).Remaining, "%d kept: it is over", kept)
		e.Reset("key")
	}
	refused, nothing := e.Reserve("key", 11, 0), Reservation[string]{}
	e.Take("key", 5)
	refused.Keep(1)
	nothing.Keep(1)
	assert.EqualValues(t, 5, e.Peek("key", 0).Remaining)
}

// Units taken by others in a later window stay taken.
func TestKeepGivesNothingToAnotherWindow(t *testing.T) {
	for _, p := range each() {
		clock := newHandClock()
		for name, e := range map[string]*Engine[string]{
			"own":    open[string](t, Config{Policy: p, Clock: clock.Now}),
			"chosen": openFor(t, Config{Policy: p, Clock: clock.Now}, func(string) policy.Policy { return p }),
		} {
			clock.Advance(time.Hour)
			r := e.Reserve("key", 8, 0)
			require.True(t, r.Allowed)
			clock.Advance(time.Minute)
			require.True(t, e.Take("key", 6).Allowed)
			before := e.Peek("key", 0)
			r.Keep(1)
			assert.Equal(t, before, e.Peek("key", 0), "%v, %s", p, name)
		}
	}
}

// A turn in a later window stands, although less would have found room before: units go back there.
func TestKeepOfATurnInALaterWindow(t *testing.T) {
	for _, p := range []policy.Policy{
		policy.Must(policy.FixedWindow(10, 10*time.Second)),
		policy.Must(policy.SlidingWindow(10, 10*time.Second)),
		policy.Must(policy.AtMost(10, 10*time.Second)),
	} {
		clock := newHandClock()
		e := open[string](t, Config{Policy: p, Clock: clock.Now})
		require.True(t, e.Take("key", 8).Allowed)
		r := e.Reserve("key", 5, time.Minute)
		require.True(t, r.Allowed)
		require.Positive(t, r.Wait)
		r.Keep(2)
		clock.Advance(r.Wait)
		d := e.Peek("key", 0)
		assert.Less(t, d.Remaining, int64(10), "%v: the two that are kept start now", p)
		assert.False(t, e.Take("key", 9).Allowed, "%v", p)
	}
}

// Under chosen limits the limit of others' takes is unknown. Nothing comes back, or the window's
// part of the take.
func TestKeepUnderChosenLimits(t *testing.T) {
	for _, c := range []struct {
		two  [2]policy.Policy
		back int64
	}{
		{[2]policy.Policy{funnel(10, 1, time.Second), funnel(20, 4, time.Second)}, 0},
		{[2]policy.Policy{policy.Must(policy.FixedWindow(10, time.Hour)), policy.Must(policy.FixedWindow(20, time.Hour))}, 3},
		{[2]policy.Policy{policy.Must(policy.SlidingWindow(10, time.Hour)), policy.Must(policy.SlidingWindow(20, time.Hour))}, 3},
		{[2]policy.Policy{policy.Must(policy.AtMost(10, time.Hour)), policy.Must(policy.AtMost(20, time.Hour))}, 3},
		{[2]policy.Policy{policy.Must(policy.Queue(10, 1, time.Second)), policy.Must(policy.Queue(20, 4, time.Second))}, 0},
		{[2]policy.Policy{policy.Must(policy.Bursty(1, time.Second, 10)), policy.Must(policy.Bursty(4, time.Second, 20))}, 0},
	} {
		clock := newHandClock()
		which := 0
		e := openFor(t, Config{Policy: c.two[0], Clock: clock.Now}, func(string) policy.Policy { return c.two[which] })
		clock.Advance(time.Minute)
		r := e.Reserve("key", 4, 0)
		which = 1
		require.True(t, e.Take("key", 1).Allowed)
		which = 0
		before := e.Peek("key", 0)
		r.Keep(1)
		assert.Equal(t, c.back, e.Peek("key", 0).Remaining-before.Remaining, "%v", c.two[0])
		assert.Equal(t, c.back == 0, before == e.Peek("key", 0), "%v", c.two[0])

		// If no call came since, it is as if no more had been asked for under that limit.
		which = 1
		require.True(t, e.Reserve("asked", 2, 0).Allowed)
		r = e.Reserve("kept", 4, 0)
		which = 0
		r.Keep(2)
		assert.Equal(t, e.Peek("asked", 0), e.Peek("kept", 0), "%v", c.two[0])
	}
}

// A part that has a turn to wait for is given back as under the engine's own limit.
func TestKeepOfATurnUnderAChosenLimit(t *testing.T) {
	limit := funnel(10, 1, time.Second)
	for _, chosen := range []policy.Policy{nil, limit} {
		e := openFor(t, Config{Policy: limit, Clock: newHandClock().Now}, func(string) policy.Policy { return chosen })
		require.True(t, e.Take("key", 10).Allowed)
		r := e.Reserve("key", 5, time.Minute)
		require.Equal(t, 5*time.Second, r.Wait)
		r.Keep(2)
		assert.Equal(t, 12*time.Second, e.Peek("key", 0).ResetAfter, "%v", chosen)
	}
}

// A smaller limit is chosen for the key after a reservation under the engine's own, and perhaps
// dropped before the Cancel. A call that queued under it keeps its turn.
func TestCancelWhenAnotherLimitIsChosen(t *testing.T) {
	small := funnel(10, 1, time.Millisecond)
	for _, then := range []policy.Policy{small, nil} {
		var limit policy.Policy
		clock := newHandClock()
		e := openFor(t, Config{Policy: funnel(100, 1, time.Millisecond), Clock: clock.Now}, func(string) policy.Policy { return limit })
		r := e.Reserve("key", 100, 0)
		limit = small
		second := e.Reserve("key", 10, time.Minute)
		require.Equal(t, 100*time.Millisecond, second.Wait)
		limit = then
		r.Cancel()
		limit = small
		clock.Advance(95 * time.Millisecond)
		third := e.Reserve("key", 10, time.Minute)
		assert.Equal(t, 15*time.Millisecond, third.Wait, "10 ms after the second, which begins in 5")
	}
}

func TestCancelAfterATakeAtOnceUnderAnotherLimit(t *testing.T) {
	var limit policy.Policy
	e := openFor(t, Config{Policy: funnel(10, 1, time.Second), Clock: newHandClock().Now}, func(string) policy.Policy { return limit })
	r := e.Reserve("key", 4, 0)
	limit = funnel(20, 1, time.Second)
	require.True(t, e.Reserve("key", 3, time.Minute).Allowed)
	r.Cancel()
	limit = nil
	assert.EqualValues(t, 7, e.Peek("key", 0).Remaining)
}

// Random rows while the key's limit changes with every other call. Each limit holds for its calls.
func TestCancelUnderLimitsThatChange(t *testing.T) {
	type limit struct {
		capacity, interval int64
		p                  policy.Policy
	}
	var limits []limit
	for _, l := range []limit{{capacity: 10, interval: 1000}, {capacity: 2, interval: 20_000}, {capacity: 100, interval: 50}, {capacity: 3, interval: 1000}} {
		l.p = funnel(l.capacity, 1, time.Duration(l.interval))
		limits = append(limits, l)
	}
	chosen := 0
	clock := newHandClock()
	e := openFor(t, Config{Policy: limits[0].p, Clock: clock.Now}, func(string) policy.Policy {
		if chosen == 0 {
			return nil
		}
		return limits[chosen].p
	})
	given := 0
	for round := range 3000 / raceFactor {
		dice := rand.New(rand.NewPCG(48, uint64(round)))
		key := fmt.Sprint(round)
		rows := make([][]row, len(limits))
		for range 40 {
			now := clock.now.Load()
			switch dice.IntN(8) {
			case 0, 1:
				clock.Advance(time.Duration(dice.Int64N(6000)))
			case 2:
				chosen = dice.IntN(len(limits)) * dice.IntN(2)
			case 3, 4, 5:
				l := limits[chosen]
				n := 1 + dice.Int64N(l.capacity)
				if r := e.Reserve(key, n, time.Duration(dice.Int64N(60_000)*dice.Int64N(2))); r.Allowed {
					rows[chosen] = append(rows[chosen], row{reservation: r, start: now + int64(r.Wait), n: n})
				}
			default:
				of := rows[dice.IntN(len(limits))]
				if len(of) == 0 {
					continue
				}
				r := &of[dice.IntN(len(of))]
				kept := dice.Int64N(r.n+1) * dice.Int64N(2)
				if r.reservation == (Reservation[string]{}) {
					continue
				}
				before := e.Peek(key, 0).ResetAfter
				r.reservation.Keep(kept)
				if e.Peek(key, 0).ResetAfter < before {
					given++
				}
				r.reservation, r.n, r.gone = Reservation[string]{}, kept, kept == 0
			}
			for i, l := range limits {
				require.Zero(t, overLimit(rows[i], l.interval, l.capacity*l.interval), "round %d, %v", round, l.p)
			}
		}
	}
	assert.Greater(t, given, 1000/raceFactor)
}

// Promise: `Keep` returns units to their window, within the limit.
func TestKeepNeverExceedsTheHardPromise(t *testing.T) {
	const per = int64(8 * time.Millisecond)
	clock := newHandClock()
	for _, limit := range []int64{5, 100} { // cut into eight parts, and into one
		e := open[string](t, Config{Policy: policy.Must(policy.AtMost(limit, time.Duration(per))), Clock: clock.Now})
		given := 0
		for round := range 2000 / raceFactor {
			dice := rand.New(rand.NewPCG(47, uint64(round)))
			key := fmt.Sprint(round)
			var rows []row
			for range 40 {
				now, n := clock.now.Load(), 1+dice.Int64N(limit)
				switch dice.IntN(3) {
				case 0:
					clock.Advance(time.Duration(dice.Int64N(per / 2)))
				case 1:
					if r := e.Reserve(key, n, time.Duration(dice.Int64N(2*per))); r.Allowed {
						rows = append(rows, row{reservation: r, start: now + int64(r.Wait), n: n})
					}
				default:
					if len(rows) == 0 {
						continue
					}
					r := &rows[dice.IntN(len(rows))]
					kept := dice.Int64N(n)
					if r.reservation == (Reservation[string]{}) || kept >= r.n {
						continue
					}
					before := e.Peek(key, 0).Remaining
					r.reservation.Keep(kept)
					r.reservation, r.n = Reservation[string]{}, kept
					if e.Peek(key, 0).Remaining > before {
						given++
					}
				}
				for _, first := range rows {
					units := int64(0)
					for _, r := range rows {
						if first.start <= r.start && r.start <= first.start+per {
							units += r.n
						}
					}
					require.LessOrEqual(t, units, limit, "round %d", round)
				}
			}
		}
		assert.Greater(t, given, 1000/raceFactor)
	}
}

// A call that computes its give-back again does not count its own announcement as another's.
func TestKeepDoesNotCountItsOwnReturn(t *testing.T) {
	clock := newHandClock()
	limit := &hooked{Policy: funnel(10, 1, time.Second)}
	e := open[string](t, Config{Policy: limit, Clock: clock.Now})
	r := e.Reserve("key", 4, 0)
	require.True(t, e.Take("key", 1).Allowed)
	var byOthers []int64
	limit.cancel = func(undone int64) {
		if byOthers = append(byOthers, undone); len(byOthers) < 3 {
			require.True(t, e.Take("key", 1).Allowed)
		}
	}
	r.Keep(0)
	assert.Equal(t, []int64{0, 0, 0}, byOthers)
	assert.EqualValues(t, 7, e.Peek("key", 0).Remaining, "others have three")
}

// Keep does not record a word that a policy must not return.
func TestKeepUnderAPolicyThatBreaksItsContract(t *testing.T) {
	clock := newHandClock()
	limit := &hooked{Policy: funnel(10, 1, time.Second)}
	e := open[string](t, Config{Policy: limit, Clock: clock.Now})
	r := e.Reserve("key", 4, 0)
	limit.took = func(a *asked) { a.next = policy.MaxWord + 1 }
	r.Keep(1)
	limit.took = nil
	assert.EqualValues(t, 9, e.Peek("key", 0).Remaining)
	assert.True(t, e.Take("key", 9).Allowed)
	assert.False(t, e.Choke("key"))
}
