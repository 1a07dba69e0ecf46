package engine

import (
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/policy"
)

// planned returns an engine whose keys have the limit in plan.
func planned(t testing.TB, first policy.Policy) (*Engine[string], *handClock, *atomic.Pointer[policy.Policy]) {
	t.Helper()
	clock, plan := newHandClock(), &atomic.Pointer[policy.Policy]{}
	plan.Store(&first)
	e := openFor(t, Config{Policy: first, Clock: clock.Now}, func(string) policy.Policy { return *plan.Load() })
	clock.Advance(100 * time.Second)
	return e, clock, plan
}

// Promise: `ChangeLimit` counts units, not time, so upgrades free keys.
func TestChangeLimitFreesAnUpgradedKey(t *testing.T) {
	small, large := funnel(10, 10, time.Hour), funnel(1000, 1000, time.Hour)
	e, _, plan := planned(t, small)
	require.True(t, e.Take("k", 10).Allowed)
	plan.Store(&large)
	require.False(t, e.Choke("k"), "the limits share time until the engine is told")
	require.NoError(t, e.ChangeLimit("k", small, large))
	assert.EqualValues(t, 990, e.Peek("k", 0).Remaining)
	for _, d := range e.All() {
		assert.EqualValues(t, 990, d.Remaining)
	}
	d := e.Take("k", 1)
	require.True(t, d.Allowed)
	assert.EqualValues(t, 989, d.Remaining)
	assert.True(t, e.Take("k", 989).Allowed)
	assert.False(t, e.Choke("k"))

	// TakeWith shares time, as in redis-cell.
	e.Reset("k")
	require.True(t, e.Take("k", 11).Allowed)
	assert.EqualValues(t, 9, e.TakeWith(small, "k", 0).Remaining, "11 units are 39.6 s, of an hour for 10")
}

// Units taken under the new limit before the change count up to the old limit.
func TestChangeLimitForgetsEarlierTakesOfTheNewLimit(t *testing.T) {
	small, large := funnel(10, 10, time.Hour), funnel(1000, 1000, time.Hour)
	for took, remain := range map[int64]int64{0: 1000, 100: 999, 1000: 990} {
		e, _, plan := planned(t, small)
		plan.Store(&large)
		require.True(t, e.Take("k", took).Allowed)
		require.NoError(t, e.ChangeLimit("k", small, large))
		assert.Equal(t, remain, e.Peek("k", 0).Remaining, "%d taken", took)
	}
}

// A lowered key is full at most, and use above the lower limit is forgotten.
func TestChangeLimitFillsALoweredKey(t *testing.T) {
	small, large := funnel(10, 10, time.Hour), funnel(1000, 1000, time.Hour)
	for _, c := range []struct{ used, low, again int64 }{{4, 6, 996}, {10, 0, 990}, {500, 0, 990}, {1000, 0, 990}} {
		e, _, plan := planned(t, large)
		require.True(t, e.Take("k", c.used).Allowed)
		plan.Store(&small)
		require.NoError(t, e.ChangeLimit("k", large, small))
		d := e.Take("k", 0)
		assert.Equal(t, c.low, d.Remaining)
		assert.LessOrEqual(t, d.ResetAfter, time.Hour)
		plan.Store(&large)
		require.NoError(t, e.ChangeLimit("k", small, large))
		assert.Equal(t, c.again, e.Peek("k", 0).Remaining)
	}
}

func TestChangeLimitToAndFroMintsNothing(t *testing.T) {
	small, large := funnel(10, 7, time.Hour), funnel(1000, 999, time.Hour)
	e, _, plan := planned(t, small)
	for range 10 {
		require.True(t, e.Choke("k"))
	}
	for range 100 {
		plan.Store(&large)
		require.NoError(t, e.ChangeLimit("k", small, large))
		require.LessOrEqual(t, e.Peek("k", 0).Remaining, int64(990))
		plan.Store(&small)
		require.NoError(t, e.ChangeLimit("k", large, small))
		require.False(t, e.Choke("k"))
	}
}

// Used units count under the other limit, up to the whole.
func TestChangeLimitInEveryFamily(t *testing.T) {
	must := policy.Must
	for _, c := range []struct {
		small, large policy.Policy
		left         int64 // of the larger, after 10 units used up the smaller
	}{
		{funnel(10, 10, time.Minute), funnel(100, 50, time.Second), 90},
		{must(policy.FixedWindow(10, time.Minute)), must(policy.FixedWindow(100, time.Minute)), 90},
		{must(policy.SlidingWindow(10, time.Minute)), must(policy.SlidingWindow(100, time.Minute)), 90},
		{must(policy.AtMost(10, time.Minute)), must(policy.AtMost(100, time.Minute)), 90},
		{must(policy.Bursty(10, time.Minute, 10)), must(policy.Bursty(100, time.Minute, 100)), 91},
		{must(policy.WarmingUp(10, time.Second, 4*time.Second, 3)), must(policy.WarmingUp(10, time.Second, 4*time.Second, 3)), 0},
	} {
		e, clock, plan := planned(t, c.small)
		clock.Advance(time.Hour) // so that a store is full
		require.True(t, e.Take("k", 10).Allowed, c.small)
		plan.Store(&c.large)
		before := e.Peek("k", 0)
		require.NoError(t, e.ChangeLimit("k", c.small, c.large), c.small)
		d := e.Peek("k", 0)
		assert.GreaterOrEqual(t, d.Remaining, before.Remaining, c.small)
		assert.Equal(t, c.left, d.Remaining, c.small)
		plan.Store(&c.small)
		require.NoError(t, e.ChangeLimit("k", c.large, c.small), c.small)
		assert.LessOrEqual(t, e.Peek("k", 0).Remaining, int64(1), c.small)
	}

	// A queue keeps promised turns, and the last interval becomes the new one.
	slow, fast := must(policy.Queue(10, 1, time.Minute)), must(policy.Queue(10, 60, time.Minute))
	e, _, plan := planned(t, slow)
	require.True(t, e.Choke("k"))
	plan.Store(&fast)
	require.NoError(t, e.ChangeLimit("k", slow, fast))
	d := e.Take("k", 1)
	assert.Equal(t, []any{true, time.Second}, []any{d.Allowed, d.Wait})
}

// Promise: `ChangeLimit` keeps promised turns.
// Promise: `ChangeLimit` with `KeepShare` keeps the used share of the limit, rounded up to a unit.
func TestChangeLimitKeepsTheShare(t *testing.T) {
	for name, limit := range map[string]func(n int64) policy.Policy{
		"funnel":  func(n int64) policy.Policy { return funnel(n, n, time.Hour) },
		"fixed":   func(n int64) policy.Policy { return policy.Must(policy.FixedWindow(n, time.Hour)) },
		"sliding": func(n int64) policy.Policy { return policy.Must(policy.SlidingWindow(n, time.Hour)) },
		"queue":   func(n int64) policy.Policy { return policy.Must(policy.Queue(n-1, n, time.Hour)) },
	} {
		for _, limits := range [][]int64{{10, 1000}, {1000, 10}, {7, 3}, {3, 7}, {10, 10}} {
			from, to := limit(limits[0]), limit(limits[1])
			for used := range from.Limit() + 1 {
				e, _, plan := planned(t, from)
				require.True(t, e.Take("k", used).Allowed)
				before := from.Limit() - e.Peek("k", 0).Remaining
				plan.Store(&to)
				require.NoError(t, e.ChangeLimit("k", from, to, KeepShare))
				share := (before*to.Limit() + from.Limit() - 1) / from.Limit()
				require.Equal(t, to.Limit()-share, e.Peek("k", 0).Remaining, "%s, %d used of %v, then %v", name, used, from, to)
				require.NoError(t, e.Close())
			}
		}
	}
}

func TestChangeLimitKeepsPromisedTurns(t *testing.T) {
	for _, keep := range []Keep{KeepUsed, KeepShare} {
		changeKeepsPromisedTurns(t, keep)
	}
}

func changeKeepsPromisedTurns(t *testing.T, keep Keep) {
	for i, p := range each() {
		wider := []policy.Policy{
			funnel(1000, 1, time.Second), policy.Must(policy.FixedWindow(1000, 10*time.Second)),
			policy.Must(policy.SlidingWindow(1000, 10*time.Second)), policy.Must(policy.AtMost(1000, 10*time.Second)),
			nil, policy.Must(policy.Bursty(1, time.Second, 1000)), nil,
		}[i]
		if wider == nil {
			continue
		}
		e, clock, plan := planned(t, p)
		require.True(t, e.Take("k", 10).Allowed, p)
		r := e.Reserve("k", 5, time.Hour)
		if r.Wait == 0 { // on credit
			r = e.Reserve("k", 5, time.Hour)
		}
		require.True(t, r.Allowed, p)
		require.Positive(t, r.Wait, p)
		plan.Store(&wider)
		require.NoError(t, e.ChangeLimit("k", p, wider, keep))
		clock.Advance(r.Wait - 1)
		assert.False(t, e.Choke("k"), "%v, %v", p, keep)
	}
}

func TestChangeLimitRepeatedTranslatesAgain(t *testing.T) {
	small, large := funnel(10, 10, time.Hour), funnel(1000, 1000, time.Hour)
	e, _, plan := planned(t, large)
	require.True(t, e.TakeWith(small, "k", 10).Allowed)
	require.NoError(t, e.ChangeLimit("k", small, large))
	require.NoError(t, e.ChangeLimit("k", small, large))
	assert.EqualValues(t, 999, e.Peek("k", 0).Remaining, "36 s were read as a tenth of a unit of the smaller limit")
	require.NoError(t, e.ChangeLimit("k", large, small))
	plan.Store(&small)
	assert.EqualValues(t, 9, e.Peek("k", 0).Remaining)
	require.NoError(t, e.ChangeLimit("k", small, small))
	assert.EqualValues(t, 9, e.Peek("k", 0).Remaining, "one limit is no change")
}

// For limits that come with the calls. nil is the engine's own.
func TestChangeLimitWithoutPolicyFor(t *testing.T) {
	small, large := funnel(10, 10, time.Hour), funnel(1000, 1000, time.Hour)
	clock := newHandClock()
	e := open[string](t, Config{Policy: small, Clock: clock.Now})
	require.True(t, e.Take("k", 10).Allowed)
	require.NoError(t, e.ChangeLimit("k", nil, large))
	assert.EqualValues(t, 990, e.TakeWith(large, "k", 0).Remaining)
	assert.EqualValues(t, 9, e.Peek("k", 0).Remaining, "the engine's own limit shares time with it")
	require.NoError(t, e.ChangeLimit("k", large, nil))
	assert.False(t, e.Choke("k"))
	require.NoError(t, e.ChangeLimit("k", nil, nil))
	assert.False(t, e.Choke("k"))

	// nil is the limit after SetPolicy.
	require.NoError(t, e.SetPolicy(funnel(20, 10, time.Hour)))
	require.NoError(t, e.ChangeLimit("k", nil, large))
	assert.EqualValues(t, 990, e.TakeWith(large, "k", 0).Remaining)
}

// A reservation from before gives nothing back, unless its word is unchanged.
func TestChangeLimitEndsReservations(t *testing.T) {
	small, large := funnel(10, 10, time.Hour), funnel(1000, 1000, time.Hour)
	e, _, plan := planned(t, small)
	r := e.Reserve("k", 10, 0)
	plan.Store(&large)
	require.NoError(t, e.ChangeLimit("k", small, large))
	r.Cancel()
	assert.EqualValues(t, 990, e.Peek("k", 0).Remaining)
	r = e.Reserve("k", 10, 0)
	r.Cancel()
	assert.EqualValues(t, 990, e.Peek("k", 0).Remaining, "a later one does")
	r = e.Reserve("k", 10, 0)
	plan.Store(&small)
	require.NoError(t, e.ChangeLimit("k", large, small))
	plan.Store(&large)
	require.NoError(t, e.ChangeLimit("k", small, large))
	r.Cancel()
	assert.EqualValues(t, 990, e.Peek("k", 0).Remaining)

	// Under the engine's own limit Cancel works for other takes than the last.
	e = open[string](t, Config{Policy: small, Clock: newHandClock().Now})
	r = e.Reserve("k", 10, 0)
	require.NoError(t, e.ChangeLimit("k", nil, large))
	require.True(t, e.TakeWith(large, "k", 500).Allowed)
	r.Cancel()
	assert.EqualValues(t, 490, e.TakeWith(large, "k", 0).Remaining)

	few, many := policy.Must(policy.FixedWindow(10, time.Minute)), policy.Must(policy.FixedWindow(100, time.Minute))
	e, _, plan = planned(t, few)
	r = e.Reserve("k", 10, 0)
	plan.Store(&many)
	require.NoError(t, e.ChangeLimit("k", few, many))
	r.Cancel()
	assert.EqualValues(t, 100, e.Peek("k", 0).Remaining)
}

// Calls in line get turns under the new limit, in order. Calls that it never allows end.
func TestChangeLimitWhileCallsWait(t *testing.T) {
	small, large := funnel(10, 10, time.Hour), funnel(1000, 1000, time.Hour)
	for _, up := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			from, to, used := small, large, int64(10)
			if !up {
				from, to, used = large, small, 1000
			}
			plan := &atomic.Pointer[policy.Policy]{}
			plan.Store(&from)
			e := openFor(t, Config{Policy: small}, func(string) policy.Policy { return *plan.Load() })
			require.True(t, e.Take("key", used).Allowed)
			l := inLine{e: e, began: time.Now()}
			var never error
			l.wait(t, 0, 4)
			l.wait(t, 1, 3)
			if !up {
				l.all.Go(func() { never = e.Wait(t.Context(), "key", 11) })
				synctest.Wait()
			}
			l.wait(t, 2, 1)
			time.Sleep(5 * time.Second)
			synctest.Wait()
			plan.Store(&to)
			require.NoError(t, e.ChangeLimit("key", from, to))
			l.all.Wait()
			if up {
				for i, end := range l.ends[:3] {
					assert.Equal(t, 5*time.Second, end, "%d", i)
				}
				assert.EqualValues(t, 1000-10-8, e.Peek("key", 0).Remaining)
			} else {
				assert.ErrorIs(t, never, ErrNever)
				for i, units := range []time.Duration{4, 7, 8} {
					assert.InDelta(t, 5*time.Second+units*6*time.Minute, l.ends[i], float64(time.Millisecond), "%d", i)
				}
			}
			noLines(t, e)
		})
	}
}

// The turn of a reservation stands, and calls in line wait for it.
func TestChangeLimitWhileCallsWaitBehindAReservation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		small, large := funnel(10, 10, time.Hour), funnel(1000, 1000, time.Hour)
		holds := small
		e := openFor(t, Config{Policy: small}, func(string) policy.Policy { return holds })
		require.True(t, e.Take("key", 10).Allowed)
		r := e.Reserve("key", 1, time.Hour)
		require.Equal(t, 6*time.Minute, r.Wait)
		l := inLine{e: e, began: time.Now()}
		l.wait(t, 0, 1)
		holds = large
		require.NoError(t, e.ChangeLimit("key", small, large))
		l.all.Wait()
		assert.Greater(t, l.ends[0], r.Wait)
		assert.Less(t, l.ends[0], r.Wait+10*time.Second)
		noLines(t, e)
	})
}

// A key that is not in the table, or can never be, is not translated or opened.
func TestChangeLimitOfAnUnknownKey(t *testing.T) {
	small, large := funnel(10, 10, time.Hour), funnel(1000, 1000, time.Hour)
	e := open[any](t, Config{Policy: small})
	for _, key := range []any{"new", math.NaN(), []int{1}, map[string]int{}, nil, [1]any{[]int{}}} {
		assert.NoError(t, e.ChangeLimit(key, small, large), "%v", key)
	}
	assert.Zero(t, e.Len())
	clock := newHandClock()
	e = open[any](t, Config{Policy: small, Clock: clock.Now})
	require.True(t, e.Choke("drained"))
	clock.Advance(time.Hour)
	require.NoError(t, e.ChangeLimit("drained", small, large))
	assert.EqualValues(t, 1000, e.TakeWith(large, "drained", 0).Remaining)
}

type noFamily struct{ policy.Policy }

func TestChangeLimitErrors(t *testing.T) {
	small := funnel(10, 10, time.Hour)
	e := open[string](t, Config{Name: "api", Policy: small})
	require.True(t, e.Take("key", 10).Allowed)
	before := e.Peek("key", 0).Remaining
	window := policy.Must(policy.FixedWindow(10, time.Hour))
	for _, key := range []string{"key", "unknown"} {
		for _, c := range []struct {
			from, to policy.Policy
			field    string
		}{{window, small, "from"}, {small, window, "to"}, {noFamily{small}, nil, "from"}, {nil, noFamily{small}, "to"}} {
			err := e.ChangeLimit(key, c.from, c.to)
			var refused *policy.FieldError
			require.ErrorAs(t, err, &refused)
			assert.Equal(t, []string{"ChangeLimit", c.field}, []string{refused.Of, refused.Field})
			assert.Contains(t, err.Error(), `engine "api"`)
			assert.Contains(t, err.Error(), small.String())
		}
	}
	require.EqualError(t, e.ChangeLimit("key", small, small, 7), "ral: ChangeLimit: keep is 7, want KeepUsed or KeepShare")
	assert.Equal(t, before, e.Peek("key", 0).Remaining)
	require.NoError(t, e.Close())
	assert.ErrorIs(t, e.ChangeLimit("key", small, small), ErrClosed)

	odd := open[string](t, Config{Policy: pacer{time.Second, time.Minute}})
	var refused *policy.FieldError
	assert.ErrorAs(t, odd.ChangeLimit("key", nil, nil), &refused, "the engine's own limit has no family")
}

// A take that has decided on the word before the change decides again.
func TestChangeLimitOvertakesATake(t *testing.T) {
	small := &hooked{Policy: funnel(10, 10, time.Hour)}
	own := &hooked{Policy: funnel(1000, 1000, time.Hour)}
	e := open[string](t, Config{Policy: own, Clock: newHandClock().Now})
	require.True(t, e.TakeWith(small, "k", 10).Allowed)
	settled(t, e)
	own.overtake(func() { require.NoError(t, e.ChangeLimit("k", small, own)) })
	require.False(t, e.Take("k", 1).Allowed, "a refusal is not decided again")
	assert.EqualValues(t, 990, e.Peek("k", 0).Remaining)
	own.overtake(func() { require.NoError(t, e.ChangeLimit("k", own, small)) })
	assert.False(t, e.Take("k", 990).Allowed, "which had room before the change")
	assert.Zero(t, e.TakeWith(small, "k", 0).Remaining)
}

func TestChangeLimitIsOvertakenByATake(t *testing.T) {
	small := funnel(10, 10, time.Hour)
	own := &hooked{Policy: funnel(1000, 1000, time.Hour)}
	e := open[string](t, Config{Policy: own, Clock: newHandClock().Now})
	require.True(t, e.TakeWith(small, "k", 4).Allowed)
	var r Reservation[string]
	own.carried = once(func() {
		require.True(t, e.TakeWith(small, "k", 5).Allowed)
		r = e.Reserve("k", 1, 0)
		require.True(t, r.Allowed)
	})
	require.NoError(t, e.ChangeLimit("k", small, own))
	assert.EqualValues(t, 1000-10, e.Peek("k", 0).Remaining, "9 units of the one and one, of 36 s, of the other")
	r.Cancel()
	assert.EqualValues(t, 1000-10, e.Peek("k", 0).Remaining, "it is from before the swap")
}

// Otherwise takes could restore the word that the Cancel has seen, and it would give them back.
func TestChangeLimitWaitsForACancel(t *testing.T) {
	own, large := &hooked{Policy: funnel(5, 1, time.Hour)}, &hooked{Policy: funnel(10, 2, time.Hour)}
	e := open[string](t, Config{Policy: own, Clock: newHandClock().Now})
	r := e.Reserve("k", 2, 0)
	require.True(t, e.Choke("k"))
	settled(t, e)
	waits, done := seeReturnWaits(t, e), make(chan struct{})
	own.undone = once(func() {
		go func() {
			defer close(done)
			assert.NoError(t, e.ChangeLimit("k", own, large))
			assert.True(t, e.TakeWith(large, "k", 3).Allowed)
		}()
		select {
		case <-done:
			t.Error("the change did not wait")
		case <-waits:
		}
	})
	r.Cancel()
	<-done
	assert.EqualValues(t, 10-1-3, e.TakeWith(large, "k", 0).Remaining)
}

// Promise: Calls racing `ChangeLimit` get no more than both limits admit.
func TestChangeLimitUnderRaces(t *testing.T) {
	small, large := funnel(100, 1, time.Hour), funnel(1000, 10, time.Hour)
	for _, up := range []bool{true, false} {
		t.Run(fmt.Sprint("up ", up), func(t *testing.T) {
			from, to, used := small, large, int64(100)
			if !up {
				from, to, used = large, small, 1000
			}
			clock := newHandClock()
			e := open[string](t, Config{Policy: from, Clock: clock.Now})
			var before, after, changed atomic.Int64
			together(8, func(i int) {
				for n := range 2000 {
					if i == 0 && n == 200 {
						assert.NoError(t, e.ChangeLimit("k", from, to))
						changed.Store(1)
					}
					late, limit := changed.Load() == 1, from
					if i%2 == 1 {
						limit = to
					}
					if !e.TakeWith(limit, "k", 1).Allowed {
						continue
					}
					if late {
						after.Add(1)
					} else {
						before.Add(1)
					}
				}
			})
			t.Logf("%d before the change was over, %d after it, of %d used", before.Load(), after.Load(), used)
			assert.LessOrEqual(t, before.Load(), 2*int64(1100), "both limits together, before and after the swap")
			assert.LessOrEqual(t, after.Load(), int64(1100))
			assert.GreaterOrEqual(t, before.Load()+after.Load(), int64(100))
			assert.False(t, e.TakeWith(to, "k", 1).Allowed)
		})
	}
}

// In a Tiered each limit of a key changes by itself. Calls that wait for the key get new turns, in
// order, sooner or later, and are charged by both limits once.
func TestChangeLimitOfOneTier(t *testing.T) {
	small, large := funnel(10, 10, time.Hour), funnel(1000, 1000, time.Hour)
	for _, up := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			tiers := openTiered[string](t, Config{Policy: funnel(10, 1, time.Second)}, small)
			second, hour := tiers.Engines()[0], tiers.Engines()[1]
			from, to, left := policy.Policy(nil), large, int64(1) // of 10 units that have drained
			ends := []time.Duration{10 * time.Second, 10 * time.Second}
			if up {
				require.True(t, tiers.Take("key", 10).Allowed)
			} else {
				// That is one unit of 10 an hour.
				require.True(t, hour.TakeWith(large, "key", 100).Allowed)
				require.True(t, hour.Take("key", 9).Allowed)
				from, to, left = large, nil, 7 // after the second, as the first has drained
				ends = []time.Duration{10*time.Second + 36*time.Minute, 10*time.Second + 54*time.Minute}
			}
			began := time.Now()
			var all sync.WaitGroup
			var got [2]time.Duration
			for i, n := range []int64{6, 3} {
				all.Go(func() {
					assert.NoError(t, tiers.Wait(t.Context(), "key", n))
					got[i] = time.Since(began)
				})
				synctest.Wait()
			}
			time.Sleep(10 * time.Second)
			synctest.Wait()
			require.Zero(t, got, "they wait")
			require.NoError(t, hour.ChangeLimit("key", from, to))
			all.Wait()
			for i, end := range ends {
				assert.InDelta(t, end, got[i], float64(time.Millisecond), "up %v, call %d", up, i)
			}
			assert.Equal(t, left, second.Peek("key", 0).Remaining)
			noLines(t, second)
			noLines(t, hour)
		})
	}
}
