package policy_test

import (
	"testing"
	"time"

	"github.com/ral-limiter/ral/policy"
	"github.com/stretchr/testify/require"
)

// Every short sequence of takes, of which several are undone, whole or in part, in any order, at
// any time. The others start when told, and no window has more of them than the limit.
// Promise: Takes undone in any order never exceed the limit.
func TestUndoneInAnyOrderAdmitsNoMore(t *testing.T) {
	funnel := func(capacity int64) policy.Policy { return policy.Must(policy.Funnel(capacity, 1, 1)) }
	bursty := func(most int64) policy.Policy { return policy.Must(policy.Bursty(1, 1, most)) }
	for _, c := range []struct {
		make     func(int64) policy.Policy // of one a nanosecond
		capacity int64
		largest  int64 // take
		late     bool  // the last take of a window is paid for after it
		steps    int
	}{
		{funnel, 1, 1, false, 7}, {funnel, 2, 2, false, 6}, {funnel, 3, 3, false, 6},
		{bursty, 0, 2, true, 6}, {bursty, 1, 2, true, 6}, {bursty, 2, 3, true, 5},
	} {
		p := c.make(c.capacity)
		u := &undoing{t: t, p: p, refunder: p.(policy.Refunder), capacity: c.capacity, largest: c.largest, late: c.late}
		if raceFactor > 1 {
			c.steps--
		}
		u.step(1+policy.Instant(c.capacity), 0, c.steps)
		require.Greater(t, u.rows, 1000)
		require.Greater(t, u.given, u.rows/100, "%v: hardly anything was given back", p)
		require.Equal(t, c.largest > 1, u.parts > 0, "%v", p)
	}
}

type undoing struct {
	t        *testing.T
	p        policy.Policy
	refunder policy.Refunder
	capacity int64
	largest  int64
	late     bool

	takes       []undoTake
	undone      int64
	rows, given int
	parts       int // of given, those that gave back a part
}

type undoTake struct {
	n             int64
	at, start     policy.Instant
	before, taken uint64
	undone        int64 // before this take
	ended         bool
}

func (u *undoing) step(now policy.Instant, word uint64, more int) {
	u.check()
	u.rows++
	if more == 0 {
		return
	}
	for ; now <= 6; now++ {
		for n := int64(1); n <= u.largest; n++ {
			for _, patience := range []time.Duration{0, 100} {
				next, d := u.p.Take(word, now, n, patience)
				if !d.Allowed || patience > 0 && d.Wait == 0 {
					continue
				}
				u.takes = append(u.takes, undoTake{n, now, now + policy.Instant(d.Wait), word, next, u.undone, false})
				u.step(now, next, more-1)
				u.takes = u.takes[:len(u.takes)-1]
			}
		}
		for i := range u.takes {
			for keep := range u.takes[i].n {
				if !u.takes[i].ended {
					u.keep(now, word, more, i, keep)
				}
			}
		}
	}
}

// keep undoes all except keep units of a take, as a Reservation does.
func (u *undoing) keep(now policy.Instant, word uint64, more, i int, keep int64) {
	r, undone := u.takes[i], u.undone
	next, ok := r.before, keep == 0
	if !ok {
		var d policy.Decision
		next, d = u.p.Take(r.before, r.at, keep, 100)
		ok = d.Allowed && r.at+policy.Instant(d.Wait) == r.start
	}
	if since := u.undone - r.undone; word != r.taken || since > 0 || !ok {
		next = u.refunder.Cancel(word, r.taken, r.at, now, r.n-keep, since)
		u.undone += r.n - keep
	}
	if next < word {
		u.given++
		if keep > 0 {
			u.parts++
		}
	}
	u.takes[i].n, u.takes[i].ended = keep, true
	u.step(now, next, more-1)
	u.takes[i], u.undone = r, undone
}

func (u *undoing) check() {
	for _, first := range u.takes {
		for _, last := range u.takes {
			if first.n == 0 || last.n == 0 || last.start < first.start {
				continue
			}
			var units, latest int64
			for _, take := range u.takes {
				if first.start <= take.start && take.start <= last.start {
					units += take.n
					if take.start == last.start {
						latest = max(latest, take.n)
					}
				}
			}
			if u.late {
				units -= latest
			}
			if units > u.capacity+int64(last.start-first.start) {
				u.t.Fatalf("%d units start from %d to %d: %+v", units, first.start, last.start, u.takes)
			}
		}
	}
}

// After other calls took, a funnel gives back no more than the capacity less their units, a
// bursty no more than a unit while something is owed, and both nothing that has come back by
// itself.
// Promise: Undone takes return the units that constructors document.
func TestUndoneTakeGivesBackItsUnits(t *testing.T) {
	const s, now = time.Second, policy.Instant(time.Hour)
	funnel, bursty := policy.Must(policy.Funnel(10, 1, s)), policy.Must(policy.Bursty(1, s, 10))
	for _, c := range []struct {
		name          string
		p             policy.Policy
		taken, others int64
		later         time.Duration // the others took, and then the take is undone
		back          time.Duration // by how much sooner the key is as good as new
	}{
		{"a funnel with room", funnel, 4, 3, 0, 4 * s},
		{"a funnel with calls that wait", funnel, 4, 8, 0, 2 * s},
		{"a funnel that is waited for by as much as it holds", funnel, 4, 10, 0, 0},
		{"a funnel of which some has drained", funnel, 4, 3, 3 * s, 1 * s},
		{"a bursty with a store", bursty, 4, 3, 0, 4 * s},
		{"a bursty that has been paid and has stored since", bursty, 14, 1, 8 * s, 6 * s},
		{"a bursty with debts", bursty, 4, 8, 0, 1 * s},
	} {
		t.Run(c.name, func(t *testing.T) {
			taken, d := c.p.Take(0, now, c.taken, 0)
			require.True(t, d.Allowed)
			at := now + policy.Instant(c.later)
			word, d := c.p.Take(taken, at, c.others, time.Hour)
			require.True(t, d.Allowed)
			next := c.p.(policy.Refunder).Cancel(word, taken, now, at, c.taken, 0)
			_, before := c.p.Take(word, at, 0, 0)
			_, after := c.p.Take(next, at, 0, 0)
			require.Equal(t, c.back, before.ResetAfter-after.ResetAfter)
		})
	}
}
