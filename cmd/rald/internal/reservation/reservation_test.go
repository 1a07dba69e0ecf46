package reservation

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/internal/testkit/testenv"
)

const longest = 60

func named(name string) ID { return ID{Limit: "funnel 10, 1/s", Key: "ann", Name: name} }

// step is a call at an instant, and the standing after it.
type step struct {
	at     time.Duration
	call   string
	arg    int64
	before int64
	state  State
	units  int64
	left   time.Duration
}

// run makes the calls on one reservation of 4 units with 10 to live, begun at 0.
func run(t *testing.T, action Action, steps []step) {
	t.Helper()
	b := New[int](4, longest)
	r := b.Reserve(named("r"), 4, 10, math.MaxInt64, action, 0)
	b.Begin(r, 0)
	for i, s := range steps {
		about := fmt.Sprintf("step %d: %s at %d", i, s.call, s.at)
		before := r.Counted
		if b.IsDue(r, s.at) {
			require.Same(t, r, b.Due(s.at), about)
			require.Equal(t, before, b.Expire(r, s.at), about)
			before = r.Counted
		}
		switch s.call {
		case "commit":
			before = b.Commit(r, s.at, s.arg)
		case "release":
			before = b.Release(r, s.at)
		case "extend":
			before = b.Extend(r, s.at, time.Duration(s.arg))
		case "pass":
			require.Nil(t, b.Due(s.at), about)
		}
		require.Equal(t, []any{s.before, s.state, s.units, s.left}, []any{before, r.State, r.Counted, r.Left(s.at)}, about)
	}
}

func TestFirstEndCounts(t *testing.T) {
	for name, steps := range map[string][]step{
		"commit": {
			{5, "commit", 3, 4, Committed, 3, 0},
			{6, "commit", 9, 3, Committed, 3, 0},
			{6, "release", 0, 3, Committed, 3, 0},
			{6, "extend", 9, 3, Committed, 3, 0},
			{10, "pass", 0, 3, Committed, 3, 0},
		},
		"commit of more": {{9, "commit", 9, 4, Committed, 9, 0}},
		"release": {
			{5, "release", 0, 4, Released, 0, 0},
			{6, "commit", 9, 0, Released, 0, 0},
			{10, "pass", 0, 0, Released, 0, 0},
		},
		"deadline": {
			{9, "pass", 0, 4, Held, 4, 1},
			{10, "pass", 0, 4, Expired, 4, 0},
			{11, "release", 0, 4, Expired, 4, 0},
			{12, "extend", 9, 4, Expired, 4, 0},
			{13, "commit", 3, 4, Late, 3, 0},
			{14, "commit", 9, 3, Late, 3, 0},
			{14, "release", 0, 3, Late, 3, 0},
		},
		"late commit of more": {{10, "commit", 9, 4, Late, 9, 0}, {11, "pass", 0, 9, Late, 9, 0}},
		"extensions": {
			{4, "extend", 20, 4, Held, 4, 20},
			// The deadline never becomes earlier.
			{5, "extend", 1, 4, Held, 4, 19},
			{20, "extend", 100, 4, Held, 4, 40},
			// A reservation lasts 60 s in all.
			{59, "extend", 100, 4, Held, 4, 1},
			{60, "extend", 100, 4, Expired, 4, 0},
		},
	} {
		t.Run(name, func(t *testing.T) { run(t, Spend, steps) })
	}
	t.Run("deadline that gives back", func(t *testing.T) {
		run(t, Release, []step{
			{10, "pass", 0, 0, Expired, 0, 0},
			{11, "release", 0, 0, Expired, 0, 0},
			// The commit charges all of it, since nothing is spent.
			{12, "commit", 3, 0, Late, 3, 0},
			{13, "commit", 3, 3, Late, 3, 0},
		})
		run(t, Release, []step{{10, "extend", 3, 0, Expired, 0, 0}})
	})
}

func TestEndedIDsAreKeptForTheLongestTime(t *testing.T) {
	b := New[int](4, longest)
	r := b.Reserve(named("a"), 4, 1000, math.MaxInt64, Spend, 0)
	b.Begin(r, 0)
	assert.EqualValues(t, longest, r.Left(0), "a longer time is cut")
	assert.EqualValues(t, longest, b.Next())
	b.Commit(r, 5, 4)
	assert.Same(t, r, b.Find(named("a"), 64))
	assert.Nil(t, b.Find(named("a"), 65), "although Due has not run")
	assert.EqualValues(t, int64(math.MaxInt64), b.Next())

	// A commit after the deadline is kept as long.
	r = b.Reserve(named("b"), 4, 10, math.MaxInt64, Spend, 0)
	b.Begin(r, 100)
	require.True(t, b.IsDue(r, 110))
	b.Expire(r, 110)
	b.Commit(r, 160, 4)
	assert.Same(t, r, b.Find(named("b"), 219))
	assert.EqualValues(t, 220, b.Next())
	assert.Nil(t, b.Due(220))
	all, held := b.Len()
	assert.Zero(t, all+held)

	charge := b.Charge(named("c"), 300, 7, 0)
	assert.Same(t, charge, b.Find(named("c"), 359))
	assert.EqualValues(t, 7, b.Commit(charge, 301, 9))
	assert.Equal(t, Unknown, charge.State)
	assert.Nil(t, b.Find(named("c"), 360))
}

func TestBookIsBounded(t *testing.T) {
	b := New[int](3, longest)
	for i := range 3 {
		b.Begin(b.Reserve(named(fmt.Sprint(i)), 1, 10, math.MaxInt64, Spend, 0), time.Duration(i))
	}
	assert.Nil(t, b.Reserve(named("more"), 1, 10, math.MaxInt64, Spend, 0), "none has ended")
	assert.Nil(t, b.Charge(named("more"), 3, 1, 0))
	assert.EqualValues(t, 10, b.FirstDeadline())
	b.Release(b.Find(named("2"), 3), 3)
	b.Release(b.Find(named("1"), 4), 4)
	require.NotNil(t, b.Reserve(named("more"), 1, 10, math.MaxInt64, Spend, 0))
	assert.Nil(t, b.Find(named("2"), 5), "it ended first")
	assert.NotNil(t, b.Find(named("1"), 5))
	assert.EqualValues(t, 1, b.Forgotten())
	all, held := b.Len()
	assert.Equal(t, []int{3, 2}, []int{all, held})
}

// Properties, of random calls on a few IDs:
//
//  1. A reservation ends at most once, and is committed at most once after its deadline.
//  2. Counted changes with such an end alone, and every change is returned to one call.
//  3. A deadline is never applied early, and Due finds all that have passed.
//  4. No more records are kept than the bound, and after the longest time none is.
func TestBookKeepsItsPromises(t *testing.T) {
	seed := testenv.Seed(t)
	random := rand.New(rand.NewPCG(seed, 0))
	for round := range 200 {
		b := New[*int64](5, longest)
		now, live := time.Duration(0), map[*Record[*int64]]time.Duration{}
		change := func(r *Record[*int64], f func() int64) {
			state, counted := r.State, r.Counted
			before := f()
			about := fmt.Sprintf("seed %d, round %d: %v to %v", seed, round, state, r.State)
			require.Equal(t, counted, before, about)
			require.Equal(t, *r.Value, before, about)
			*r.Value = r.Counted
			switch {
			case state == Held && r.State == Expired:
				require.GreaterOrEqual(t, now, live[r], about)
			case state == Held && (r.State == Committed || r.State == Released):
				require.Less(t, now, live[r], about)
			case state == Expired && r.State == Late:
			default:
				require.Equal(t, []any{state, counted}, []any{r.State, r.Counted}, about)
			}
		}
		for range 100 {
			now += time.Duration(random.IntN(8))
			id := named(fmt.Sprint(random.IntN(8)))
			r := b.Find(id, now)
			if r != nil && b.IsDue(r, now) {
				change(r, func() int64 { return b.Expire(r, now) })
			}
			switch verb := random.IntN(6); {
			case verb == 0:
				for due := b.Due(now); due != nil; due = b.Due(now) {
					change(due, func() int64 { return b.Expire(due, now) })
				}
				require.Greater(t, b.FirstDeadline(), now)
			case r == nil:
				if r := b.Reserve(id, 4, time.Duration(1+random.IntN(80)), math.MaxInt64, Action(random.IntN(2)), new(int64)); r != nil {
					*r.Value = 4
					b.Begin(r, now)
					live[r] = now + min(r.TimeToLive, longest)
				}
			case verb == 1:
				change(r, func() int64 { return b.Commit(r, now, int64(random.IntN(8))) })
			case verb == 2:
				change(r, func() int64 { return b.Release(r, now) })
			case verb == 3:
				change(r, func() int64 { return b.Extend(r, now, time.Duration(random.IntN(80))) })
				if r.State == Held {
					live[r] = now + r.Left(now)
				}
			}
			all, held := b.Len()
			require.LessOrEqual(t, all, 5)
			require.LessOrEqual(t, held, all)
		}
		for range 2 {
			for now += longest; b.Next() <= now; {
				if due := b.Due(now); due != nil {
					b.Expire(due, now)
				}
			}
		}
		all, _ := b.Len()
		require.Zero(t, all)
	}
}

// Promise: A reservation of units in flight ends with their longest time, extensions included.
func TestReservationHasItsOwnLongestTime(t *testing.T) {
	b := New[int](1, 100)
	r := b.Reserve(named("r"), 4, 50, 30, Release, 0)
	assert.EqualValues(t, 30, r.TimeToLive)
	b.Begin(r, 5)
	assert.EqualValues(t, 4, b.Extend(r, 20, 90))
	assert.EqualValues(t, 15, r.Left(20), "until 30 from its beginning")
	assert.False(t, b.IsDue(r, 34))
	assert.True(t, b.IsDue(r, 35))
}
