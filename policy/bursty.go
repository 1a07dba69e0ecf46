package policy

import (
	"fmt"
	"math"
	"time"
)

// epoch is the first instant of an engine in ticks. Each store is empty then.
const epoch = 1 << tickBits

// bursty keeps in a word the tick at which the store will be full, with all takes paid. The store
// is empty at epoch, so no key's store is full before epoch + depth.
type bursty struct {
	pace
	// depth is the ticks in which the store fills: maxBurst * interval.
	depth uint64
	// end is the instant at which the limit's time stands still.
	end      Instant
	limit    int64
	maxBurst int64
}

// Bursty returns the limit of Guava's RateLimiter in its smooth bursty form. Unused units are
// stored, count every per, up to maxBurst. A take of any size is granted as soon as the take
// before it is paid. Units beyond the store are owed, and the next caller waits until they are
// paid. Guava stores a second's units by default.
//
// Choose it if a large piece of work should start at once and be paid for afterwards, where a
// [Funnel] refuses it, or to keep the waits of a program that comes from Guava. As in Guava, the
// store is empty at the first instant of the engine. A key that was never used has stored since
// then: its store is full from maxBurst*per/count on.
//
// # The most that it admits
//
// In any window of length t, all takes except the last ask together for at most maxBurst +
// count*t/per units, counting each when it may start. The last may take up to Decision.Limit units.
// That is 2147483647 as in Guava, but no more than are paid within 9 years less the time that
// filling the store takes, and at least 1. Decision.Remaining does not count that credit: it is the
// whole units stored and one on credit, or 0 while something is owed.
//
// # Rounding and refusals
//
// The rate is rounded as for a [Funnel]. With a maxBurst of 0 the time by which a caller comes too
// late is lost as well. Bursty refuses a rate that rounding would slow by more, a maxBurst below 0, a
// count below 1, a period below a microsecond, and a store that, with a unit more, fills in more than
// 17 years. The error is a *[FieldError].
//
// # Turns and time
//
// If the clock goes backwards, no call gains units: no unit is stored twice. Time stands still 18
// years after the epoch, less the time to fill the store and pay for Limit units. That leaves at
// least 9 years, unless the store alone takes longer to fill. Patience beyond 9 years counts as 9.
//
// # Giving back
//
// Units come back first to the debt and then to the store; a charge is owed. A take cancelled
// after other calls took gives back the part that has not been paid or stored again since. While
// something is owed at most a unit comes back, as another call may be waiting for its turn.
//
// # One limit after another
//
// All Burstys are a family. A limit that comes with a call (TakeWith) keeps the time that the
// store needs until it is full. A limit that takes over for good (SetPolicy) keeps the units that
// the store lacks, up to as many as the new store holds. A store that fills up for the first time
// also lacks the units not stored yet; a key that was never used stays so. While something is owed
// the new store is empty. A debt keeps its duration, or lasts for as many units of the new limit,
// up to Limit, if that is longer.
func Bursty(count int64, per time.Duration, maxBurst int64) (Policy, error) {
	pace, err := newPace("Bursty", count, per, maxDepth)
	if err != nil {
		return nil, err
	}
	if maxBurst < 0 {
		return nil, &FieldError{Of: "Bursty", Field: "maxBurst", Value: maxBurst, Want: "0 or more"}
	}
	// A take of a unit must fit as well.
	most := maxDepth/pace.interval - 1
	if uint64(maxBurst) > most {
		return nil, &FieldError{Of: "Bursty", Field: "maxBurst", Value: maxBurst, Want: fmt.Sprintf(
			"at most %d: the store must fill within 17 years, and %d per %v fills no more", most, count, per)}
	}
	depth := uint64(maxBurst) * pace.interval
	limit := uint64(1)
	if depth < maxOwed {
		limit = min(max((maxOwed-depth)/pace.interval, 1), math.MaxInt32)
	}
	return &bursty{
		pace: pace, depth: depth, limit: int64(limit), maxBurst: maxBurst,
		end: end(depth + limit*pace.interval),
	}, nil
}

func (b *bursty) Limit() int64 { return b.limit }

func (b *bursty) Window() time.Duration { return b.window(b.limit) }

func (b *bursty) Delays() bool { return false }

// maxOwed bounds the debt in ticks that a take may leave: 9 years, with 9 left for time.
const maxOwed = 1 << 62

// full returns the tick at which the store will be full.
func (b *bursty) full(word, tick uint64) uint64 { return max(word, epoch+b.depth, tick) }

func (b *bursty) Choke(word uint64, now Instant) (uint64, bool) {
	tick := ticks(now, b.end)
	full := b.full(word, tick)
	if full-tick > b.depth {
		return word, false
	}
	return full + b.interval, true
}

func (b *bursty) Take(word uint64, now Instant, n int64, patience time.Duration) (next uint64, decision Decision) {
	tick := ticks(now, b.end)
	full := b.full(word, tick)
	// A store that lacks more than its depth has a debt.
	lack := full - tick
	next = word
	decision.Limit = b.limit
	switch {
	case n < 0 || n > b.limit:
		decision.RetryAfter = Never
	case n == 0:
		decision.Allowed = true
	default:
		reach := b.depth + patienceTicks(patience)
		ask := uint64(n) * b.interval
		switch {
		case full > MaxWord-ask:
			// No word can hold the units, since time stands still before.
			decision.RetryAfter = Never
		case lack > reach:
			decision.RetryAfter = retryAt(full-reach, tick, b.end)
		default:
			decision.Allowed = true
			if lack > b.depth {
				decision.Wait = nanosUp(lack - b.depth)
			}
			next = full + ask
			lack += ask
		}
	}
	if lack <= b.depth {
		decision.Remaining = min(int64(b.byInterval.quotient(b.depth-lack))+1, b.limit)
	}
	// Before that tick a key that was never used has stored no more.
	if next > epoch+b.depth {
		decision.ResetAfter = nanosUp(max(next, tick) - tick)
	}
	return next, decision
}

// Refund gives units that came out of the store back to it.
func (b *bursty) Refund(word uint64, now Instant, n int64) uint64 {
	tick := ticks(now, b.end)
	if n < 0 {
		return b.refund(b.full(word, tick), tick, n)
	}
	return b.back(word, tick, timesUp(n, b.interval, MaxWord))
}

// back gives ticks back, to a store that is at most as full as a fresh key's.
func (b *bursty) back(word, tick, ticks uint64) uint64 {
	fresh := b.full(0, tick)
	if word <= fresh {
		return word
	}
	return word - min(ticks, word-fresh)
}

// Cancel computes the word without the take, with later calls taking when they really start. The
// store is fuller by the units taken, less those that would not have fitted. Up to now, only as
// many would have fitted as the store still lacks of its lack after the take.
//
// While a call waits, the next must not start before it: the waiting call would pay for the next
// take, of any size. The waiting call starts when everything except its own take, at least one
// unit, is paid. So one unit can come back; the rest belongs to the waiting calls.
//
// Units that other calls gave back since may lie below or above the take. If below, less can come
// back, but no less than if the take had been alone. If above, a later call that the word does
// not show may have taken, and those units have filled the store for it already.
func (b *bursty) Cancel(word, taken uint64, start, now Instant, n, undone int64) uint64 {
	tick := ticks(now, b.end)
	gone := timesUp(max(undone, 0), b.interval, MaxWord)
	// The sum cannot overflow, as both numbers have 63 bits.
	top := word + gone
	full := b.lowest(taken, gone, ticks(start, b.end), n)
	if n <= 0 || top < taken || full <= tick {
		return word
	}
	back := min(timesUp(n, b.interval, MaxWord), full-tick)
	if top > taken {
		room := b.depth
		// A call may be waiting.
		if top-tick > b.depth {
			room = min(room, b.interval)
		}
		back = min(back, room-min(gone, room))
	}
	return b.back(word, tick, back)
}

func (b *bursty) Reads(other Policy) bool {
	_, ok := other.(*bursty)
	return ok
}

func (b *bursty) Carry(from Policy, word uint64, now Instant) (uint64, bool) {
	old, ok := from.(*bursty)
	if !ok {
		return 0, false
	}
	tick := ticks(now, b.end)
	before, fresh := old.full(0, tick), b.full(0, tick)
	if word <= before {
		// The key is as good as never used.
		return min(word, fresh), true
	}
	// empty is the word of an empty store, with nothing owed.
	empty := max(tick+b.depth, fresh)
	if emptied := max(tick+old.depth, before); word > emptied {
		owed := word - emptied
		owed = max(owed, b.rescale(old.pace, owed, uint64(b.limit)*b.interval))
		return empty + min(owed, MaxWord-empty), true
	}
	// The new store lacks the units taken, and at least as many units as the old lacked in all.
	// Otherwise, while either fills for the first time, a change back would lose units.
	taken := fresh + b.rescale(old.pace, word-before, empty-fresh)
	return max(taken, tick+b.rescale(old.pace, word-tick, empty-tick)), true
}

// FreshAt is after the last access: a take leaves the word later than its own instant. It may be
// before this store is first full: the word may be a debt under a limit with a smaller store.
func (b *bursty) FreshAt(word uint64) Instant { return Instant(nanosUp(word)) }

func (b *bursty) String() string {
	return fmt.Sprintf("bursty %s, %d", rateText(b.count, b.per), b.maxBurst)
}
