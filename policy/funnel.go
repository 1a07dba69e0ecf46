package policy

import (
	"fmt"
	"time"
)

// funnel keeps in a word the theoretical arrival time: the tick at which the bucket is empty.
type funnel struct {
	pace
	// depth is the ticks that a full bucket takes to drain: capacity * interval.
	depth uint64
	// end is the instant at which the limit's time stands still.
	end      Instant
	capacity int64
}

// Funnel returns the leaky bucket as a meter: a bucket of that capacity that drains count units
// every per, evenly. Each unit fills it by one, and a call that does not fit is refused. It is
// the same limit as a token bucket, and uses the generic cell rate algorithm of ATM (ITU-T I.371,
// virtual scheduling). Choose it unless there is a reason for another: bursts up to capacity pass
// at once, and the long run is held to the rate.
//
// # The most that it admits
//
// In any window of length t: capacity + count*t/per. That includes calls that wait for their
// turn, except that Wait is rounded up to a whole nanosecond.
//
// # Rounding and refusals
//
// The interval per/count is rounded up to a sixteenth of a nanosecond, so the rate is never above
// the requested rate. It is lower by at most 63 parts per million up to a million a second, and 1
// in 1000 at worst. If every take fills the bucket, as with capacity 1, each loses up to a
// nanosecond more, because callers come at whole nanoseconds. Funnel refuses a rate that rounding would
// slow by more, a capacity or count below 1, a period below a microsecond, and a bucket that drains in
// more than 17 years. The error is a *[FieldError].
//
// # Turns and time
//
// If the clock goes backwards, no call gains units. Time stands still 18 years after the epoch (see
// [Instant]), less the time that a full bucket takes to drain. Patience beyond 9 years counts as 9.
//
// # Giving back
//
// A refund gives back units that have not drained. A charge (a refund below 0) may leave a debt
// beyond the capacity. A take cancelled after other calls took gives back its undrained part, at
// most the capacity less the units of those calls: waiting calls may need the rest.
//
// # One limit after another
//
// All funnels are a family. A limit that comes with a call (TakeWith) keeps the time that the
// key still needs to drain, as in redis-cell. Limits that alternate share time, not units: at
// once they may admit the sum of their capacities, and in the long run the fastest rate. A limit
// that takes over for good (SetPolicy) keeps the units, up to its capacity. If turns are
// promised, the new bucket is full at the last of them or, after a debt beyond the capacity, once
// that has drained. No series of changes hands a promised turn out twice.
func Funnel(capacity, count int64, per time.Duration) (Policy, error) {
	if capacity < 1 {
		return nil, &FieldError{Of: "Funnel", Field: "capacity", Value: capacity, Want: "1 or more"}
	}
	pace, err := newPace("Funnel", count, per, maxDepth)
	if err != nil {
		return nil, err
	}
	depth, err := pace.depth("Funnel", "capacity", capacity)
	if err != nil {
		return nil, err
	}
	return &funnel{pace: pace, depth: depth, end: end(depth), capacity: capacity}, nil
}

func (f *funnel) Limit() int64 { return f.capacity }

func (f *funnel) Window() time.Duration { return f.window(f.capacity) }

func (f *funnel) Delays() bool { return false }

func (f *funnel) Choke(word uint64, now Instant) (uint64, bool) {
	tick := ticks(now, f.end)
	drained := max(word, tick)
	if drained-tick > f.depth-f.interval {
		return word, false
	}
	return drained + f.interval, true
}

func (f *funnel) Take(word uint64, now Instant, n int64, patience time.Duration) (next uint64, decision Decision) {
	next, decision.Allowed, decision.Limit, decision.Remaining, decision.Wait, decision.RetryAfter, decision.ResetAfter = f.Decide(word, now, n, patience)
	return next, decision
}

// Decide is Take with the fields of the Decision in registers, for package table.
func (f *funnel) Decide(word uint64, now Instant, n int64, patience time.Duration) (
	next uint64, allowed bool, limit, remaining int64, wait, retryAfter, resetAfter time.Duration,
) {
	tick := ticks(now, f.end)
	drained := max(word, tick)
	// debt is what the key owes now, in ticks.
	debt := drained - tick
	next = word
	switch {
	case n < 0 || n > f.capacity:
		retryAfter = Never
	case n == 0:
		allowed = true
	default:
		// ask and room are at most maxDepth, and reach not far above: nothing overflows. debt may
		// be anything, and is only compared.
		ask := uint64(n) * f.interval
		// room is the debt that leaves room for n right now.
		room := f.depth - ask
		reach := room + patienceTicks(patience)
		switch {
		case drained > MaxWord-ask:
			// No word can hold the units, since time stands still before.
			retryAfter = Never
		case debt > reach:
			retryAfter = retryAt(drained-reach, tick, f.end)
		default:
			allowed = true
			if debt > room {
				wait = nanosUp(debt - room)
			}
			next = drained + ask
			debt += ask
		}
	}
	if debt <= f.depth {
		remaining = int64(f.byInterval.quotient(f.depth - debt))
	}
	return next, allowed, f.capacity, remaining, wait, retryAfter, nanosUp(debt)
}

func (f *funnel) Refund(word uint64, now Instant, n int64) uint64 {
	return f.refund(word, ticks(now, f.end), n)
}

// Cancel computes the word without the take, with later calls taking when they really start. The
// bucket drains earlier by the units taken, less those that have drained by now or would have
// while the bucket stood empty before a later call.
//
// The bucket is full when a waiting call starts. Except for the units of that call and later
// ones, its content, the rest of the depth, would still be there. No more is certain, because all
// may start together. If no call waits, at least the undrained part of the take fits.
//
// Units that other calls gave back since may lie below or above the take. If below, the take
// drains sooner by as much, but no sooner than if it had been alone. If above, more was taken
// later than the word shows, by as much. If they fill the largest bucket, nothing is known.
func (f *funnel) Cancel(word, taken uint64, start, now Instant, n, undone int64) uint64 {
	tick := ticks(now, f.end)
	gone := timesUp(max(undone, 0), f.interval, maxDepth)
	drained := f.lowest(taken, gone, ticks(start, f.end), n)
	if n <= 0 || word <= tick || drained <= tick || gone == maxDepth {
		return word
	}
	// The sum cannot overflow, since gone is at most maxDepth.
	top := word + gone
	later := min(top-min(taken, top), f.depth)
	return word - min(timesUp(n, f.interval, word-tick), drained-tick, f.depth-later)
}

func (f *funnel) Reads(other Policy) bool {
	_, ok := other.(*funnel)
	return ok
}

func (f *funnel) Carry(from Policy, word uint64, now Instant) (uint64, bool) {
	old, ok := from.(*funnel)
	if !ok {
		return 0, false
	}
	return f.pace.carry(f.depth, f.end, old.pace, old.depth, word, now), true
}

// carry translates the tick at which a bucket of the pace old is empty. The units are kept, up to a full
// bucket of this pace. If turns are promised, the bucket is full when the last comes, so that no further
// change hands a turn out again.
func (p pace) carry(depth uint64, end Instant, old pace, oldDepth, word uint64, now Instant) uint64 {
	tick := ticks(now, end)
	switch {
	case word <= tick:
		return word
	case word-tick <= oldDepth:
		return tick + min(p.rescale(old, word-tick, depth), MaxWord-tick)
	}
	// wait is the time until the last turn.
	wait := word - tick - oldDepth
	return tick + min(wait+depth, MaxWord-tick)
}

// FreshAt is after the last access: a take leaves the word later than its own instant.
func (f *funnel) FreshAt(word uint64) Instant { return Instant(nanosUp(word)) }

func (f *funnel) String() string {
	return fmt.Sprintf("funnel %d, %s", f.capacity, rateText(f.count, f.per))
}
