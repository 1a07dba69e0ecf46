package policy_test

import (
	"math"
	"math/big"
	"testing"
	"time"

	"github.com/ral-limiter/ral/policy"
)

// trial puts a key through a series of calls and checks every answer:
//
//  1. the decision is the model's, field by field;
//  2. Remaining is between nothing and the limit, and no word is above MaxWord;
//  3. a refused call and a call for nothing return the word as it was;
//  4. Choke is Take of a unit without patience;
//  5. RetryAfter and Wait are exact to the nanosecond;
//  6. Remaining is exact to the unit, for a call or, with credit, calls of a unit;
//  7. from FreshAt on a word is as good as 0, a nanosecond earlier it is not, and no take leaves
//     it in the past or earlier than it was;
//  8. every window of the admitted calls, less units given back, keeps the bound, whatever the
//     clock does;
//  9. an instant before now has no more to give than now has;
//  10. no call starts before an earlier call that waits;
//  11. a take that is given back at once might not have been;
//  12. Refund and Cancel leave the model's state.
type trial struct {
	t *testing.T
	subject
	refunder policy.Refunder
	word     uint64

	admitted []admission
	recorded []record
	// units is the number of admitted units, less those that came back.
	units *big.Int
	// Both in sixteenths of a nanosecond, and since units came back last:
	// latest is the latest turn. It and queue are in sixteenths of a nanosecond, since units came back
	// last.
	latest *big.Int
	// queue is the latest turn that a call waited for.
	queue *big.Int
	// clock is the latest instant at which anything was recorded.
	clock *big.Int

	// doing is for messages.
	doing  action
	before uint64
}

type record struct {
	n     int64
	taken uint64
	mark  any
}

func newTrial(t *testing.T, limit subject) *trial {
	t.Helper()
	r := &trial{t: t, subject: limit, units: new(big.Int), latest: new(big.Int), queue: new(big.Int), clock: new(big.Int)}
	var ok bool
	if r.refunder, ok = limit.Policy.(policy.Refunder); !ok {
		t.Fatalf("%v is no policy.Refunder", limit)
	}
	return r
}

// do does an action, checks everything, and keeps the word.
func (r *trial) do(a action) policy.Decision {
	r.t.Helper()
	r.doing, r.before = a, r.word
	switch a.what {
	case refunds:
		return r.refund(a)
	case cancels:
		return r.cancel(a)
	}
	return r.call(a)
}

func (r *trial) call(c action) policy.Decision {
	r.t.Helper()
	next, decision := r.Take(r.word, c.now, c.n, c.patience)
	if want := r.oracle.take(c.now, c.n, c.patience); decision != want {
		r.t.Fatalf("%v: Take(%d, %d, %d, %d)\n got %#v\nwant %#v",
			r.subject, r.word, c.now, c.n, c.patience, decision, want)
	}
	r.sane(c, next, decision)
	r.chokes(r.t, r.word, c.now)
	r.delays(c, decision)
	r.remaining(c, next, decision)
	r.fresh(c, next, decision)
	r.backwards(c)
	if decision.Allowed && c.n > 0 {
		if !r.costly {
			r.restores(c, next, decision)
		}
		r.admit(c, decision)
		r.recorded = append(r.recorded, record{n: c.n, taken: next, mark: r.oracle.mark()})
	}
	r.word = next
	return decision
}

func (r *trial) must(ok bool, format string, args ...any) {
	if !ok {
		r.t.Helper()
		r.t.Errorf(format, args...)
		r.t.Fatalf("%v, word %d: %v", r.subject, r.before, r.doing)
	}
}

func (r *trial) sane(c action, next uint64, decision policy.Decision) {
	r.must(decision.Limit == r.limit, "the decision has the limit %d, want %d", decision.Limit, r.limit)
	r.must(r.Limit() == r.limit, "Limit returns %d, want %d", r.Limit(), r.limit)
	r.must(r.Delays() == (r.queues > 0), "Delays returns %t, want %t", r.Delays(), !r.Delays())
	r.must(0 <= decision.Remaining && decision.Remaining <= decision.Limit, "%d units remain of %d, want from 0 to the limit", decision.Remaining, decision.Limit)
	r.must(next <= policy.MaxWord, "word %d is above MaxWord", next)
	r.must(0 <= decision.Wait && decision.Wait <= max(c.patience, r.queues), "the call waits %v, want at most its patience or the queue", decision.Wait)
	r.must(decision.Allowed == (decision.RetryAfter == 0), "RetryAfter is %v, want 0 for an allowed call alone", decision.RetryAfter)
	r.must(decision.Allowed || decision.Wait == 0, "a refused call waits %v", decision.Wait)
	if !decision.Allowed || c.n == 0 {
		r.must(next == r.word, "nothing was taken, but the word became %d", next)
		r.must(decision.Wait == 0, "a call that takes nothing waits %v", decision.Wait)
	} else {
		r.must(next != r.word, "units were taken, but the word became %d", next)
	}
}

// delays makes the same call again, around the instant that it was told.
func (r *trial) delays(c action, decision policy.Decision) {
	now := held(c.now, r.end)
	if after := decision.RetryAfter; after != 0 && after <= time.Duration(r.end-now) {
		_, early := r.Take(r.word, now+policy.Instant(after)-1, c.n, c.patience)
		r.must(!early.Allowed, "the call is admitted a nanosecond before its RetryAfter of %d ns", after)
		r.chokes(r.t, r.word, now+policy.Instant(after)-1)
		_, then := r.Take(r.word, now+policy.Instant(after), c.n, c.patience)
		r.must(then.Allowed, "the call is refused at its RetryAfter of %d ns", after)
		r.chokes(r.t, r.word, now+policy.Instant(after))
	}
	if decision.Wait > 0 {
		_, less := r.Take(r.word, c.now, c.n, decision.Wait-1)
		r.must(!less.Allowed || decision.Wait <= r.queues && less == decision,
			"the call waits %d ns, but is admitted with less patience", decision.Wait)
		_, same := r.Take(r.word, c.now, c.n, decision.Wait)
		r.must(same == decision, "the call waits %d ns, but with that patience the decision is %+v", decision.Wait, same)
	}
}

func (s subject) chokes(t *testing.T, word uint64, now policy.Instant) {
	t.Helper()
	next, allowed := s.Policy.(policy.Choker).Choke(word, now)
	if want, d := s.Take(word, now, 1, 0); next != want || allowed != d.Allowed {
		t.Fatalf("%v: Choke(%d, %d) = %d, %v, but Take of one %d, %+v", s, word, now, next, allowed, want, d)
	}
}

func (r *trial) remaining(c action, next uint64, decision policy.Decision) {
	all, d1 := r.Take(next, c.now, decision.Remaining, 0)
	r.must(d1.Allowed, "%d units remain, but a call for them is refused", decision.Remaining)
	if r.credit {
		r.credited(c, next, all, decision.Remaining)
		return
	}
	if decision.Remaining < math.MaxInt64 {
		_, more := r.Take(next, c.now, decision.Remaining+1, 0)
		r.must(!more.Allowed, "%d units remain, but a call for one more is admitted", decision.Remaining)
	}
}

// credited checks Remaining by calls of a unit. all is the word after as many were taken at
// once. The last is admitted, and another is not unless Limit cuts Remaining off.
func (r *trial) credited(c action, next, all uint64, remaining int64) {
	if remaining > 0 {
		less, _ := r.Take(next, c.now, remaining-1, 0)
		_, last := r.Take(less, c.now, 1, 0)
		r.must(last.Allowed, "%d units remain, but the last call of one unit is refused", remaining)
	}
	if remaining < r.limit {
		_, more := r.Take(all, c.now, 1, 0)
		r.must(!more.Allowed, "%d units remain, but a call for one more is admitted", remaining)
	}
}

func (r *trial) fresh(c action, next uint64, decision policy.Decision) {
	instant, now := r.FreshAt(next), held(c.now, r.end)
	if !decision.Allowed || c.n == 0 {
		r.must(instant >= 0, "FreshAt is %d, want 0 or more", instant)
	} else {
		r.must(instant > now, "FreshAt is %d, want later than the take", instant)
		r.must(instant >= r.FreshAt(r.word), "FreshAt is %d, earlier than before the take", instant)
	}
	want := r.resetAfter(next, now)
	r.must(decision.ResetAfter == want, "ResetAfter is %d, but the word is fresh in %d", decision.ResetAfter, want)
	r.must(want == 0 || want == time.Duration(instant-now), "the word is as good as new in %d, but FreshAt is in %d", want, instant-now)
	if instant > r.end {
		// Time does not get there.
		return
	}
	if instant > 0 && (want > 0 || !r.apart) {
		_, d := r.Take(next, instant-1, 0, 0)
		r.must(d.ResetAfter == r.resetAfter(next, instant-1), "a nanosecond before FreshAt the decision is %+v", d)
		r.must(!r.alike(next, 0, instant-1), "FreshAt is %d, but the word is as good as new a nanosecond earlier", instant)
	}
	for _, later := range []time.Duration{0, 1, r.period, math.MaxInt64} {
		r.must(r.alike(next, 0, shift(instant, int64(later))), "FreshAt is %d, but the word is not as good as new %d ns later", instant, later)
	}
}

// resetAfter returns the expected Decision.ResetAfter: the time until FreshAt, or until the word
// is as good as new under this limit alone.
func (s subject) resetAfter(word uint64, now policy.Instant) time.Duration {
	if s.apart && s.alike(word, 0, now) {
		return 0
	}
	return time.Duration(max(s.FreshAt(word)-now, 0))
}

// alike reports whether two words are answered alike now and, as far as a look shows, later.
func (s subject) alike(a, b uint64, now policy.Instant) bool {
	for _, n := range [...]int64{1, s.limit, 0, -1, s.limit/2 + 1} {
		for _, patience := range [...]time.Duration{0, math.MaxInt64} {
			nextA, gotA := s.Take(a, now, n, patience)
			nextB, gotB := s.Take(b, now, n, patience)
			if !gotA.Allowed || n <= 0 {
				// The words are unchanged, so they may differ.
				nextA, nextB = 0, 0
			}
			if gotA != gotB || !s.aliases && nextA != nextB || s.FreshAt(nextA) != s.FreshAt(nextB) {
				return false
			}
		}
	}
	return true
}

// backwards asks earlier: a clock that was set back must not pay.
func (r *trial) backwards(c action) {
	now := held(c.now, r.end)
	_, decision := r.Take(r.word, now, 0, 0)
	for _, earlier := range [...]policy.Instant{now - 1, now - policy.Instant(min(r.period, time.Duration(now))), now / 2, 0, -1} {
		if earlier >= now {
			continue
		}
		_, then := r.Take(r.word, earlier, 0, 0)
		r.must(then.Remaining <= decision.Remaining, "%d units remain, but at the earlier instant %d there are %d", decision.Remaining, earlier, then.Remaining)
	}
}

func (r *trial) restores(c action, next uint64, decision policy.Decision) {
	now := held(c.now, r.end)
	back := r.refunder.Refund(next, c.now, c.n)
	if r.forgets && decision.Wait > 0 {
		r.must(r.FreshAt(back) <= r.FreshAt(next), "after the give-back FreshAt is %d, want at most %d", r.FreshAt(back), r.FreshAt(next))
		for _, later := range [...]policy.Instant{0, 1, policy.Instant(decision.Wait) / 2, policy.Instant(decision.Wait) - 1} {
			_, was := r.Take(r.word, now+later, 0, 0)
			_, is := r.Take(back, now+later, 0, 0)
			r.must(is.Remaining <= was.Remaining, "after the give-back %d units remain, want at most %d", is.Remaining, was.Remaining)
		}
		_, then := r.Take(back, now+policy.Instant(decision.Wait), c.n, 0)
		r.must(then.Allowed || now+policy.Instant(decision.Wait) > r.end, "after the give-back the same call is refused at the turn that was given back")
		return
	}
	for _, later := range [...]policy.Instant{0, 1, policy.Instant(r.period), r.FreshAt(r.word) - now - 1, r.FreshAt(next) - now - 1} {
		switch {
		case later < 0 || later > r.end-now:
		case r.stays:
			_, was := r.Take(r.word, now+later, 0, 0)
			_, is := r.Take(back, now+later, 0, 0)
			r.must(is.Remaining == was.Remaining, "%d ns after the give-back %d units remain, want %d", later, is.Remaining, was.Remaining)
		default:
			r.must(r.alike(back, r.word, now+later), "%d ns after the give-back the answers are not as if nothing had been taken", later)
		}
	}
}

func (r *trial) refund(a action) policy.Decision {
	r.t.Helper()
	next := r.refunder.Refund(r.word, a.now, a.n)
	return r.gave(a, next, r.oracle.refund(a.now, a.n))
}

// cancel undoes the k-th last of the takes that were not undone yet.
func (r *trial) cancel(a action) policy.Decision {
	r.t.Helper()
	if len(r.recorded) == 0 {
		_, d := r.Take(r.word, a.now, 0, 0)
		return d
	}
	i := len(r.recorded) - 1 - int(uint64(a.n)%uint64(len(r.recorded)))
	take := r.recorded[i]
	r.recorded = append(r.recorded[:i:i], r.recorded[i+1:]...)
	next := r.refunder.Cancel(r.word, take.taken, 0, a.now, take.n, 0)
	return r.gave(a, next, r.oracle.cancel(a.now, take.mark, take.n))
}

// gave checks the state after units came back, and returns the decision of a look at it.
func (r *trial) gave(a action, next uint64, back *big.Rat) policy.Decision {
	r.t.Helper()
	r.must(next <= policy.MaxWord, "word %d is above MaxWord", next)
	r.must(back.Sign() >= 0, "the model gave back %v", back)
	if back.Sign() > 0 {
		// Units that came back can be taken again. A waiting call still waits, and another may
		// start before it.
		r.units = new(big.Int).Sub(r.units, ceilInt(back))
		r.latest, r.queue = new(big.Int), new(big.Int)
		if !r.clockless {
			r.clocked(a)
		}
		if r.joinsAt(next) {
			r.latest = r.clock
		}
	} else if a.n >= 0 {
		r.must(r.FreshAt(next) == r.FreshAt(r.word), "nothing comes back, but the word %d has another FreshAt", next)
	} else if next != r.word {
		// A charge opens a window too, which a call at an earlier instant joins.
		r.clocked(a)
	}
	r.word = next
	return r.call(action{what: takes, now: a.now})
}

func (r *trial) clocked(a action) {
	if clock := sixteenths(whole(int64(held(a.now, r.end)))); clock.Cmp(r.clock) > 0 {
		r.clock = clock
	}
}

// joinsAt reports whether a call whose clock is behind joins the word's window or part. A window that
// stays where it opened is not joined if those that were open at the latest instant were given back.
func (r *trial) joinsAt(word uint64) bool {
	return r.joins && (!r.stays || sixteenths(whole(int64(r.FreshAt(word)))).Cmp(r.clock) > 0)
}

type admission struct {
	// before is the number of units that were admitted before it.
	before *big.Int
	// turn is the exact instant at which it may start, in sixteenths of a nanosecond.
	turn *big.Int
}

// admit checks every window that the call closes. The bound counts a call at its exact instant;
// the caller is told the next whole nanosecond. A clock that goes back must mint nothing: no call
// counts as earlier than an admitted call before it, unless units came back between the two.
func (r *trial) admit(c action, decision policy.Decision) {
	exact := r.oracle.turn()
	start := held(c.now, r.end) + policy.Instant(decision.Wait)
	r.must(ceil(exact) == time.Duration(start), "the call starts at %d, want %s", start, exact.FloatString(4))

	turn := sixteenths(exact)
	if r.clocked(c); r.joinsAt(r.word) && turn.Cmp(r.clock) < 0 {
		turn = r.clock
	}
	r.must(turn.Cmp(r.queue) >= 0, "the call starts before a call that waits until %d/16 ns", r.queue)
	if decision.Wait > 0 {
		r.queue = turn
	}
	if turn.Cmp(r.latest) < 0 {
		turn = r.latest
	}
	r.latest = turn
	r.admitted = append(r.admitted, admission{before: r.units, turn: turn})
	r.units = new(big.Int).Add(r.units, big.NewInt(c.n))
	var units, window big.Int
	for i, first := range r.admitted {
		units.Sub(r.units, first.before)
		if window.Sub(turn, first.turn); window.Sign() < 0 {
			window.SetInt64(0)
		}
		r.must(r.within(&units, &window), "%d units are admitted in %d/16 ns since admission %d, which is more than the limit", &units, &window, i)
	}
}
