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
	most := &atMost{}
	most.divide(limit, per, uint64(limit), layoutBits)
	if most.own == nil {
		return nil, &FieldError{Of: "AtMost", Field: "limit", Value: limit, Want: fmt.Sprintf(
			"at most %d: a word that lasts 9 years holds no higher counts of two parts of %v%s", most.layouts[0].full(), per, holders(limit, per))}
	}
	return most, nil
}

// Choke refuses a call if its turn would begin a later part.
func (a *atMost) Choke(word uint64, now Instant) (uint64, bool) {
	instant := clamped(now, endOfParts)
	parts := a.slotsAt(word, instant)
	if parts.used() >= uint64(a.limit) || parts.begins(parts.number) > instant {
		return word, false
	}
	return a.charged(parts, instant, 1).join(), true
}

func (a *atMost) Take(word uint64, now Instant, n int64, patience time.Duration) (next uint64, decision Decision) {
	instant := clamped(now, endOfParts)
	parts := a.slotsAt(word, instant)
	used := parts.used()
	next = word
	decision.Limit = a.limit
	switch {
	case n < 0 || n > a.limit:
		decision.RetryAfter = Never
	case n == 0:
		decision.Allowed = true
	default:
		later, left := 0, used
		for ; left+uint64(n) > uint64(a.limit); later++ {
			// The oldest parts leave.
			left -= parts.count(parts.counts - 1 - later)
		}
		turn := parts.advanceTo(parts.number + uint64(later))
		start := max(instant, turn.begins(turn.number))
		if start > endOfParts {
			// Time stands still before the turn.
			decision.RetryAfter = Never
			break
		}
		if decision.admit(time.Duration(start-instant), patience) {
			// The charged parts fit a word, as the part begins before endOfParts.
			parts = a.charged(turn, instant, uint64(n))
			next, used = parts.join(), parts.used()
		}
	}
	if parts.begins(parts.number) <= instant {
		decision.Remaining = max(a.limit-int64(used), 0)
	}
	decision.ResetAfter = time.Duration(max(parts.freshAt()-instant, 0))
	return next, decision
}

// charged counts n more units in the current part, repacked if only the own layout has room.
func (a *atMost) charged(parts slots, instant Instant, n uint64) slots {
	if n > parts.full()-parts.count(0) && parts.full() < a.own.full() {
		parts = a.repack(parts, instant)
	}
	parts.packed += min(n, parts.full()-parts.count(0))
	return parts
}

// repack moves all that counts into a part of the limit's own, coarser layout. No unit leaves
// earlier, and the new part does not begin before promised turns.
func (a *atMost) repack(parts slots, instant Instant) slots {
	begins := parts.begins(parts.number)
	// latest is a period before the last instant at which the part counts.
	latest := begins + Instant(parts.counts)*Instant(parts.length) - Instant(a.per) - 1
	if begins > instant {
		latest = begins + Instant(a.own.length) - 1
	}
	return slots{layout: a.own, number: a.own.numberAt(latest), packed: min(parts.used(), a.own.full())}
}

func (a *atMost) Refund(word uint64, now Instant, n int64) uint64 {
	instant := clamped(now, endOfParts)
	parts := a.slotsAt(word, instant)
	if n < 0 {
		charge := asUnits(n, a.own.full())
		if next := a.charged(parts, instant, charge); next.number <= next.last {
			return next.join()
		}
		parts.packed += min(charge, parts.full()-parts.count(0))
		return parts.join()
	}
	left := asUnits(n, parts.used())
	if left == 0 {
		return word
	}
	for before := 0; left > 0; before++ {
		left -= parts.takeBackFrom(before, left)
	}
	return parts.join()
}

// Cancel ignores undone: the units of a count are indistinguishable.
func (a *atMost) Cancel(word, taken uint64, _, now Instant, n, _ int64) uint64 {
	instant := clamped(now, endOfParts)
	parts, took := a.slotsAt(word, instant), a.split(taken)
	// ago is in parts. It wraps to a huge number if the take lies ahead.
	ago := parts.number - took.number
	if n < 0 || took.layout != parts.layout || ago >= uint64(parts.counts) {
		return word
	}
	if parts.takeBackFrom(int(ago), asUnits(n, parts.full())) == 0 {
		return word
	}
	return parts.join()
}

func (a *atMost) Reads(other Policy) bool {
	most, ok := other.(*atMost)
	return ok && most.per == a.per
}

func (a *atMost) Carry(from Policy, word uint64, now Instant) (uint64, bool) {
	old, ok := from.(*atMost)
	if !ok {
		return 0, false
	}
	if a.Reads(old) {
		return word, true
	}
	instant := clamped(now, endOfParts)
	if instant >= old.FreshAt(word) {
		return 0, true
	}
	parts := old.slotsAt(word, instant)
	// All turns of a part are at its beginning.
	start := parts.begins(parts.number)
	number := a.own.numberAt(instant)
	if start > instant {
		number = min(a.own.numberAt(start+Instant(a.own.length)-1), a.own.last)
	}
	return slots{layout: a.own, number: number, packed: min(parts.used(), a.own.full())}.join(), true
}

func (a *atMost) String() string { return "at most " + rateText(a.limit, a.per) }
