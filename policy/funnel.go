package policy

import (
	"fmt"
	"math/bits"
	"time"
)

// A funnel's word and all its arithmetic count sixteenths of a nanosecond,
// here called ticks. Rounding the interval between two units up to a tick
// costs at most 63 parts per million at a million units a second; rounding to
// whole nanoseconds would cost 1000. One bit finer and a word would last 9
// years instead of 18.
const (
	tickBits = 4

	// maxDepth bounds the ticks that a full bucket needs to drain: 18 years.
	maxDepth = 1 << 63
	// lastInstant is where a funnel's time ends, 18 years after the epoch, so
	// that lastInstant and maxDepth together still fit a word.
	lastInstant = Instant(1)<<(63-tickBits) - 2
	// maxPatience bounds how far ahead a turn may lie: 9 years.
	maxPatience = time.Duration(1) << (62 - tickBits)

	// coarsest is the rounding that is still accepted as the rate that was
	// asked for: one part in so many. Every rate up to 16 million a second is
	// within it.
	coarsest = 1000
)

// funnel keeps in a key's word the theoretical arrival time: the tick at which
// the bucket will have drained.
type funnel struct {
	interval uint64 // ticks that one unit takes to drain
	depth    uint64 // ticks that a full bucket takes to drain: capacity * interval

	capacity, count int64
	per             time.Duration
}

// Funnel returns the leaky bucket as a meter: a bucket of the given capacity
// that drains count units every per, evenly. Each unit taken fills it by one,
// and what does not fit is refused. It is the same limit as a token bucket of
// that capacity refilled at that rate, and as the generic cell rate algorithm
// of ATM (ITU-T I.371, in its virtual scheduling form), whose arithmetic it
// uses. Choose it unless there is a reason for another: bursts up to capacity
// pass at once, and the long run is held to the rate.
//
// In any window of length t it admits at most capacity + count*t/per. Turns that
// were waited for keep to that as well, but for Wait being rounded up to a whole
// nanosecond.
//
// The interval per/count is kept in sixteenths of a nanosecond, rounded up, so
// the admitted rate is never above the one asked for; it is below it by at most
// 63 parts per million for rates up to a million a second, and by one part in a
// thousand at worst. A bucket of capacity 1 loses besides what its clock cannot
// tell: a caller who comes at whole nanoseconds comes up to one late for each
// unit, and nothing is stored for him. A rate that rounding would slow by more
// is refused, as are a capacity, count or period below 1 and a bucket that takes
// more than 18 years to drain. The error is a *[FieldError].
//
// A clock that goes backwards mints nothing: the key is charged for the time
// that was counted already. Time stands still for a funnel 18 years after the
// epoch, and patience beyond 9 years counts as 9.
func Funnel(capacity, count int64, per time.Duration) (Policy, error) {
	bad := func(field string, value any, want string) (Policy, error) {
		return nil, &FieldError{Of: "Funnel", Field: field, Value: value, Want: want}
	}
	switch {
	case capacity < 1:
		return bad("capacity", capacity, "1 or more")
	case count < 1:
		return bad("count", count, "1 or more")
	case per < 1:
		return bad("per", per, "1ns or more")
	}

	// interval = per/count in ticks, rounded up. The product has up to 67 bits.
	// It must be at most maxDepth, which also keeps hi below count.
	hi, lo := bits.Mul64(uint64(per), 1<<tickBits)
	if uint64(per-1)/(maxDepth>>tickBits) >= uint64(count) {
		return bad("per", per, fmt.Sprintf("a period in which %d units drain at one in 18 years or faster", count))
	}
	interval, rest := bits.Div64(hi, lo, uint64(count))
	if rest > 0 {
		interval++
		excess := uint64(count) - rest // ticks too many in count intervals
		if over, product := bits.Mul64(excess, coarsest); over > hi || over == hi && product > lo {
			return bad("count", count, fmt.Sprintf(
				"a rate of at most 16 million a second, or one whose interval is a whole number of sixteenths of a nanosecond (%d per %v would be kept as one unit every %gns)",
				count, per, float64(interval)/(1<<tickBits)))
		}
	}
	if hi, depth := bits.Mul64(uint64(capacity), interval); hi != 0 || depth > maxDepth {
		return bad("capacity", capacity, fmt.Sprintf(
			"at most %d: a full bucket must drain within 18 years, and %d per %v drains no more", maxDepth/interval, count, per))
	}
	return &funnel{
		interval: interval,
		depth:    uint64(capacity) * interval,
		capacity: capacity,
		count:    count,
		per:      per,
	}, nil
}

// Choke implements [Choker]: Take of one unit, without the divisions that
// describe what remains.
func (f *funnel) Choke(word uint64, now Instant) (uint64, bool) {
	t := ticks(now)
	drained := max(word, t)
	if drained-t > f.depth-f.interval {
		return word, false
	}
	return drained + f.interval, true
}

// Take implements [Policy].
func (f *funnel) Take(word uint64, now Instant, n int64, patience time.Duration) (uint64, Decision) {
	t := ticks(now)
	drained := max(word, t)
	debt := drained - t // what the key owes now, in ticks

	if n < 0 || n > f.capacity {
		return word, f.describe(debt, Decision{RetryAfter: Never})
	}
	if n == 0 {
		return word, f.describe(debt, Decision{Allowed: true})
	}

	// All of these are at most maxDepth or far below it, so that neither room
	// nor reach can overflow; debt alone may be anything, and is only compared.
	ask := uint64(n) * f.interval
	room := f.depth - ask // the debt that leaves room for n right now
	reach := room + uint64(min(max(patience, 0), maxPatience))<<tickBits
	if drained > MaxWord-ask {
		// No word can say it, now or later: time stands still before drained.
		return word, f.describe(debt, Decision{RetryAfter: Never})
	}
	if debt > reach {
		return word, f.describe(debt, Decision{RetryAfter: nanosUp(debt - reach)})
	}
	d := Decision{Allowed: true}
	if debt > room {
		d.Wait = nanosUp(debt - room)
	}
	return drained + ask, f.describe(debt+ask, d)
}

// describe fills in what follows from the debt after the call.
func (f *funnel) describe(debt uint64, d Decision) Decision {
	d.Limit = f.capacity
	if debt < f.depth {
		d.Remaining = int64((f.depth - debt) / f.interval)
	}
	d.ResetAfter = nanosUp(debt)
	return d
}

// FreshAt implements [Policy]. A take leaves the word later than its own
// instant, so FreshAt is never earlier than the last access.
func (f *funnel) FreshAt(word uint64) Instant { return Instant(nanosUp(word)) }

// String implements [Policy].
func (f *funnel) String() string {
	return fmt.Sprintf("funnel of %d, draining %d per %v", f.capacity, f.count, f.per)
}

// ticks converts an instant, held to what a funnel can count.
func ticks(now Instant) uint64 {
	return uint64(min(max(now, 0), lastInstant)) << tickBits
}

// nanosUp converts ticks to nanoseconds, rounded up. No number of ticks
// overflows it.
func nanosUp(ticks uint64) time.Duration {
	const mask = 1<<tickBits - 1
	return time.Duration(ticks>>tickBits + (ticks&mask+mask)>>tickBits)
}
