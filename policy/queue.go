package policy

import (
	"fmt"
	"time"
)

// queue keeps in a key's word the tick from which the next call may leave: the
// turn of the last one, and the intervals that it occupies.
type queue struct {
	pace
	depth    uint64  // ticks that a full queue waits: capacity * interval
	end      Instant // where its time stands still
	capacity int64
}

// Queue returns the leaky bucket as a queue: calls leave evenly spaced, one unit
// every per/count, and as many as capacity units wait for that; what finds the
// queue full is refused. It is nginx's limit_req with burst=capacity and without
// nodelay, and what a bounded channel with one steady consumer does. Choose it to
// shape traffic rather than to police it: what lies behind never sees two calls
// closer together than the interval, where a [Funnel] lets a bucketful through at
// once. A capacity of 0 queues nobody: whoever comes too early is refused.
//
// The first call leaves at once and is not waiting, so a call may take up to
// capacity + 1 units. One of several leaves as a whole at the turn of its first
// unit, and those behind it wait for all of them.
//
// An admitted call must start after Decision.Wait, also where the caller gave no
// patience: waiting is what this limit is. Who uses a yes alone, as that of
// Choke, and starts at once, bounds how many come but does not space them.
// Patience of 0 or less waits as long as the queue is; a positive one refuses
// besides what has its turn later than that.
//
// # The most that it admits
//
// In any window of length t, counting each call when it starts, it admits at most
// 1 + count*t/per calls of one unit. With larger calls that is what the largest
// takes + count*t/per units.
//
// # What is rounded, and what is refused
//
// The interval is kept in sixteenths of a nanosecond, rounded up, and a turn is told
// rounded up to a whole nanosecond, without adding up: the admitted rate is never above
// the one asked for, and below it by at most 63 parts per million for rates up to a
// million a second, and by one part in a thousand at worst. Where calls take all that
// there is, as they do without a queue, it loses besides what each comes too late. A rate
// that rounding would slow by more is refused, as are a capacity below 0, a count or
// period below 1, and a queue whose capacity + 1 units take more than 17 years. The error
// is a *[FieldError].
//
// # Turns and time
//
// A clock that goes backwards mints nothing: turns stay where they are. Time
// stands still for a queue 18 years after the epoch, less what capacity + 1 units
// take, and patience beyond that of the queue counts as its own.
//
// # Giving back
//
// A refund shortens the queue at its end, so that taking and giving back leaves
// it as it was. Where somebody has queued behind the units given back, his turn
// stays, and the one who comes next may leave together with him: give back what
// the last call took, or wait until the queue is empty, if the spacing matters
// more than the rate. Cancel, which can tell, gives back nothing once somebody
// queued behind.
//
// # One limit after another
//
// All queues are of one family. Where another limit comes with a call (TakeWith),
// the instant from which the next may leave is carried over. Where another takes
// over for good (SetPolicy), it is kept as well, as turns have been promised
// until then; the last interval becomes one of the new limit, and where that is
// slower, the units that the queue holds count at its pace.
func Queue(capacity, count int64, per time.Duration) (Policy, error) {
	if capacity < 0 {
		return nil, &FieldError{Of: "Queue", Field: "capacity", Value: capacity, Want: "0 or more"}
	}
	pace, err := newPace("Queue", count, per, maxDepth)
	if err != nil {
		return nil, err
	}
	most := maxDepth/pace.interval - 1 // one is leaving
	if uint64(capacity) > most {
		return nil, &FieldError{Of: "Queue", Field: "capacity", Value: capacity, Want: fmt.Sprintf(
			"at most %d: a full queue must drain within 17 years, and %d per %v drains no more", most, count, per)}
	}
	depth := uint64(capacity) * pace.interval
	return &queue{pace: pace, depth: depth, end: end(depth + pace.interval), capacity: capacity}, nil
}

// Choke implements [Choker]. It does not say when the turn is.
func (q *queue) Choke(word uint64, now Instant) (uint64, bool) {
	t := ticks(now, q.end)
	turn := max(word, t)
	if turn-t > q.depth {
		return word, false
	}
	return turn + q.interval, true
}

// Take implements [Policy].
func (q *queue) Take(word uint64, now Instant, n int64, patience time.Duration) (uint64, Decision) {
	t := ticks(now, q.end)
	turn := max(word, t)
	debt := turn - t // how long the next one waits

	if n < 0 || n > q.capacity+1 {
		return word, q.describe(debt, Decision{RetryAfter: Never})
	}
	if n == 0 {
		return word, q.describe(debt, Decision{Allowed: true})
	}

	// The last unit of the call must find a place in the queue.
	reach := q.depth - uint64(n-1)*q.interval
	if patience > 0 {
		reach = min(reach, uint64(min(patience, 1<<(63-tickBits)))<<tickBits)
	}
	if debt > reach {
		return word, q.describe(debt, Decision{RetryAfter: retryAt(turn-reach, t, q.end)})
	}
	// It fits a word: end leaves room for all that capacity lets in.
	ask := uint64(n) * q.interval
	return turn + ask, q.describe(debt+ask, Decision{Allowed: true, Wait: nanosUp(debt)})
}

// describe fills in what follows from the debt after the call.
func (q *queue) describe(debt uint64, d Decision) Decision {
	d.Limit = q.capacity + 1
	if debt <= q.depth {
		d.Remaining = int64((q.depth-debt)/q.interval) + 1
	}
	d.ResetAfter = nanosUp(debt)
	return d
}

// Refund implements [Refunder].
func (q *queue) Refund(word uint64, now Instant, n int64) uint64 {
	return q.refund(word, ticks(now, q.end), n)
}

// Cancel implements [Refunder].
//
// Those who queued behind the take leave at the turns that they were told, so the
// next may leave where the last of them lets him, whether the take happened or
// not: nothing can be given back. Without anybody behind, all of it can that has
// not passed. Where others gave back since, anybody may have queued after that.
func (q *queue) Cancel(word, taken uint64, _, now Instant, n, undone int64) uint64 {
	if word != taken || n <= 0 || undone > 0 {
		return word
	}
	return q.Refund(word, now, n)
}

// Reads implements [Relative].
func (q *queue) Reads(other Policy) bool {
	_, ok := other.(*queue)
	return ok
}

// Carry implements [Relative].
//
// Two things must hold, and the later is taken: the last of those who were
// promised a turn is followed by an interval of the new limit, and the units that
// are in the queue count as so many under it, up to as many as it ever holds.
func (q *queue) Carry(from Policy, word uint64, now Instant) (uint64, bool) {
	old, ok := from.(*queue)
	if !ok {
		return 0, false
	}
	t := ticks(now, q.end)
	if word <= t {
		return word, true
	}
	debt := word - t
	units := q.rescale(old.pace, debt, q.depth+q.interval)
	return max(q.carry(q.interval, q.end, old.pace, old.interval, word, now), t+units), true
}

// FreshAt implements [Policy]. A take leaves the word later than its own
// instant, so FreshAt is never earlier than the last access.
func (q *queue) FreshAt(word uint64) Instant { return Instant(nanosUp(word)) }

// String implements [Policy].
func (q *queue) String() string {
	return fmt.Sprintf("queue of %d, leaving %d per %v", q.capacity, q.count, q.per)
}
