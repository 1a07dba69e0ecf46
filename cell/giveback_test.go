package cell

import (
	"cmp"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/internal/testkit/limitstest"
	"github.com/ral-limiter/ral/internal/testkit/testenv"
	"github.com/ral-limiter/ral/policy"
)

// Now and later, under a chosen limit, and under a limit that cannot give back. A key that is warming
// up stays warmer, so that later calls find more.
// Promise: `Keep` of the last take is like taking only the kept units.
func TestKeepIsAsIfNoMoreHadBeenAskedFor(t *testing.T) {
	for _, p := range append(limitstest.Policies(), bare{funnel(10, 1, time.Second)}) {
		for _, after := range []time.Duration{0, 2500 * time.Millisecond, 12 * time.Second} {
			for kept := range int64(6) {
				desks := []*desk{newDesk(t, p, nil)}
				if _, is := p.(bare); !is {
					desks = append(desks, newDesk(t, p, func(string) policy.Policy { return p }))
				}
				for _, d := range desks {
					d.advance(time.Minute)
					require.Equal(t, d.Take("asked", 2), d.Take("kept", 2))
					require.True(t, d.Reserve("asked", kept, time.Hour).Allowed)
					r := d.Reserve("kept", 5, time.Hour)
					d.advance(after)
					r.Keep(kept)
					// Only the first Keep counts.
					r.Keep(0)
					r.Cancel()
					for range 4 {
						asked, took := d.Peek("asked"), d.Take("asked", 3)
						left, also := d.Peek("kept"), d.Take("kept", 3)
						if strings.HasPrefix(p.String(), "warming up") {
							require.GreaterOrEqual(t, left.Remaining, asked.Remaining, "%v: %d kept after %v", p, kept, after)
							require.LessOrEqual(t, also.RetryAfter, took.RetryAfter)
							// The next call may come sooner.
							break
						}
						require.Equal(t, asked, left, "%v: %d kept after %v", p, kept, after)
						require.Equal(t, took, also)
						d.advance(1700 * time.Millisecond)
					}
				}
			}
		}
	}
}

func TestKeepAtTheEdges(t *testing.T) {
	d := newDesk(t, funnel(10, 1, time.Second), nil)
	for kept, remaining := range map[int64]int64{math.MinInt64: 10, -1: 10, 0: 10, 3: 7, 4: 6, 5: 6, math.MaxInt64: 6} {
		r := d.Reserve("key", 4, 0)
		r.Keep(kept)
		assert.Equal(t, remaining, d.Peek("key").Remaining, "%d kept: other units remain than expected", kept)
		r.Cancel()
		assert.Equal(t, remaining, d.Peek("key").Remaining, "%d kept: a reservation that is over gave back again", kept)
		d.Reset("key")
	}
	refused, nothing := d.Reserve("key", 11, 0), Held[string]{}
	d.Take("key", 5)
	refused.Keep(1)
	nothing.Keep(1)
	assert.EqualValues(t, 5, d.Peek("key").Remaining)
}

// A turn in a later window stands, although less would have found room before: units go back there.
func TestKeepOfATurnInALaterWindow(t *testing.T) {
	for _, p := range limitstest.Policies()[1:4] {
		d := newDesk(t, p, nil)
		require.True(t, d.Take("key", 8).Allowed)
		r := d.Reserve("key", 5, time.Minute)
		require.True(t, r.Allowed)
		require.Positive(t, r.Wait)
		r.Keep(2)
		d.advance(r.Wait)
		assert.Less(t, d.Peek("key").Remaining, int64(10), "%v: the two units that are kept must start to drain now", p)
		assert.False(t, d.Take("key", 9).Allowed, "%v", p)
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
		which := 0
		d := newDesk(t, c.two[0], func(string) policy.Policy { return c.two[which] })
		d.advance(time.Minute)
		r := d.Reserve("key", 4, 0)
		which = 1
		require.True(t, d.Take("key", 1).Allowed)
		which = 0
		before := d.Peek("key")
		r.Keep(1)
		assert.Equal(t, c.back, d.Peek("key").Remaining-before.Remaining, "%v", c.two[0])
		assert.Equal(t, c.back == 0, before == d.Peek("key"), "%v", c.two[0])

		// If no call came since, it is as if no more had been asked for under that limit.
		which = 1
		require.True(t, d.Reserve("asked", 2, 0).Allowed)
		r = d.Reserve("kept", 4, 0)
		which = 0
		r.Keep(2)
		assert.Equal(t, d.Peek("asked"), d.Peek("kept"), "%v", c.two[0])
	}
}

// A part that has a turn to wait for is given back as under the cell's own limit.
func TestKeepOfATurnUnderAChosenLimit(t *testing.T) {
	limit := funnel(10, 1, time.Second)
	for _, chosen := range []policy.Policy{nil, limit} {
		d := newDesk(t, limit, func(string) policy.Policy { return chosen })
		require.True(t, d.Take("key", 10).Allowed)
		r := d.Reserve("key", 5, time.Minute)
		require.Equal(t, 5*time.Second, r.Wait)
		r.Keep(2)
		assert.Equal(t, 12*time.Second, d.Peek("key").ResetAfter, "%v", chosen)
	}
}

// A smaller limit is chosen for the key after a reservation under the cell's own, and perhaps
// dropped before the Cancel. A call that queued under it keeps its turn.
func TestCancelWhenAnotherLimitIsChosen(t *testing.T) {
	small := funnel(10, 1, time.Millisecond)
	for _, then := range []policy.Policy{small, nil} {
		var limit policy.Policy
		d := newDesk(t, funnel(100, 1, time.Millisecond), func(string) policy.Policy { return limit })
		r := d.Reserve("key", 100, 0)
		limit = small
		second := d.Reserve("key", 10, time.Minute)
		require.Equal(t, 100*time.Millisecond, second.Wait)
		limit = then
		r.Cancel()
		limit = small
		d.advance(95 * time.Millisecond)
		third := d.Reserve("key", 10, time.Minute)
		assert.Equal(t, 15*time.Millisecond, third.Wait, "the third call must wait 10 ms behind the second, which begins in 5")
	}
}

func TestCancelAfterATakeAtOnceUnderAnotherLimit(t *testing.T) {
	var limit policy.Policy
	d := newDesk(t, funnel(10, 1, time.Second), func(string) policy.Policy { return limit })
	r := d.Reserve("key", 4, 0)
	limit = funnel(20, 1, time.Second)
	require.True(t, d.Take("key", 3).Allowed)
	r.Cancel()
	limit = nil
	assert.EqualValues(t, 7, d.Peek("key").Remaining)
}

// row is an allowed call.
type row struct {
	// reservation is nil once it has ended.
	reservation *reservation
	// start is when the call acts, and n is on how many units.
	start, n int64
}

// bounded is a limit with the largest excess of rows over it in any window.
type bounded struct {
	policy.Policy
	// interval is the nanoseconds in which a unit comes back.
	interval int64
	excess   func(rows []row) int64
}

// drains is a funnel. The excess is in nanoseconds.
func drains(capacity, interval int64) bounded {
	return bounded{funnel(capacity, 1000, time.Duration(1000*interval)), interval, func(rows []row) (over int64) {
		acts := slices.DeleteFunc(slices.Clone(rows), func(r row) bool { return r.n == 0 })
		slices.SortStableFunc(acts, func(a, b row) int { return cmp.Compare(a.start, b.start) })
		drained := int64(0)
		for _, r := range acts {
			drained = max(drained, r.start) + r.n*interval
			over = max(over, drained-r.start-capacity*interval)
		}
		return over
	}}
}

// hard is an AtMost. The excess is in units.
func hard(limit, per int64) bounded {
	return bounded{policy.Must(policy.AtMost(limit, time.Duration(per))), per / limit, func(rows []row) (over int64) {
		for _, first := range rows {
			units := -limit
			for _, r := range rows {
				if first.start <= r.start && r.start <= first.start+per {
					units += r.n
				}
			}
			over = max(over, units)
		}
		return over
	}}
}

// Random calls on a key, and a Cancel or Keep of any of them. The clock often advances by whole
// and half units, so that words repeat. After each step the calls that keep their units, at their
// promised times, keep to the limit in every window. If the key's limit changes with the calls,
// each limit holds for its own calls.
// Promise: `Cancel` moves no promised turn and never exceeds the limit.
// Promise: `Keep` returns units to their window, within the limit.
func TestCancelNeverExceedsTheLimit(t *testing.T) {
	const per = int64(8 * time.Millisecond)
	for name, limits := range map[string][]bounded{
		"one limit":          {drains(10, 1000)},
		"limits that change": {drains(10, 1000), drains(2, 20_000), drains(100, 50), drains(3, 1000)},
		"in eight parts":     {hard(5, per)},
		"in one part":        {hard(100, per)},
	} {
		t.Run(name, func(t *testing.T) {
			chosen := 0
			var choose func(string) policy.Policy
			if len(limits) > 1 {
				choose = func(string) policy.Policy { return limits[chosen].Policy }
			}
			d := newDesk(t, limits[0].Policy, choose)
			given := 0
			for round := range 3000 / testenv.RaceSlowdown {
				dice := rand.New(rand.NewPCG(41, uint64(round)))
				key := number(round)
				rows := make([][]row, len(limits))
				for range 40 {
					now, l := d.now.Load(), limits[chosen]
					add := func(n int64, wait time.Duration, r *reservation) {
						rows[chosen] = append(rows[chosen], row{reservation: r, start: now + int64(wait), n: n})
					}
					n := 1 + dice.Int64N(l.Limit())
					switch dice.IntN(12) {
					case 0:
						d.advance(time.Duration(dice.Int64N(8) * l.interval / 2))
					case 1:
						d.advance(time.Duration(dice.Int64N(6 * limits[0].interval)))
					case 2:
						chosen = dice.IntN(len(limits)) * dice.IntN(2)
					case 3:
						if d.Choke(key) {
							add(1, 0, nil)
						}
					case 4:
						if d.Take(key, n).Allowed {
							back := dice.Int64N(n + 1)
							d.Refund(key, back)
							add(n-back, 0, nil)
						}
					case 5:
						if choose == nil && dice.IntN(4) == 0 {
							d.Refund(key, -n)
						}
					case 6, 7, 8:
						if r := d.Reserve(key, n, time.Duration(dice.Int64N(60*limits[0].interval)*dice.Int64N(2))); r.Allowed {
							add(n, r.Wait, &r)
						}
					default:
						row := rows[dice.IntN(len(limits))]
						if len(row) == 0 {
							continue
						}
						r := &row[dice.IntN(len(row))]
						if r.reservation == nil || name == "one limit" && r.start < now {
							continue
						}
						kept := dice.Int64N(r.n+1) * dice.Int64N(2)
						before := d.Peek(key)
						r.reservation.Keep(kept)
						r.reservation, r.n = nil, kept
						if after := d.Peek(key); after.ResetAfter < before.ResetAfter || after.Remaining > before.Remaining {
							given++
						}
					}
					for i, l := range limits {
						require.Zero(t, l.excess(rows[i]), "round %d, %v: %+v", round, l.Policy, rows[i])
					}
				}
				d.settle()
			}
			assert.Greater(t, given, 1000/testenv.RaceSlowdown)
		})
	}
}

// A word that a reservation left may return with other units: the first gave its own back, another
// took as many. Cancelling gives back none of those.
func TestCancelWhenTheWordIsTheSameByChance(t *testing.T) {
	for _, refunded := range []bool{false, true} {
		d := newDesk(t, funnel(10, 1, time.Second), nil)
		first, second := d.Reserve("key", 5, 0), d.Reserve("key", 5, 0)
		if refunded {
			d.Refund("key", 5)
		} else {
			first.Cancel()
		}
		d.advance(4 * time.Second)
		require.True(t, d.Take("key", 5).Allowed)
		// 1 of its 5 units has not drained.
		second.Cancel()
		assert.Equal(t, 5*time.Second, d.Peek("key").ResetAfter)
	}
}

// Two changes of the limit restore the word, but not its meaning.
func TestCancelAfterTwoChanges(t *testing.T) {
	d := newDesk(t, funnel(10, 1, time.Second), nil)
	r := d.Reserve("key", 4, 0)
	require.True(t, r.Allowed)
	d.settle()
	d.change(funnel(20, 1, time.Second))
	d.change(funnel(10, 1, time.Second))
	r.Cancel()
	assert.EqualValues(t, 6, d.Peek("key").Remaining)
}

// A call takes 3 units. Other calls take and give back before it gives back. If their takes are
// remembered, all comes back. If a take is not remembered, the units that do not fit into the
// bucket beside the other takes stay charged, and never more than it took.
func TestGiveBackLosesUnitsTakenBeyondTheBucket(t *testing.T) {
	const capacity, units = 60, 3
	for pairs, want := range map[int]int64{0: 0, 1: 0, 5: 0, 9: 0, 10: 3, 12: 3, 40: 3} {
		for _, remembered := range []bool{true, false} {
			d := newDesk(t, funnel(capacity, 1, time.Hour), nil)
			late := d.Reserve("key", units, 0)
			require.True(t, late.Allowed)
			for range pairs {
				// The first is not the last take, so its return is announced.
				first, second := d.Reserve("key", units, 0), d.Reserve("key", units, 0)
				require.True(t, first.Allowed && second.Allowed)
				first.Cancel()
				second.Cancel()
			}
			left := capacity - d.Peek("key").Remaining
			require.EqualValues(t, units, left, "after %d pairs the other calls must have left nothing", pairs)
			if remembered {
				late.Cancel()
				assert.EqualValues(t, capacity, d.Peek("key").Remaining, "after %d pairs the key is not empty", pairs)
				continue
			}
			require.True(t, d.Choke("key"))
			late.Cancel()
			assert.Equal(t, want, capacity-d.Peek("key").Remaining-1, "after %d pairs another number of units is used than taken", pairs)
		}
	}
}

// A call that computes its give-back again does not count its own announcement as another's.
func TestKeepDoesNotCountItsOwnReturn(t *testing.T) {
	d := newDesk(t, funnel(10, 1, time.Second), nil)
	r := d.Reserve("key", 4, 0)
	require.True(t, d.Take("key", 1).Allowed)
	overtaken := 0
	d.on(map[string]func(){"cancel: judged": func() {
		if overtaken++; overtaken < 3 {
			require.True(t, d.Take("key", 1).Allowed)
		}
	}})
	r.Keep(0)
	assert.Equal(t, 3, overtaken)
	assert.EqualValues(t, 7, d.Peek("key").Remaining, "the other calls must keep their three units")
}

// 64 goroutines reserve and cancel on a key while the clock stands still. Kept units stay taken.
// More may be missing in the end: a goroutine held up in between cannot know that none of the many
// units given back since were below its own. At leisure nothing is lost.
// Promise: `Cancel` returns no units of other calls.
func TestConcurrentCancelGivesNoOtherUnitsBack(t *testing.T) {
	const capacity = 1000
	d := newDesk(t, funnel(capacity, 1, time.Second), nil)
	var kept atomic.Int64
	var all sync.WaitGroup
	for i := range uint64(64) {
		all.Go(func() {
			dice := rand.New(rand.NewPCG(44, i))
			for range 2000 / testenv.RaceSlowdown {
				n := 1 + dice.Int64N(5)
				r := d.Reserve("key", n, 0)
				if r.Allowed && dice.IntN(1000) == 0 {
					kept.Add(n)
					continue
				}
				r.Cancel()
				r.Cancel()
			}
		})
	}
	all.Wait()
	assert.Positive(t, kept.Load())
	assert.LessOrEqual(t, d.Peek("key").Remaining, capacity-kept.Load())
	// There is something to reserve then.
	d.Refund("key", 10)
	left := d.Peek("key").Remaining
	for range 100 {
		first, second := d.Reserve("key", 3, 0), d.Reserve("key", 4, 0)
		first.Cancel()
		second.Cancel()
	}
	assert.Equal(t, left, d.Peek("key").Remaining)
}

// A wait that need not wait is remembered if the key has a reservation, also if that is made between the wait's
// look and its swap. Then Cancel of the reservation leaves the key as if only the wait had taken.
func TestWaitIsRememberedBesideAReservation(t *testing.T) {
	for _, meanwhile := range []bool{false, true} {
		d := newDesk(t, funnel(10, 1, time.Second), nil)
		d.now.Store(int64(time.Hour))
		d.Take("key", 1)
		d.settle()
		d.advance(time.Minute)
		var r reservation
		reserve := func() {
			d.on(nil)
			r = d.Reserve("key", 5, 0)
			require.True(t, r.Allowed)
		}
		if meanwhile {
			d.on(map[string]func(){"known: decided": reserve})
		} else {
			reserve()
			d.advance(2 * time.Second)
		}
		require.NoError(t, d.Wait(t.Context(), "key", 1))
		d.advance(3 * time.Second)
		r.Cancel()
		assert.EqualValues(t, 10, d.Peek("key").Remaining, "the unit of the waiting call must have drained")
	}
}

// A policy that takes for a key while its own take is repeated meets the key's lock. It blocks no call for ever: that
// take is not remembered, and is given back as far as the word tells.
func TestReserveUnderAHeldLockIsNotRemembered(t *testing.T) {
	d := newDesk(t, funnel(10, 1, time.Second), nil)
	d.Take("key", 1)
	d.settle()
	e := d.view.Look(d.hashOf("key"), "key")
	require.True(t, e.LockReturn())
	r := d.Reserve("key", 5, 0)
	d.Refund("key", -1)
	e.UnlockReturn()
	require.True(t, r.Allowed)
	assert.EqualValues(t, 3, d.Peek("key").Remaining)
	assert.Zero(t, r.Held.remembered)
	r.Cancel()
	assert.EqualValues(t, 8, d.Peek("key").Remaining)
	r = d.Reserve("key", 1, 0)
	assert.NotZero(t, r.Held.remembered)
	r.Cancel()
}

// A refund whose swap another call overtakes counts as well.
func TestOvertakenRefundCounts(t *testing.T) {
	for _, overtaken := range []int64{0, 2} {
		d := newDesk(t, funnel(10, 1, time.Second), nil)
		d.now.Store(int64(time.Hour))
		d.Take("key", 5)
		d.settle()
		d.on(map[string]func(){"refund: undone": func() {
			d.on(nil)
			require.True(t, d.Take("key", overtaken).Allowed)
		}})
		require.Equal(t, 8-overtaken, d.Refund("key", 3).Remaining)
		require.Equal(t, 8-overtaken, d.Peek("key").Remaining)
	}
}

// A refund announces its units, also in a single swap. So a reservation from before it, whose word comes back by
// chance, does not give back the units of a later call.
func TestRefundIsSeenByReservations(t *testing.T) {
	d := newDesk(t, funnel(10, 1, time.Second), nil)
	d.now.Store(int64(time.Hour))
	d.Take("key", 5)
	d.settle()
	r := d.Reserve("key", 5, 0)
	d.advance(5 * time.Second)
	require.EqualValues(t, 10, d.Refund("key", 5).Remaining)
	require.True(t, d.Take("key", 5).Allowed)
	require.Equal(t, r.after, d.view.Look(d.hashOf("key"), "key").Word(), "the word must be as the reservation left it")
	r.Cancel()
	require.EqualValues(t, 5, d.Peek("key").Remaining)
}
