package policy

import (
	"fmt"
	"math"
	"time"
)

// epoch is the first instant of an engine in ticks. A limiter with an empty store is
// made then.
const epoch = 1 << tickBits

// bursty keeps in a key's word the tick at which its store will be full: all takes
// are paid by then, and the store has been refilled. The store is empty at epoch, so
// no key's store is full before epoch + depth.
type bursty struct {
	pace
	depth    uint64  // ticks in which the store fills: maxBurst * interval
	end      Instant // where its time stands still
	limit    int64
	maxBurst int64
}

// Bursty returns the limit of Guava's RateLimiter in its smooth bursty form. Unused
// units are stored, count every per, up to maxBurst. A take is granted as soon as the
// one before it is paid, however much it asks for: what exceeds the store is owed,
// and the next caller waits until that is paid. Guava stores what accrues in one
// second, unless told otherwise; a maxBurst of 0 stores nothing.
//
// Choose it if a large piece of work should start at once and be paid for afterwards,
// where a [Funnel] refuses a call larger than its capacity. Choose it also to keep
// the waits of a program that comes from Guava.
//
// Like Guava's limiter, it is made with an empty store, at the first instant of the
// engine. A key that was never used has stored since then, and from
// maxBurst*per/count on its store is full.
//
// # The most that it admits
//
// In any window of length t, all takes except the last ask together for at most
// maxBurst + count*t/per units, counting each when it may start. The last one may
// also take up to Decision.Limit units. That is 2147483647 as in Guava, but no more
// than would be paid within 9 years less the time that filling the store takes, and
// at least 1. Decision.Remaining does not count that credit. It is the number of
// whole units stored and one, which can be owed, or 0 while something is owed: so
// many calls of one unit pass now.
//
// # What is rounded, and what is refused
//
// The interval per/count is kept in sixteenths of a nanosecond, rounded up, so the
// admitted rate is never above the one asked for. It is below it by at most 63 parts
// per million for rates up to a million a second, and by one part in a thousand at
// worst. With a maxBurst of 0 the time by which a caller comes too late is lost as
// well, as it cannot be stored. Refused are a rate that rounding would slow by more,
// a maxBurst below 0, a count or period below 1, and a store that takes, with one
// unit more, longer than 17 years to fill. The error is a *[FieldError].
//
// # Turns and time
//
// A clock that goes backwards mints nothing: what was stored by then is not stored
// again. Time stands still 18 years after the epoch, less the time that filling the
// store and paying for Limit units takes. That is at least 9 years after the epoch,
// unless the store alone takes longer than that to fill. Patience beyond 9 years
// counts as 9.
//
// # Giving back
//
// Units are given back first to what is owed and then to the store, and a charge is
// owed. If a take is cancelled after other calls took, the part comes back that has
// not been paid or stored again since. While something is owed at most one unit comes
// back, as another call may be waiting for its turn.
//
// # One limit after another
//
// All of these are of one family. If another limit comes with a call (TakeWith), the
// time that the store needs until it is full is kept.
//
// If another limit takes over for good (SetPolicy), the units that the store lacks
// are kept, up to as many as the new one holds. A store that fills up for the first
// time also lacks what it has not stored yet; that of a key that was never used stays
// as it is. While something is owed the new store is empty. A debt keeps its
// duration. If so many units of the new limit, up to Limit of them, take longer, it
// lasts that long.
func Bursty(count int64, per time.Duration, maxBurst int64) (Policy, error) {
	pace, err := newPace("Bursty", count, per, maxDepth)
	if err != nil {
		return nil, err
	}
	if maxBurst < 0 {
		return nil, &FieldError{Of: "Bursty", Field: "maxBurst", Value: maxBurst, Want: "0 or more"}
	}
	most := maxDepth/pace.interval - 1 // a take of one unit must fit as well
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

// maxOwed is the largest debt in ticks that one take may leave under a policy whose
// takes are paid for afterwards: 9 years, so that as many remain for its time.
const maxOwed = 1 << 62

// full returns the tick at which the store will be full.
func (b *bursty) full(word, t uint64) uint64 { return max(word, epoch+b.depth, t) }

// Choke implements [Choker].
func (b *bursty) Choke(word uint64, now Instant) (uint64, bool) {
	t := ticks(now, b.end)
	full := b.full(word, t)
	if full-t > b.depth {
		return word, false
	}
	return full + b.interval, true
}

// Take implements [Policy].
func (b *bursty) Take(word uint64, now Instant, n int64, patience time.Duration) (next uint64, d Decision) {
	t := ticks(now, b.end)
	full := b.full(word, t)
	lack := full - t // a store that lacks more than its depth has a debt
	next = word
	d.Limit = b.limit
	switch {
	case n < 0 || n > b.limit:
		d.RetryAfter = Never
	case n == 0:
		d.Allowed = true
	default:
		reach := b.depth + patienceTicks(patience)
		ask := uint64(n) * b.interval
		switch {
		case full > MaxWord-ask:
			// No word can hold it, now or later: time stands still before.
			d.RetryAfter = Never
		case lack > reach:
			d.RetryAfter = retryAt(full-reach, t, b.end)
		default:
			d.Allowed = true
			if lack > b.depth {
				d.Wait = nanosUp(lack - b.depth)
			}
			next = full + ask
			lack += ask
		}
	}
	if lack <= b.depth {
		d.Remaining = min(int64(b.byInterval.quotient(b.depth-lack))+1, b.limit)
	}
	if next > epoch+b.depth { // else a key never used has stored no more
		d.ResetAfter = nanosUp(max(next, t) - t)
	}
	return next, d
}

// Refund implements [Refunder]. Units that came out of the store go back to it.
func (b *bursty) Refund(word uint64, now Instant, n int64) uint64 {
	t := ticks(now, b.end)
	if n < 0 {
		return b.refund(b.full(word, t), t, n)
	}
	return b.back(word, t, timesUp(n, b.interval, MaxWord))
}

// back gives so many ticks back to a key. Its store becomes at most that of a key
// never used.
func (b *bursty) back(word, t, ticks uint64) uint64 {
	fresh := b.full(0, t)
	if word <= fresh {
		return word
	}
	return word - min(ticks, word-fresh)
}

// Cancel implements [Refunder].
//
// Imagine the take away, and the later calls taking again at the instants at which
// they really start. The store is then fuller by what the take took out, less what
// would not have fitted. Up to now, only as much would have fitted as the store still
// lacks of what it lacked after the take.
//
// While a call waits, the next must not start before it: a take may be of any size,
// and the waiting call would pay for it. The waiting call starts when everything
// except its own take, at least one unit, is paid. So one unit can come back; the
// rest belongs to the waiting calls.
//
// Units that other calls gave back since may have been below the take or above it. If
// below, less of the take can come back, but no less than if it had been alone. If
// above, a call may have taken later that the word does not show, and those units
// have filled the store for it already.
func (b *bursty) Cancel(word, taken uint64, at, now Instant, n, undone int64) uint64 {
	t := ticks(now, b.end)
	gone := timesUp(max(undone, 0), b.interval, MaxWord)
	top := word + gone // cannot overflow: both have 63 bits
	full := b.lowest(taken, gone, ticks(at, b.end), n)
	if n <= 0 || top < taken || full <= t {
		return word
	}
	back := min(timesUp(n, b.interval, MaxWord), full-t)
	if top > taken {
		room := b.depth
		if top-t > b.depth { // a call may be waiting
			room = min(room, b.interval)
		}
		back = min(back, room-min(gone, room))
	}
	return b.back(word, t, back)
}

// Reads implements [Relative].
func (b *bursty) Reads(other Policy) bool {
	_, ok := other.(*bursty)
	return ok
}

// Carry implements [Relative].
func (b *bursty) Carry(from Policy, word uint64, now Instant) (uint64, bool) {
	old, ok := from.(*bursty)
	if !ok {
		return 0, false
	}
	t := ticks(now, b.end)
	before, fresh := old.full(0, t), b.full(0, t)
	if word <= before {
		return min(word, fresh), true // as good as never used
	}
	empty := max(t+b.depth, fresh) // the word of an empty store, with nothing owed
	if emptied := max(t+old.depth, before); word > emptied {
		owed := word - emptied
		owed = max(owed, b.rescale(old.pace, owed, uint64(b.limit)*b.interval))
		return empty + min(owed, MaxWord-empty), true
	}
	// The new store lacks what was taken out of the old one, and at least as much as
	// the old one lacked in all. Without the latter, if one of the two fills up for
	// the first time, a change back could not know what was taken.
	taken := fresh + b.rescale(old.pace, word-before, empty-fresh)
	return max(taken, t+b.rescale(old.pace, word-t, empty-t)), true
}

// FreshAt implements [Policy]. A take leaves the word later than its own instant, so
// FreshAt is never earlier than the last access. The instant at which this limit's
// store is full for the first time does not count: a word that is as good as 0 until
// then may be a debt under another limit of the family, with a smaller store.
func (b *bursty) FreshAt(word uint64) Instant { return Instant(nanosUp(word)) }

// String implements [Policy].
func (b *bursty) String() string {
	return fmt.Sprintf("bursty %s, %d", rateText(b.count, b.per), b.maxBurst)
}
