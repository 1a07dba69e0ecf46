package policy

import (
	"fmt"
	"time"
)

// funnel keeps in a key's word the theoretical arrival time: the tick at which
// the bucket will have drained.
type funnel struct {
	pace
	depth    uint64  // ticks that a full bucket takes to drain: capacity * interval
	end      Instant // where its time stands still
	capacity int64
}

// Funnel returns the leaky bucket as a meter: a bucket of the given capacity that
// drains count units every per, evenly. Each unit taken fills it by one, and what
// does not fit is refused. It is the same limit as a token bucket of that capacity
// refilled at that rate. It uses the arithmetic of the generic cell rate algorithm of
// ATM (ITU-T I.371, in its virtual scheduling form). Choose it unless there is a
// reason for another: bursts up to capacity pass at once, and the long run is held to
// the rate.
//
// # The most that it admits
//
// In any window of length t it admits at most capacity + count*t/per. That also holds
// for calls that wait for their turn, except that Wait is rounded up to a whole
// nanosecond.
//
// # What is rounded, and what is refused
//
// The interval per/count is kept in sixteenths of a nanosecond, rounded up, so the
// admitted rate is never above the one asked for. It is below it by at most 63 parts
// per million for rates up to a million a second, and by one part in a thousand at
// worst. If every take empties the bucket, as it does with capacity 1, up to a
// nanosecond more is lost per take, because callers come at whole nanoseconds.
// Refused are a rate that rounding would slow by more, a capacity, count or period
// below 1, and a bucket that takes more than 17 years to drain. The error is a
// *[FieldError].
//
// # Turns and time
//
// A clock that goes backwards mints nothing: the key is charged for the time that was
// counted already. Time stands still for a funnel 18 years after the epoch, less the
// time that a full bucket takes to drain. Patience beyond 9 years counts as 9.
//
// # Giving back
//
// Units are given back as far as they have not drained, and a charge may leave a debt
// beyond the capacity. If a take is cancelled after other calls took, the part of it
// that has not drained comes back. That is no more than the capacity less what those
// calls took, as the ones that wait may need the rest.
//
// # One limit after another
//
// All funnels are of one family. If another limit comes with a call (TakeWith), the
// time that the key still needs to drain is kept, as in redis-cell. Limits that
// alternate share time, not units: at once they may admit the sum of their
// capacities, and in the long run the fastest of their rates.
//
// If another limit takes over for good (SetPolicy), the units are kept, up to its
// capacity. If turns are promised, the new bucket is full when the last of them
// comes; if a debt is left beyond the capacity, it is full when that has drained. No
// change, and no series of changes, hands a promised turn out twice.
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

// Choke implements [Choker]: Take of one unit, without the divisions that
// describe what remains.
func (f *funnel) Choke(word uint64, now Instant) (uint64, bool) {
	t := ticks(now, f.end)
	drained := max(word, t)
	if drained-t > f.depth-f.interval {
		return word, false
	}
	return drained + f.interval, true
}

// Take implements [Policy].
func (f *funnel) Take(word uint64, now Instant, n int64, patience time.Duration) (next uint64, d Decision) {
	t := ticks(now, f.end)
	drained := max(word, t)
	debt := drained - t // what the key owes now, in ticks
	next = word
	d.Limit = f.capacity
	switch {
	case n < 0 || n > f.capacity:
		d.RetryAfter = Never
	case n == 0:
		d.Allowed = true
	default:
		// All of these are at most maxDepth or far below it, so that neither room
		// nor reach can overflow; debt alone may be anything, and is only compared.
		ask := uint64(n) * f.interval
		room := f.depth - ask // the debt that leaves room for n right now
		reach := room + patienceTicks(patience)
		switch {
		case drained > MaxWord-ask:
			// No word can hold it, now or later: time stands still before drained.
			d.RetryAfter = Never
		case debt > reach:
			d.RetryAfter = retryAt(drained-reach, t, f.end)
		default:
			d.Allowed = true
			if debt > room {
				d.Wait = nanosUp(debt - room)
			}
			next = drained + ask
			debt += ask
		}
	}
	if debt <= f.depth {
		d.Remaining = int64(f.byInterval.quotient(f.depth - debt))
	}
	d.ResetAfter = nanosUp(debt)
	return next, d
}

// Refund implements [Refunder]. What is charged beyond the capacity is a debt.
func (f *funnel) Refund(word uint64, now Instant, n int64) uint64 {
	return f.refund(word, ticks(now, f.end), n)
}

// Cancel implements [Refunder].
//
// Imagine the take away, and the later calls taking again at the instants at which
// they really start. The bucket then drains earlier by what the take put in, less two
// amounts: what has drained of that by now, and what would have drained of it if the
// bucket had stood empty before a later call starts.
//
// The bucket is full when a waiting call starts. What it holds then, except for the
// units of that call and of the other later ones, would still be there: the rest of
// the depth. No more can be counted on, since all of them may start together. If no
// call waits, there is at least as much room as has not drained of the take.
//
// Units that other calls gave back since may have been below the take or above it. If
// below, the take drains sooner by as much, but no sooner than if it had been alone.
// If above, more was taken later than the word shows, by as much. If they are as many
// as a bucket ever holds, nothing is known.
func (f *funnel) Cancel(word, taken uint64, at, now Instant, n, undone int64) uint64 {
	t := ticks(now, f.end)
	gone := timesUp(max(undone, 0), f.interval, maxDepth)
	drained := f.lowest(taken, gone, ticks(at, f.end), n)
	if n <= 0 || word <= t || drained <= t || gone == maxDepth {
		return word
	}
	top := word + gone // cannot overflow, since gone is at most maxDepth
	later := min(top-min(taken, top), f.depth)
	return word - min(timesUp(n, f.interval, word-t), drained-t, f.depth-later)
}

// Reads implements [Relative].
func (f *funnel) Reads(other Policy) bool {
	_, ok := other.(*funnel)
	return ok
}

// Carry implements [Relative].
func (f *funnel) Carry(from Policy, word uint64, now Instant) (uint64, bool) {
	old, ok := from.(*funnel)
	if !ok {
		return 0, false
	}
	return f.pace.carry(f.depth, f.end, old.pace, old.depth, word, now), true
}

// carry translates the tick at which a bucket of pace old will have drained into that
// of p's. The units in the bucket are kept, up to as many as the new one holds. If
// turns were promised beyond them, the new bucket is full when the last of those
// comes. A word without that instant would let a further change hand the same turns
// out again.
func (p pace) carry(depth uint64, end Instant, old pace, oldDepth, word uint64, now Instant) uint64 {
	t := ticks(now, end)
	switch {
	case word <= t:
		return word
	case word-t <= oldDepth:
		return t + min(p.rescale(old, word-t, depth), MaxWord-t)
	}
	wait := word - t - oldDepth // until the last turn
	return t + min(wait+depth, MaxWord-t)
}

// FreshAt implements [Policy]. A take leaves the word later than its own
// instant, so FreshAt is never earlier than the last access.
func (f *funnel) FreshAt(word uint64) Instant { return Instant(nanosUp(word)) }

// String implements [Policy].
func (f *funnel) String() string {
	return fmt.Sprintf("funnel %d, %s", f.capacity, rateText(f.count, f.per))
}
