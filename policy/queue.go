package policy

import (
	"fmt"
	"time"
)

// queue keeps in a word the tick from which the next call may leave.
type queue struct {
	untraced
	pace
	// depth is the ticks that a full queue waits: capacity * interval.
	depth uint64
	// end is the instant at which the limit's time stands still.
	end      Instant
	capacity int64
}

// Queue returns the leaky bucket as a queue: calls leave evenly spaced, one unit every per/count,
// and up to capacity units wait for their turn. A call that finds the queue full is refused. Queue is
// nginx's limit_req with burst=capacity and without nodelay. Choose it to shape traffic: the
// service behind never sees two calls closer than the interval, where a [Funnel] lets a bucketful
// through at once. With a capacity of 0 no call waits, and an early call is refused.
//
// A call may take up to capacity + 1 units, as the first leaves at once. A call of several units
// leaves as a whole at the turn of its first, and later calls wait for all of them. An admitted
// call must wait for Decision.Wait before it starts, even if it gave no patience. Choke does not
// return that Wait: it bounds how many calls are admitted but does not space them. Without patience
// a call waits for any turn in the queue. With a positive patience it is also refused if its turn
// is later than that.
//
// # The most that it admits
//
// In any window of length t, counting each call when it starts: 1 + count*t/per calls of one
// unit. With larger calls it admits count*t/per units and the largest call's.
//
// # Rounding and refusals
//
// The rate is rounded as for a [Funnel]. A turn is rounded up to a whole nanosecond, which does not
// add up. If no call waits, as with a capacity of 0, the time by which each comes after its turn is
// lost as well. Queue refuses a rate that rounding would slow by more, a capacity below 0, a count
// below 1, a period below a microsecond, and a queue whose capacity + 1 units take more than 17 years.
// The error is a *[FieldError].
//
// # Turns and time
//
// If the clock goes backwards, no call gains units: turns stay where they are. Time stands still 18
// years after the epoch (see [Instant]), less the time that capacity + 1 units take. Patience
// beyond the length of the queue counts as that length.
//
// # Giving back
//
// A refund shortens the queue at its end. If another call has queued behind those units, its turn
// stays, and the next call may leave together with it. If spacing matters more than the rate,
// give back only units of the last call. Cancel gives back nothing once another call is behind.
//
// # One limit after another
//
// All queues are a family. A limit that comes with a call (TakeWith) keeps the instant from
// which the next call may leave. So does a limit that takes over for good (SetPolicy), as turns
// have been promised until then; the last interval becomes its own. If it is slower, the units in
// the queue count at its pace.
func Queue(capacity, count int64, per time.Duration) (Policy, error) {
	if capacity < 0 {
		return nil, &FieldError{Of: "Queue", Field: "capacity", Value: capacity, Want: "0 or more"}
	}
	pace, err := newPace("Queue", count, per, maxDepth)
	if err != nil {
		return nil, err
	}
	// The first unit does not wait.
	most := maxDepth/pace.interval - 1
	if uint64(capacity) > most {
		return nil, &FieldError{Of: "Queue", Field: "capacity", Value: capacity, Want: fmt.Sprintf(
			"at most %d: a full queue must drain within 17 years, and %d per %v drains no more", most, count, per)}
	}
	depth := uint64(capacity) * pace.interval
	return &queue{pace: pace, depth: depth, end: end(depth + pace.interval), capacity: capacity}, nil
}

func (q *queue) Limit() int64 { return q.capacity + 1 }

func (q *queue) Window() time.Duration { return q.window(q.capacity + 1) }

func (q *queue) Delays() bool { return q.capacity > 0 }

func (q *queue) Choke(word uint64, now Instant) (uint64, bool) {
	tick := ticks(now, q.end)
	turn := max(word, tick)
	if turn-tick > q.depth {
		return word, false
	}
	return turn + q.interval, true
}

func (q *queue) Take(word uint64, now Instant, n int64, patience time.Duration) (next uint64, decision Decision) {
	tick := ticks(now, q.end)
	turn := max(word, tick)
	// debt is the ticks that the next call waits.
	debt := turn - tick
	next = word
	decision.Limit = q.capacity + 1
	switch {
	case n < 0 || n > q.capacity+1:
		decision.RetryAfter = Never
	case n == 0:
		decision.Allowed = true
	default:
		// The last unit of the call must find a place in the queue.
		reach := q.depth - uint64(n-1)*q.interval
		if patience > 0 {
			reach = min(reach, uint64(min(patience, 1<<(63-tickBits)))<<tickBits)
		}
		if debt > reach {
			decision.RetryAfter = retryAt(turn-reach, tick, q.end)
			break
		}
		// The sum fits a word, since end leaves room for all units that capacity lets in.
		ask := uint64(n) * q.interval
		decision.Allowed, decision.Wait = true, nanosUp(debt)
		next = turn + ask
		debt += ask
	}
	if debt <= q.depth {
		decision.Remaining = int64(q.byInterval.quotient(q.depth-debt)) + 1
	}
	decision.ResetAfter = nanosUp(debt)
	return next, decision
}

func (q *queue) Refund(word uint64, now Instant, n int64) uint64 {
	return q.refund(word, ticks(now, q.end), n)
}

// Cancel gives back nothing if a call may have queued behind: its promised turn stays.
func (q *queue) Cancel(word, taken uint64, _, now Instant, n, undone int64) uint64 {
	if word != taken || n <= 0 || undone > 0 {
		return word
	}
	return q.Refund(word, now, n)
}

func (q *queue) Reads(other Policy) bool {
	_, ok := other.(*queue)
	return ok
}

// Carry returns the later of two instants: an interval of the new limit after the last turn, and
// the time of the units in the queue under the new limit, up to as many as it holds.
func (q *queue) Carry(from Policy, word uint64, now Instant) (uint64, bool) {
	old, ok := from.(*queue)
	if !ok {
		return 0, false
	}
	tick := ticks(now, q.end)
	if word <= tick {
		return word, true
	}
	debt := word - tick
	units := q.rescale(old.pace, debt, q.depth+q.interval)
	return max(q.carry(q.interval, q.end, old.pace, old.interval, word, now), tick+units), true
}

// FreshAt is after the last access: a take leaves the word later than its own instant.
func (q *queue) FreshAt(word uint64) Instant { return Instant(nanosUp(word)) }

func (q *queue) String() string {
	return fmt.Sprintf("queue %d, %s", q.capacity, rateText(q.count, q.per))
}
