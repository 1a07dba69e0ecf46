package cell

import (
	"fmt"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/internal/testkit/limitstest"
	"github.com/ral-limiter/ral/policy"
	"github.com/ral-limiter/ral/table"
)

// The calls bring their limits, which share time until the cell is told of a change.
// Promise: `ChangeLimit` counts units, not time, so upgrades free keys.
func TestChangeLimitCountsUsedUnits(t *testing.T) {
	small, large := funnel(10, 10, time.Hour), funnel(1000, 1000, time.Hour)
	type change struct{ from, to policy.Policy }
	up, down := change{small, large}, change{large, small}
	for _, c := range []struct {
		name    string
		under   policy.Policy
		used    int64
		changes []change
		last    policy.Policy
		left    int64
	}{
		{"an upgrade frees a key", small, 10, []change{up}, large, 990},
		{"the cell's own limit is nil", small, 10, []change{{nil, large}}, large, 990},
		{"and back", small, 10, []change{{nil, large}, {large, nil}}, small, 0},
		{"units taken under the new limit before", large, 0, []change{up}, large, 1000},
		{"count", large, 100, []change{up}, large, 999},
		{"up to the old limit", large, 1000, []change{up}, large, 990},
		{"a lowered key", large, 4, []change{down}, small, 6},
		{"is full at most", large, 10, []change{down}, small, 0},
		{"whatever it used", large, 500, []change{down}, small, 0},
		{"and all", large, 1000, []change{down}, small, 0},
		{"use up to the lower limit stays", large, 4, []change{down, up}, large, 996},
		{"and no more", large, 500, []change{down, up}, large, 990},
		{"a repeated change translates again", small, 10, []change{up, up}, large, 999},
		{"what it is told", small, 10, []change{up, up, down}, small, 9},
		{"one limit is no change", small, 1, []change{{small, small}, {nil, nil}}, small, 9},
	} {
		d := newDesk(t, small, nil)
		require.True(t, d.TakeWith(c.under, "k", c.used).Allowed, c.name)
		if c.under == small && c.used == 10 {
			require.False(t, d.TakeWith(large, "k", 1).Allowed, "%s: until then the limits must share time", c.name)
		}
		for _, change := range c.changes {
			require.NoError(t, d.ChangeLimit("k", change.from, change.to, false), c.name)
		}
		got := d.TakeWith(c.last, "k", 0)
		assert.Equal(t, c.left, got.Remaining, c.name)
		assert.LessOrEqual(t, got.ResetAfter, time.Hour, c.name)
		require.True(t, d.TakeWith(c.last, "k", c.left).Allowed, c.name)
		assert.False(t, d.TakeWith(c.last, "k", 1).Allowed, c.name)
	}

	// nil is the limit after SetPolicy, and a key that has drained has used nothing.
	d := newDesk(t, small, nil)
	require.True(t, d.Take("k", 10).Allowed)
	require.True(t, d.Take("drained", 1).Allowed)
	d.settle()
	d.change(funnel(20, 10, time.Hour))
	require.NoError(t, d.ChangeLimit("k", nil, large, false))
	assert.EqualValues(t, 990, d.TakeWith(large, "k", 0).Remaining)
	d.advance(time.Hour)
	require.NoError(t, d.ChangeLimit("drained", nil, large, false))
	assert.EqualValues(t, 1000, d.TakeWith(large, "drained", 0).Remaining)
}

// Used units count under the other limit, up to the whole.
func TestChangeLimitInEveryFamily(t *testing.T) {
	must := policy.Must
	for _, c := range []struct {
		small, large policy.Policy
		// left is what is left of the larger limit after 10 units used up the smaller.
		left int64
	}{
		{must(policy.AtMost(10, time.Minute)), must(policy.AtMost(100, time.Minute)), 90},
		{must(policy.Bursty(10, time.Minute, 10)), must(policy.Bursty(100, time.Minute, 100)), 91},
		{must(policy.WarmingUp(10, time.Second, 4*time.Second, 3)), must(policy.WarmingUp(10, time.Second, 4*time.Second, 3)), 0},
	} {
		d := newDesk(t, c.small, nil)
		// By then the store is full.
		d.advance(time.Hour)
		require.True(t, d.Take("k", 10).Allowed, c.small)
		require.NoError(t, d.ChangeLimit("k", c.small, c.large, false), c.small)
		assert.Equal(t, c.left, d.TakeWith(c.large, "k", 0).Remaining, c.small)
		require.NoError(t, d.ChangeLimit("k", c.large, c.small, false), c.small)
		assert.LessOrEqual(t, d.Peek("k").Remaining, int64(1), c.small)
	}

	// A queue keeps promised turns, and the last interval becomes the new one.
	slow, fast := must(policy.Queue(10, 1, time.Minute)), must(policy.Queue(10, 60, time.Minute))
	d := newDesk(t, slow, nil)
	require.True(t, d.Choke("k"))
	require.NoError(t, d.ChangeLimit("k", slow, fast, false))
	assert.Equal(t, time.Second, d.TakeWith(fast, "k", 1).Wait)
}

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
			d := newDesk(t, from, nil)
			d.advance(100 * time.Second)
			for used := range from.Limit() + 1 {
				key := fmt.Sprint(used)
				require.True(t, d.Take(key, used).Allowed)
				before := from.Limit() - d.Peek(key).Remaining
				require.NoError(t, d.ChangeLimit(key, from, to, true))
				share := (before*to.Limit() + from.Limit() - 1) / from.Limit()
				require.Equal(t, to.Limit()-share, d.TakeWith(to, key, 0).Remaining, "%s, %d used of %v, then %v", name, used, from, to)
			}
		}
	}
}

// Promise: `ChangeLimit` keeps promised turns.
func TestChangeLimitKeepsPromisedTurns(t *testing.T) {
	for i, wider := range []policy.Policy{
		funnel(1000, 1, time.Second), policy.Must(policy.FixedWindow(1000, 10*time.Second)),
		policy.Must(policy.SlidingWindow(1000, 10*time.Second)), policy.Must(policy.AtMost(1000, 10*time.Second)),
		nil, policy.Must(policy.Bursty(1, time.Second, 1000)),
	} {
		if wider == nil {
			continue
		}
		p := limitstest.Policies()[i]
		for _, share := range []bool{false, true} {
			d := newDesk(t, p, nil)
			d.advance(100 * time.Second)
			require.True(t, d.Take("k", 10).Allowed, p)
			r := d.Reserve("k", 5, time.Hour)
			// The first reservation is on credit.
			if r.Wait == 0 {
				r = d.Reserve("k", 5, time.Hour)
			}
			require.True(t, r.Allowed, p)
			require.Positive(t, r.Wait, p)
			require.NoError(t, d.ChangeLimit("k", p, wider, share))
			d.advance(r.Wait - 1)
			assert.False(t, d.TakeWith(wider, "k", 1).Allowed, "%v, %v", p, share)
		}
	}
}

// Promise: `ChangeLimit` ends earlier reservations, unless the word is unchanged.
func TestChangeLimitEndsReservations(t *testing.T) {
	small, large := funnel(10, 10, time.Hour), funnel(1000, 1000, time.Hour)
	chosen := small
	d := newDesk(t, small, func(string) policy.Policy { return chosen })
	change := func(d *desk, to policy.Policy) {
		from := chosen
		chosen = to
		require.NoError(t, d.ChangeLimit("k", from, to, false))
	}
	r := d.Reserve("k", 10, 0)
	change(d, large)
	r.Cancel()
	assert.EqualValues(t, 990, d.Peek("k").Remaining)
	r = d.Reserve("k", 10, 0)
	r.Cancel()
	assert.EqualValues(t, 990, d.Peek("k").Remaining, "a reservation made after the change must give its units back")
	r = d.Reserve("k", 10, 0)
	change(d, small)
	change(d, large)
	r.Cancel()
	assert.EqualValues(t, 990, d.Peek("k").Remaining)

	// Under the cell's own limit Cancel works for other takes than the last.
	d = newDesk(t, small, nil)
	r = d.Reserve("k", 10, 0)
	require.NoError(t, d.ChangeLimit("k", nil, large, false))
	require.True(t, d.TakeWith(large, "k", 500).Allowed)
	r.Cancel()
	assert.EqualValues(t, 490, d.TakeWith(large, "k", 0).Remaining)

	chosen = policy.Must(policy.FixedWindow(10, time.Minute))
	d = newDesk(t, chosen, func(string) policy.Policy { return chosen })
	r = d.Reserve("k", 10, 0)
	change(d, policy.Must(policy.FixedWindow(100, time.Minute)))
	r.Cancel()
	assert.EqualValues(t, 100, d.Peek("k").Remaining)
}

// Promise: Queued calls keep their order under a changed limit.
func TestChangeLimitWhileCallsWait(t *testing.T) {
	small, large := funnel(10, 10, time.Hour), funnel(1000, 1000, time.Hour)
	for _, up := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			from, to, used := small, large, int64(10)
			if !up {
				from, to, used = large, small, 1000
			}
			chosen := from
			d := newTimedDesk(t, small, func(string) policy.Policy { return chosen })
			require.True(t, d.Take("key", used).Allowed)
			served := make(chan time.Time, 3)
			never := make(chan error, 1)
			d.wait(4, served)
			d.wait(3, served)
			if !up {
				go func() { never <- d.Wait(t.Context(), "key", 11) }()
				synctest.Wait()
			}
			d.wait(1, served)
			time.Sleep(5 * time.Second)
			synctest.Wait()
			changed := time.Now()
			chosen = to
			require.NoError(t, d.ChangeLimit("key", from, to, false))
			for i, units := range []time.Duration{4, 7, 8} {
				after := (<-served).Sub(changed)
				if up {
					assert.Zero(t, after, "%d", i)
				} else {
					assert.InDelta(t, units*6*time.Minute, after, float64(time.Millisecond), "%d", i)
				}
			}
			if up {
				assert.EqualValues(t, 1000-10-8, d.Peek("key").Remaining)
			} else {
				assert.ErrorIs(t, <-never, ErrNever)
			}
		})
	}
}

// The limit changes after a call has chosen it, before the call joins the line.
func TestLimitChangesBeforeACallJoins(t *testing.T) {
	fast, slow := funnel(10, 10, time.Second), funnel(10, 10, time.Hour)
	synctest.Test(t, func(t *testing.T) {
		var d *desk
		chosen, overtake := fast, func() {}
		d = newTimedDesk(t, fast, func(string) policy.Policy {
			p, change := chosen, overtake
			overtake = func() {}
			change()
			return p
		})
		require.True(t, d.Take("key", 10).Allowed)
		overtake = func() {
			chosen = slow
			require.NoError(t, d.ChangeLimit("key", fast, slow, false))
		}
		began := time.Now()
		require.NoError(t, d.Wait(t.Context(), "key", 1))
		assert.Equal(t, 6*time.Minute, time.Since(began))
	})
}

func TestChangeLimitIsOvertakenByATake(t *testing.T) {
	small, own := funnel(10, 10, time.Hour), funnel(1000, 1000, time.Hour)
	d := newDesk(t, own, nil)
	require.True(t, d.TakeWith(small, "k", 4).Allowed)
	var r reservation
	var once sync.Once
	d.on(map[string]func(){"limit: translated": func() {
		once.Do(func() {
			require.True(t, d.TakeWith(small, "k", 5).Allowed)
			r = d.Reserve("k", 1, 0)
			require.True(t, r.Allowed)
		})
	}})
	require.NoError(t, d.ChangeLimit("k", small, own, false))
	assert.EqualValues(t, 1000-10, d.Peek("k").Remaining, "9 units of one limit and 1 unit of 36 s of the other must be used")
	r.Cancel()
	assert.EqualValues(t, 1000-10, d.Peek("k").Remaining, "a reservation from before the swap must give nothing back")
}

// The state saved at the end is then the old limit's.
func TestChangeLimitIsOvertakenByTheEnd(t *testing.T) {
	own, large := funnel(5, 1, time.Hour), funnel(10, 2, time.Hour)
	d := newDesk(t, own, nil)
	require.True(t, d.Choke("k"))
	var once sync.Once
	d.on(map[string]func(){"limit: translated": func() {
		once.Do(func() {
			d.control.Close()
			d.table.Drain(func(*table.Entry[string], table.Reading) {})
			d.drained = true
		})
	}})
	assert.ErrorIs(t, d.ChangeLimit("k", own, large, false), ErrClosed)
	assert.True(t, d.drained)
}

// Otherwise takes could restore the word that the Cancel has seen, and it would give them back.
func TestLoweringAWordWaitsForACancel(t *testing.T) {
	own, large := funnel(5, 1, time.Hour), funnel(10, 2, time.Hour)
	for name, c := range map[string]struct {
		lower func(d *desk)
		// limit is the limit afterwards.
		limit policy.Policy
		left  int64
	}{
		"ChangeLimit": {func(d *desk) { assert.NoError(t, d.ChangeLimit("k", own, large, false)) }, large, 10 - 1 - 3},
		"Reset":       {func(d *desk) { assert.True(t, d.Reset("k")) }, own, 5 - 3},
	} {
		d := newDesk(t, own, nil)
		r := d.Reserve("k", 2, 0)
		require.True(t, d.Choke("k"))
		waits, done := make(chan struct{}, 1), make(chan struct{})
		var once sync.Once
		d.on(map[string]func(){
			"undo: begin": func() {
				select {
				case waits <- struct{}{}:
				default:
				}
			},
			"cancel: judged": func() {
				once.Do(func() {
					go func() {
						defer close(done)
						c.lower(d)
						assert.True(t, d.TakeWith(c.limit, "k", 3).Allowed, name)
					}()
					select {
					case <-done:
						t.Error(name, "did not wait")
					case <-waits:
					}
				})
			},
		})
		r.Cancel()
		<-done
		assert.EqualValues(t, c.left, d.TakeWith(c.limit, "k", 0).Remaining, name)
	}
}

// Promise: Calls racing `ChangeLimit` get no more than both limits admit.
func TestChangeLimitUnderRaces(t *testing.T) {
	small, large := funnel(100, 1, time.Hour), funnel(1000, 10, time.Hour)
	for _, limits := range [][2]policy.Policy{{small, large}, {large, small}} {
		from, to := limits[0], limits[1]
		d := newDesk(t, from, nil)
		var before, after atomic.Int64
		var changed atomic.Bool
		var all sync.WaitGroup
		for i := range 8 {
			all.Go(func() {
				for n := range 2000 {
					if i == 0 && n == 200 {
						assert.NoError(t, d.ChangeLimit("k", from, to, false))
						changed.Store(true)
					}
					late := changed.Load()
					switch {
					case !d.TakeWith(limits[i%2], "k", 1).Allowed:
					case late:
						after.Add(1)
					default:
						before.Add(1)
					}
				}
			})
		}
		all.Wait()
		assert.LessOrEqual(t, before.Load(), 2*int64(1100), "both limits together admitted too many units before the swap")
		assert.LessOrEqual(t, after.Load(), int64(1100))
		assert.GreaterOrEqual(t, before.Load()+after.Load(), int64(100))
		assert.False(t, d.TakeWith(to, "k", 1).Allowed)
	}
}

// hooked is a policy that calls before each decision.
type hooked struct {
	policy.Policy
	before *func()
}

func (h hooked) Take(word uint64, now policy.Instant, n int64, patience time.Duration) (uint64, policy.Decision) {
	(*h.before)()
	return h.Policy.Take(word, now, n, patience)
}

func (h hooked) Refund(word uint64, now policy.Instant, n int64) uint64 {
	return h.Policy.(policy.Refunder).Refund(word, now, n)
}

func (h hooked) Reads(policy.Policy) bool { return true }

func (h hooked) Carry(from policy.Policy, word uint64, now policy.Instant) (uint64, bool) {
	return h.Policy.(policy.Relative).Carry(from.(hooked).Policy, word, now)
}

// switched is a desk whose limit changes from 10 an hour to 1,000 while a call is under way.
type switched struct {
	*desk
	limits  [2]policy.Policy
	present int
	before  int64 // units used before the call
	// choosing runs after a choice, and deciding between a call's reading of the word and its decision.
	choosing, deciding func()
}

func newSwitched(t *testing.T, hooks bool) *switched {
	s := &switched{choosing: func() {}, deciding: func() {}}
	for i, n := range []int64{10, 1000} {
		if s.limits[i] = funnel(n, n, time.Hour); hooks {
			s.limits[i] = hooked{s.limits[i], &s.deciding}
		}
	}
	s.desk = newDesk(t, s.limits[0], func(string) policy.Policy {
		p, change := s.limits[s.present], s.choosing
		s.choosing = func() {}
		change()
		return p
	})
	s.now.Store(int64(time.Hour))
	return s
}

func (s *switched) change() {
	s.choosing, s.deciding = func() {}, func() {}
	assert.NoError(s.t, s.SwitchLimit("k", s.limits[0], s.limits[1], false, func() { s.present = 1 }))
}

func (s *switched) used() int64 {
	d := s.Peek("k")
	return d.Limit - d.Remaining
}

// The change comes between a call's choice of the limit and its reading of the word, or between that
// and its decision. A unit of the earlier limit would count as 100 of the later.
//
// Promise: `SwitchLimit` changes limit and use in one step: a call that it overtakes counts the units that it took.
func TestSwitchLimitOvertakesACall(t *testing.T) {
	for name, c := range map[string]struct {
		call func(s *switched)
		took int64
	}{
		"Choke":    {func(s *switched) { s.Choke("k") }, 1},
		"Take":     {func(s *switched) { s.Take("k", 2) }, 2},
		"TakeUpTo": {func(s *switched) { s.Cell.TakeUpTo("k", 2, new(policy.Decision)) }, 2},
		"Admit":    {func(s *switched) { _, _ = s.Admit("k", 2, new(policy.Decision)) }, 2},
		"Reserve":  {func(s *switched) { s.Reserve("k", 2, 0) }, 2},
		"TryTake":  {func(s *switched) { s.TryTake("k", 2, true, new(policy.Decision), new(Held[string])) }, 2},
		"Wait":     {func(s *switched) { assert.NoError(t, s.Wait(t.Context(), "k", 2)) }, 2},
		"charge":   {func(s *switched) { s.Refund("k", -2) }, 2},
		"Refund":   {func(s *switched) { s.Refund("k", 1) }, -1},
		"Peek":     {func(s *switched) { assert.Equal(t, s.before, s.used()) }, 0},
		"Standing": {func(s *switched) {
			standing := s.Standing(nil, "k", 0)
			_, d := standing.Limit.Take(standing.Word, standing.Now, 0, 0)
			assert.Equal(t, s.before, d.Limit-d.Remaining)
		}, 0},
		"All": {func(s *switched) {
			for _, d := range s.All() {
				assert.Equal(t, s.before, d.Limit-d.Remaining)
			}
		}, 0},
	} {
		for _, key := range []string{"new", "drained", "used"} {
			if key != "used" && c.took < 0 {
				continue
			}
			for _, moment := range []string{"choosing", "deciding", "deciding again"} {
				s := newSwitched(t, moment != "choosing")
				switch key {
				case "used":
					s.before = 6
					require.True(t, s.Take("k", s.before).Allowed)
				case "drained":
					require.True(t, s.Take("k", 1).Allowed)
					s.now.Add(int64(time.Hour))
				}
				s.settle()
				switch moment {
				case "choosing":
					s.choosing = s.change
				case "deciding":
					s.deciding = s.change
				default: // a new key is decided once before it has an entry
					s.deciding = func() { s.deciding = s.change }
				}
				c.call(s)
				if s.present == 0 {
					continue // the call decides once
				}
				assert.Equal(t, s.before+c.took, s.used(), "%s, %s, %s", name, moment, key)
			}
		}
	}
}

// Promise: A call on a key whose limit changes waits for the change.
func TestCallWaitsWhileItsLimitIsSwitched(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSwitched(t, false)
		require.True(t, s.Take("k", 6).Allowed)
		d := make(chan policy.Decision, 1)
		require.NoError(t, s.SwitchLimit("k", s.limits[0], s.limits[1], false, func() {
			go func() { d <- s.Take("k", 1) }()
			synctest.Wait()
			assert.Empty(t, d)
			assert.True(t, s.Choke("other"), "a call on another key must not wait")
			s.present = 1
		}))
		assert.EqualValues(t, 1000-6-1, (<-d).Remaining)
		assert.Error(t, s.SwitchLimit("k", s.limits[1], policy.Must(policy.FixedWindow(1, time.Hour)), false, func() { s.present = 0 }))
		assert.Equal(t, 1, s.present, "a refused change must publish nothing")
	})
}

// All ways to take, from new keys whose limits change at once. Time stands, so that all units count
// until the end.
//
// Promise: `SwitchLimit` beside many calls loses no unit, and gains none.
func TestSwitchLimitUnderRacesIsExact(t *testing.T) {
	const keys, changes = 200, 6
	for _, limits := range [][2]policy.Policy{
		{funnel(1e6, 1e6, time.Hour), funnel(1e6, 1e8, time.Hour)},
		{funnel(1e6, 1e6, time.Hour), funnel(2e6, 1e6, time.Hour)},
		{policy.Must(policy.FixedWindow(1e6, time.Hour)), policy.Must(policy.FixedWindow(9e5, time.Hour))},
	} {
		t.Run(limits[1].String(), func(t *testing.T) {
			var present, admitted [keys]atomic.Int64
			d := newDesk(t, limits[0], func(key string) policy.Policy { return limits[present[numberOf(key)].Load()] })
			d.now.Store(int64(time.Hour))
			var current atomic.Int64
			var all sync.WaitGroup
			for i := range 4 {
				all.Go(func() {
					for number := current.Load(); number < keys; number = current.Load() {
						var answer policy.Decision
						var h Held[string]
						key, n := keyOf(number), int64(1)
						switch i {
						case 0:
							answer.Allowed = d.Choke(key)
						case 1:
							n = 2
							d.Cell.Reserve(key, n, time.Hour, &answer, &h)
						case 2:
							d.TryTake(key, n, true, &answer, &h)
						default:
							n = -1
							if d.Cell.Take(key, 3, &answer); answer.Allowed {
								admitted[number].Add(3)
								d.Cell.Refund(key, 1, &answer)
							}
						}
						if answer.Allowed {
							admitted[number].Add(n)
						}
						runtime.Gosched()
					}
				})
			}
			for number := range int64(keys) {
				current.Store(number)
				key := keyOf(number)
				for change := range int64(changes) {
					from, to := change%2, 1-change%2
					assert.NoError(t, d.SwitchLimit(key, limits[from], limits[to], false, func() { present[number].Store(to) }))
					for before := admitted[number].Load(); change > 0 && admitted[number].Load() < before+20; {
						runtime.Gosched()
					}
				}
			}
			current.Store(keys)
			all.Wait()
			for number := range int64(keys) {
				d := d.Peek(keyOf(number))
				require.Equal(t, admitted[number].Load(), d.Limit-d.Remaining, number)
			}
		})
	}
}

func keyOf(number int64) string { return strconv.FormatInt(number, 10) }

func numberOf(key string) int {
	number, _ := strconv.Atoi(key)
	return number
}
