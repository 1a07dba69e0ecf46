package policy

import (
	"fmt"
	"time"
)

// atMost keeps in a word the units of each part that an open window of length per can reach.
type atMost struct {
	untraced
	partition
}

// AtMost returns a limit without exceptions: no window of length per, wherever it starts, ever sees
// more than limit units. Choose it if an upstream service counts and punishes, or if the limit is
// all that a resource can bear. Otherwise it costs too much.
//
// It divides a period into k parts and counts each. The current part and the k before it may hold
// no more than the limit together, because a window of length per reaches into at most k+1. Rings
// of sub-windows usually count k, an approximation.
//
// The cost is in the rate. A unit taken at the end of a part counts for per; at its beginning, for
// (k+1)/k of per. Callers that take everything get k/(k+1) of limit/per in the long run. Evenly
// spaced callers get nearly the same, unless the limit is below 8. With a limit of 1 and calls once
// every per, every other call passes.
//
// k is 8, 4, 2 or 1: the largest for which k+1 counts up to limit fit a word; [Parts] returns it.
// For a second it is 8 for limits up to 7, 4 up to 63, 2 up to 1023, and 1, with half of the
// rate, up to 65535. For an hour it is 8 up to 15, 4 up to 255, 2 up to 16383, and 1 above.
//
// If bursts can be smaller, a [Funnel] of capacity b that drains limit-b every per keeps the same
// promise, and sustains all of (limit-b)/per.
//
// # The most that it admits
//
// In any window of length t: limit times (t/part + 1)/(k+1), both quotients rounded up, where
// part is per/k rounded up to a nanosecond. Within per, both ends included, that is limit.
//
// # Rounding and refusals
//
// limit is at least 1, per between a millisecond and 366 days. A limit is refused if two counts
// do not fit a word: the highest is 2047 for a millisecond, 524287 for a minute, 4194303 for an
// hour. The error is a *[FieldError].
//
// # Turns and time
//
// A waiting call has its turn at the beginning of the first part at which enough units have left,
// and is counted there. Otherwise turns and time are as for an [AlignedWindow], of parts.
//
// # Giving back
//
// Units come back to the latest part first, then to earlier parts that still count. That undoes a
// take just made; if it had to wait for its part, no other call is admitted before that part
// begins. If the units were of an earlier part, the latest may admit as many more while other
// units there still count. If units may be that old, use Reserve and Cancel.
//
// Cancel knows the part. It gives back all that the take took while that part counts, unless a
// limit with fewer parts has rewritten the word. A debt, as high as a count at most, lies in the
// current part and leaves with it.
//
// # One limit after another
//
// All AtMosts are a family. A limit that comes with a call (TakeWith) must have the same per. A
// word in use keeps its parts as long as its counts suffice, and each call gets the promise of
// its own limit. The same holds if a limit of the same per takes over for good (SetPolicy). If
// per changes, all that counts at that instant counts as taken then. If turns are promised, it
// counts in the first part that begins with the last turn or later, and no call is admitted
// before that.
func AtMost(limit int64, per time.Duration) (Policy, error) {
	if err := windowFault("AtMost", limit, per, minPeriod); err != nil {
		return nil, err
	}
	a := &atMost{}
	a.divide(limit, per, uint64(limit), layoutBits)
	if a.own == nil {
		return nil, &FieldError{Of: "AtMost", Field: "limit", Value: limit, Want: fmt.Sprintf(
			"at most %d: a word that lasts 9 years holds no higher counts of two parts of %v%s", a.layouts[0].full(), per, holders(limit, per))}
	}
	return a, nil
}

// Choke refuses a call if its turn would begin a later part.
func (a *atMost) Choke(word uint64, now Instant) (uint64, bool) {
	t := clamped(now, endOfParts)
	p := a.slotsAt(word, t)
	if p.used() >= uint64(a.limit) || p.begins(p.number) > t {
		return word, false
	}
	return a.charged(p, t, 1).join(), true
}

func (a *atMost) Take(word uint64, now Instant, n int64, patience time.Duration) (next uint64, d Decision) {
	t := clamped(now, endOfParts)
	p := a.slotsAt(word, t)
	used := p.used()
	next = word
	d.Limit = a.limit
	switch {
	case n < 0 || n > a.limit:
		d.RetryAfter = Never
	case n == 0:
		d.Allowed = true
	default:
		later, left := 0, used
		for ; left+uint64(n) > uint64(a.limit); later++ {
			// The oldest parts leave.
			left -= p.count(p.counts - 1 - later)
		}
		turn := p.advanceTo(p.number + uint64(later))
		start := max(t, turn.begins(turn.number))
		if start > endOfParts {
			// Time stands still before the turn.
			d.RetryAfter = Never
			break
		}
		if d.admit(time.Duration(start-t), patience) {
			// The charged parts fit a word, as the part begins before endOfParts.
			p = a.charged(turn, t, uint64(n))
			next, used = p.join(), p.used()
		}
	}
	if p.begins(p.number) <= t {
		d.Remaining = max(a.limit-int64(used), 0)
	}
	d.ResetAfter = time.Duration(max(p.freshAt()-t, 0))
	return next, d
}

// charged counts n more units in the current part, repacked if only the own layout has room.
func (a *atMost) charged(p slots, t Instant, n uint64) slots {
	if n > p.full()-p.count(0) && p.full() < a.own.full() {
		p = a.repack(p, t)
	}
	p.packed += min(n, p.full()-p.count(0))
	return p
}

// repack moves all that counts into a part of the limit's own, coarser layout. No unit leaves
// earlier, and the new part does not begin before promised turns.
func (a *atMost) repack(p slots, t Instant) slots {
	begins := p.begins(p.number)
	// latest is a period before the last instant at which the part counts.
	latest := begins + Instant(p.counts)*Instant(p.length) - Instant(a.per) - 1
	if begins > t {
		latest = begins + Instant(a.own.length) - 1
	}
	return slots{layout: a.own, number: a.own.numberAt(latest), packed: min(p.used(), a.own.full())}
}

func (a *atMost) Refund(word uint64, now Instant, n int64) uint64 {
	t := clamped(now, endOfParts)
	p := a.slotsAt(word, t)
	if n < 0 {
		charge := asUnits(n, a.own.full())
		if next := a.charged(p, t, charge); next.number <= next.last {
			return next.join()
		}
		p.packed += min(charge, p.full()-p.count(0))
		return p.join()
	}
	left := asUnits(n, p.used())
	if left == 0 {
		return word
	}
	for before := 0; left > 0; before++ {
		left -= p.takeBackFrom(before, left)
	}
	return p.join()
}

// Cancel ignores undone: the units of a count are indistinguishable.
func (a *atMost) Cancel(word, taken uint64, _, now Instant, n, _ int64) uint64 {
	t := clamped(now, endOfParts)
	p, took := a.slotsAt(word, t), a.split(taken)
	// ago is in parts. It wraps to a huge number if the take lies ahead.
	ago := p.number - took.number
	if n < 0 || took.layout != p.layout || ago >= uint64(p.counts) {
		return word
	}
	if p.takeBackFrom(int(ago), asUnits(n, p.full())) == 0 {
		return word
	}
	return p.join()
}

func (a *atMost) Reads(other Policy) bool {
	o, ok := other.(*atMost)
	return ok && o.per == a.per
}

func (a *atMost) Carry(from Policy, word uint64, now Instant) (uint64, bool) {
	old, ok := from.(*atMost)
	if !ok {
		return 0, false
	}
	if a.Reads(old) {
		return word, true
	}
	t := clamped(now, endOfParts)
	if t >= old.FreshAt(word) {
		return 0, true
	}
	p := old.slotsAt(word, t)
	// All turns of a part are at its beginning.
	start := p.begins(p.number)
	number := a.own.numberAt(t)
	if start > t {
		number = min(a.own.numberAt(start+Instant(a.own.length)-1), a.own.last)
	}
	return slots{layout: a.own, number: number, packed: min(p.used(), a.own.full())}.join(), true
}

func (a *atMost) String() string { return "at most " + rateText(a.limit, a.per) }
