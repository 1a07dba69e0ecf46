package plan

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/fleet/internal/lease/word"
	"github.com/ral-limiter/ral/fleet/internal/store"
	"github.com/ral-limiter/ral/internal/core/shape"
	"github.com/ral-limiter/ral/internal/testkit/must"
	"github.com/ral-limiter/ral/policy"
)

func TestPlanSetsPolicyTermAndMost(t *testing.T) {
	for _, c := range []struct {
		limit policy.Policy
		term  time.Duration
		kept  string
		lasts time.Duration
		most  int64
	}{
		{policy.Must(policy.Funnel(1000, 1000, time.Second)), 0, "funnel 875, 1000/s", 125 * time.Millisecond, 125},
		{policy.Must(policy.Funnel(1000, 1000, time.Second)), 250 * time.Millisecond, "funnel 750, 1000/s", 250 * time.Millisecond, 250},
		{policy.Must(policy.Funnel(4000, 1000, time.Second)), 0, "funnel 3500, 1000/s", 500 * time.Millisecond, 500},
		{policy.Must(policy.Funnel(10_000, 1000, time.Second)), 0, "funnel 9000, 1000/s", time.Second, 1000},
		{policy.Must(policy.Funnel(10, 10, time.Second)), 0, "funnel 8, 10/s", 125 * time.Millisecond, 1},
		{policy.Must(policy.Funnel(2, 1, time.Hour)), 0, "funnel 1, 1/h", time.Second, 1},
		{policy.Must(policy.FixedWindow(10, time.Hour)), 0, "window 10/h", time.Second, 10},
		{policy.Must(policy.FixedWindow(10, 100*time.Millisecond)), 0, "window 10/100ms", 100 * time.Millisecond, 10},
		{policy.Must(policy.FixedWindow(1_000_000, time.Hour)), 0, "window 1000000/h", time.Second, word.MaxUnits},
		{policy.Must(policy.SlidingWindow(10, time.Second)), time.Minute, "sliding 10/s", time.Second, 10},
	} {
		plan, err := New(c.limit, c.term)
		require.NoError(t, err, c.limit)
		assert.Equal(t, c.kept, plan.Policy.String())
		assert.Equal(t, c.lasts, plan.Term, c.limit)
		assert.Equal(t, c.most, plan.Most, c.limit)
		_, d := plan.Policy.Take(0, 1, 0, 0)
		assert.Equal(t, d.Limit, plan.Limit())
	}
	for _, c := range []struct {
		limit policy.Policy
		term  time.Duration
		err   string
	}{
		{nil, 0, "ral: fleet.Config: Policy is nil, want a policy, such as policy.Funnel returns"},
		{policy.Must(policy.Funnel(10, 10, time.Second)), -1, "ral: fleet.Config: Term is -1ns, want between 10ms and 1m, or 0 for the default"},
		{policy.Must(policy.Funnel(10, 1000, time.Second)), 0, "ral: fleet.Config: Policy is funnel 10, 1000/s, want a Funnel that drains in 20ms or more (this one does in 10ms), or Mode Exact"},
		{policy.Must(policy.Funnel(1, 1, time.Second)), 0, "ral: fleet.Config: Policy is funnel 1, 1/s, want a Funnel of capacity 2 or more, or Mode Exact: of less nothing can be leased ahead"},
		{policy.Must(policy.FixedWindow(1, time.Millisecond)), 0, "ral: fleet.Config: Policy is window 1/ms, want a window of 10ms or more, or Mode Exact"},
		{policy.Must(policy.Queue(1, 1, time.Second)), 0, "ral: fleet.Config: Policy is queue 1, 1/s, want a Funnel, a FixedWindow or a SlidingWindow, or Mode Exact: of others nothing can be leased"},
	} {
		_, err := New(c.limit, c.term)
		if assert.Error(t, err) {
			var field *policy.FieldError
			assert.ErrorAs(t, err, &field)
			assert.Equal(t, c.err, err.Error())
		}
	}
}

// Without a Term leases last ten round trips, at least 250 ms if the limit permits, and at most the
// term that the funnel keeps back. A given Term holds.
func TestTermFollowsTheRoundTrip(t *testing.T) {
	const ms = time.Millisecond
	for _, c := range []struct {
		limit            policy.Policy
		term, trip, want time.Duration
	}{
		{policy.Must(policy.Funnel(10_000, 1000, time.Second)), 0, 0, 250 * ms},
		{policy.Must(policy.Funnel(10_000, 1000, time.Second)), 0, 50 * ms, 500 * ms},
		{policy.Must(policy.Funnel(10_000, 1000, time.Second)), 0, 200 * ms, time.Second},
		{policy.Must(policy.Funnel(1000, 1000, time.Second)), 0, 50 * ms, 125 * ms},
		{policy.Must(policy.Funnel(10_000, 1000, time.Second)), 400 * ms, 0, 400 * ms},
		{policy.Must(policy.Funnel(10_000, 1000, time.Second)), 400 * ms, 100 * ms, 400 * ms},
		{policy.Must(policy.FixedWindow(10, 100*ms)), 0, 50 * ms, 100 * ms},
		{policy.Must(policy.FixedWindow(10, time.Hour)), 0, ms, 250 * ms},
		{policy.Must(policy.FixedWindow(10, time.Hour)), 0, 50 * ms, 500 * ms},
	} {
		assert.Equal(t, c.want, must.Get(New(c.limit, c.term)).TermAt(c.trip), "%v, Term %v, round trip %v", c.limit, c.term, c.trip)
	}
}

func TestCapacityKeptBackCoversTheTerm(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	made := 0
	for range 20_000 {
		capacity, count, per := 1+rng.Int64N(1<<rng.IntN(30)), 1+rng.Int64N(1<<rng.IntN(20)), time.Duration(1+rng.Int64N(1<<rng.IntN(42)))
		limit, err := policy.Funnel(capacity, count, per)
		if err != nil {
			continue
		}
		plan, err := New(limit, ShortestTerm+time.Duration(rng.Int64N(int64(time.Second))))
		if err != nil {
			continue
		}
		made++
		back := capacity - plan.Limit()
		interval := limit.(shape.Shaped).Shape().Interval
		require.GreaterOrEqual(t, uint64(back)*interval, uint64(plan.Term)*tick, "%v in terms of %v", limit, plan.Term)
		require.Less(t, uint64(back-1)*interval, uint64(plan.Term)*tick, "%v in terms of %v", limit, plan.Term)
		require.True(t, plan.Most == 1 || uint64(plan.Most)*interval <= uint64(plan.Term)*tick)
	}
	require.Greater(t, made, 2000)
}

// The bank's clock may run a thousandth faster.
func TestLeaseEndsWithItsWindow(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	for _, limit := range []policy.Policy{
		policy.Must(policy.FixedWindow(1000, 100*time.Millisecond)), policy.Must(policy.FixedWindow(1000, 7*time.Second)),
		policy.Must(policy.SlidingWindow(500, 100*time.Millisecond)), policy.Must(policy.SlidingWindow(1000, 7*time.Second)),
	} {
		plan := must.Get(New(limit, 0))
		word, now := uint64(0), policy.Instant(1)
		for range 2000 {
			now += policy.Instant(rng.Int64N(int64(20 * time.Millisecond)))
			next, d := limit.Take(word, now, 1, 0)
			if word = next; !d.Allowed {
				continue
			}
			g := store.LeaseReply{Granted: 1, Taken: store.Taken{Decision: d, After: word, At: now}}
			end := now + policy.Instant(plan.lasts(g, plan.Term))*1001/1000
			require.LessOrEqual(t, end, plan.window(g))
			// A unit taken at the end is in the same window: only the count in the word differs.
			later, d := limit.Take(word, max(end-1, now), 1, 0)
			if d.Allowed {
				require.Equal(t, word+1, later, "%v", limit)
			}
		}
	}
}

// The word stays at or above a word without the returned units, whatever others take and give back.
func TestGiveBackIsNoMoreThanWasTaken(t *testing.T) {
	type lease struct {
		units int64
		grant store.LeaseReply
		given bool
		event int
	}
	type event struct {
		at    policy.Instant
		units int64
	}
	backs := 0
	for seed := range uint64(3000) {
		rng := rand.New(rand.NewPCG(seed, 5))
		capacity := 4 + rng.Int64N(60)
		plan := must.Get(New(policy.Must(policy.Funnel(capacity, 1+rng.Int64N(capacity), time.Second)), 0))
		var leases []*lease
		// story has the takes less the returns.
		var story []event
		word, now := uint64(0), policy.Instant(time.Hour)
		for range 60 {
			if rng.IntN(3) > 0 {
				now += policy.Instant(rng.Int64N(int64(300 * time.Millisecond)))
			}
			if rng.IntN(2) == 0 {
				n := 1 + rng.Int64N(6)
				next, d := plan.Policy.Take(word, now, n, 0)
				if d.Allowed {
					word = next
					leases = append(leases, &lease{units: n, grant: store.LeaseReply{Taken: store.Taken{At: now, After: word}}, event: len(story)})
					story = append(story, event{now, n})
				}
				continue
			}
			if len(leases) == 0 {
				continue
			}
			l := leases[rng.IntN(len(leases))]
			if l.given {
				continue
			}
			l.given = true
			n := 1 + rng.Int64N(l.units)
			next := plan.GiveBack(word, now, 0, Back{Units: n, Word: l.grant.After, At: l.grant.At, Age: time.Duration(now - l.grant.At)})
			story[l.event].units -= n
			if next != word {
				backs++
			}
			word = next
			// The same story without these units.
			reported := uint64(0)
			for _, e := range story {
				next, d := plan.Policy.Take(reported, e.at, e.units, 0)
				require.True(t, d.Allowed, "seed %d", seed)
				reported = next
			}
			require.GreaterOrEqual(t, max(word, uint64(now)*tick), reported, "seed %d at %v: more was given back than was taken", seed, now)
		}
	}
	require.Greater(t, backs, 2000, "hardly anything was given back")
}

// Late returns of a funnel count as older, by the clock that says more. Windows do not care.
func TestLateReturnCountsAsOlder(t *testing.T) {
	// Ten units drain in a second.
	funnel := must.Get(New(policy.Must(policy.Funnel(100, 10, time.Second)), 0))
	window := must.Get(New(policy.Must(policy.FixedWindow(100, time.Minute)), 0))
	sliding := must.Get(New(policy.Must(policy.SlidingWindow(100, time.Minute)), 0))
	const second = policy.Instant(time.Second)
	for _, c := range []struct {
		plan *Plan
		// passed is the time that passed by the bank's clock.
		passed    policy.Instant
		age, late time.Duration
		back      int64
	}{
		{funnel, 0, 0, 0, 50},
		{funnel, second, 0, 0, 40},
		{funnel, 0, time.Second, 0, 40},
		{funnel, second, 2 * time.Second, 0, 30},
		{funnel, 2 * second, time.Second, 0, 30},
		{funnel, 2 * second, time.Second, time.Second, 20},
		{funnel, second, 2 * time.Second, time.Second, 20},
		{funnel, second, time.Second, time.Hour, 0},
		{window, second, 2 * time.Second, time.Hour, 50},
		{sliding, second, 2 * time.Second, time.Hour, 50},
		// The units are of another window.
		{window, 61 * second, 0, 0, 0},
	} {
		instant := policy.Instant(time.Hour)
		word, d := c.plan.Policy.Take(0, instant, 80, 0)
		require.True(t, d.Allowed)
		now, leased := instant+c.passed, word
		// Another server takes 5 units.
		word, before := c.plan.Policy.Take(word, now, 5, 0)
		word = c.plan.GiveBack(word, now, c.late, Back{Units: 50, Word: leased, At: instant, Age: c.age})
		_, after := c.plan.Policy.Take(word, now, 0, 0)
		assert.Equal(t, c.back, after.Remaining-before.Remaining, "%+v", c)
	}
}
