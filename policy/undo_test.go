package policy_test

import (
	"math"
	"testing"
	"time"

	"github.com/ral-limiter/ral/policy"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Every short sequence of takes, of which several are undone, whole or in part, in any order, at
// any time. The others start when told, and no window has more of them than the limit.
// Promise: Takes undone in any order never exceed the limit.
func TestUndoneInAnyOrderAdmitsNoMore(t *testing.T) {
	funnel := func(capacity int64) policy.Policy {
		return policy.Must(policy.Funnel(capacity, 1000, time.Microsecond))
	}
	bursty := func(most int64) policy.Policy { return policy.Must(policy.Bursty(1000, time.Microsecond, most)) }
	for _, c := range []struct {
		// make returns a limit of one unit a nanosecond.
		make     func(int64) policy.Policy
		capacity int64
		// largest is the largest take.
		largest int64
		// late is set if the last take of a window is paid for after it.
		late  bool
		steps int
	}{
		{funnel, 1, 1, false, 7}, {funnel, 2, 2, false, 6}, {funnel, 3, 3, false, 6},
		{bursty, 0, 2, true, 6}, {bursty, 1, 2, true, 6}, {bursty, 2, 3, true, 5},
	} {
		limit := c.make(c.capacity)
		u := &undoing{t: t, p: limit, refunder: limit.(policy.Refunder), capacity: c.capacity, largest: c.largest, late: c.late}
		if raceFactor > 1 {
			c.steps--
		}
		u.step(1+policy.Instant(c.capacity), 0, c.steps)
		require.Greater(t, u.rows, 1000)
		require.Greater(t, u.given, u.rows/100, "%v: hardly anything was given back", limit)
		require.Equal(t, c.largest > 1, u.parts > 0, "%v", limit)
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
	// parts is the number of given units' takes that gave back a part.
	parts int
}

type undoTake struct {
	n             int64
	at, start     policy.Instant
	before, taken uint64
	// undone is the number of units undone before this take.
	undone int64
	ended  bool
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
				next, decision := u.p.Take(word, now, n, patience)
				if !decision.Allowed || patience > 0 && decision.Wait == 0 {
					continue
				}
				u.takes = append(u.takes, undoTake{n, now, now + policy.Instant(decision.Wait), word, next, u.undone, false})
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

// Another call may have taken after units came back, and left the take's word. In a queue it is
// behind the take. In a warm key it paid its price because the key was warm.
func TestCancelGivesBackNothingIfTheWordIsTheSameAgain(t *testing.T) {
	for _, limit := range []policy.Policy{
		policy.Must(policy.Queue(20, 1, time.Second)),
		policy.Must(policy.WarmingUp(2, time.Second, 4*time.Second, 3)),
	} {
		r := limit.(policy.Refunder)
		now := policy.Instant(time.Minute)
		// The take uses all that was stored.
		word, _ := limit.Take(0, now, 8, 0)
		taken, _ := limit.Take(word, now, 7, math.MaxInt64)
		again, d := limit.Take(r.Refund(taken, now, 2), now, 2, math.MaxInt64)
		require.True(t, d.Allowed && d.Wait > 0)
		require.Equal(t, taken, again)
		assert.Equal(t, again, r.Cancel(again, taken, now, now, 7, 2), "%v", limit)
	}
}

// If the limits of other calls are unknown, only units counted in windows can be given back.
func TestCancelGivesBackNothingIfOthersAreUnknown(t *testing.T) {
	for _, text := range []string{
		"funnel 10, 1/s", "funnel 2, 2/5840d", "queue 10, 1/s", "bursty 1/s, 10", "bursty 2/5840d, 1", "warming up 1/s over 10s, cold 3",
	} {
		limit := policy.Must(policy.Parse(text))
		taken, d := limit.Take(0, 1, 1, 0)
		require.True(t, d.Allowed)
		for _, word := range []uint64{taken, taken - 1, taken - taken/4, taken / 2, taken + 1, taken + taken/2} {
			assert.Equal(t, word, limit.(policy.Refunder).Cancel(word, taken, 1, 1, 1, math.MaxInt64), "%v", limit)
		}
	}
	for _, text := range []string{"window 10/s", "sliding 10/s", "at most 10/s", "window 10/s aligned"} {
		limit := policy.Must(policy.Parse(text))
		taken, _ := limit.Take(0, 1, 3, 0)
		word, _ := limit.Take(taken, 1, 1, 0)
		asked, _ := limit.Take(0, 1, 2, 0)
		assert.Equal(t, asked, limit.(policy.Refunder).Cancel(word, taken, 1, 1, 2, math.MaxInt64), "%v", limit)
	}
}

// A word that is as good as never used under a limit, with a store that is still filling, is a
// debt under a smaller store: giving back under the first forgives nothing under the second.
func TestBurstyGivesBackNothingOfOthers(t *testing.T) {
	const s = time.Second
	large, small := policy.Must(policy.Bursty(1, s, 10)), policy.Must(policy.Bursty(1, s, 0))
	now := policy.Instant(1)
	owing, _ := small.Take(0, now, 3, 0)
	word, _ := large.Take(owing, now, 2, 0)
	word = large.(policy.Refunder).Refund(word, now, math.MaxInt64)

	_, d := large.Take(word, now, 0, 0)
	_, never := large.Take(0, now, 0, 0)
	assert.Equal(t, never, d)
	_, before := small.Take(owing, now, 1, 0)
	_, after := small.Take(word, now, 1, 0)
	require.False(t, before.Allowed)
	assert.GreaterOrEqual(t, after.RetryAfter, before.RetryAfter)
	assert.Equal(t, now+policy.Instant(10*s), small.FreshAt(word))
}
