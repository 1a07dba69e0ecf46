package policy_test

import (
	"math/big"
	"time"

	"github.com/ral-limiter/ral/policy"
)

// endOfQueue is the instant at which time stands still: the last nanosecond for a call and
// capacity waiting units.
func endOfQueue(capacity, count int64, per time.Duration) policy.Instant {
	return policy.Instant(floor(sub(lastEmpty, mul(add(whole(capacity), whole(1)), unitTime(count, per)))))
}

// line is the model of a queue: people in a line, one let through every unit nanoseconds. A group
// passes with its first, and its others still take their time at the door.
type line struct {
	capacity int64
	unit     *big.Rat
	end      policy.Instant

	free  *big.Rat // the instant from which the door is free
	start *big.Rat // when the last admitted call may start
	last  int64    // and how many it was
}

func newLine(capacity, count int64, per time.Duration) *line {
	return &line{
		capacity: capacity, unit: unitTime(count, per), end: endOfQueue(capacity, count, per),
		free: new(big.Rat),
	}
}

// waiting returns the number of people in line, with fractions.
func (l *line) waiting(at *big.Rat) *big.Rat {
	return new(big.Rat).Quo(positive(sub(l.free, at)), l.unit)
}

func (l *line) take(now policy.Instant, n int64, patience time.Duration) policy.Decision {
	at := whole(int64(held(now, l.end)))
	d := policy.Decision{Limit: l.capacity + 1}
	before := l.waiting(at)
	switch {
	case n < 0 || n > l.capacity+1:
		d.RetryAfter = policy.Never
	case n == 0:
		d.Allowed = true
	default:
		room := whole(l.capacity - (n - 1)) // the most that may stand before the first of them
		turn := mul(before, l.unit)
		until := mul(room, l.unit)
		if patience > 0 {
			until = least(until, whole(int64(patience)))
		}
		if turn.Cmp(until) > 0 {
			d.RetryAfter = policy.Never
			if after := ceil(sub(turn, until)); after <= time.Duration(l.end-held(now, l.end)) {
				d.RetryAfter = after
			}
			break
		}
		d.Allowed, d.Wait = true, ceil(turn)
		l.start, l.last = add(at, turn), n
		l.free = add(l.start, mul(whole(n), l.unit))
	}
	after := l.waiting(at)
	if fit := sub(whole(l.capacity+1), after); fit.Cmp(whole(1)) >= 0 {
		d.Remaining = floor(fit)
	}
	d.ResetAfter = ceil(mul(after, l.unit))
	return d
}

func (l *line) turn() *big.Rat { return l.start }

func (l *line) refund(now policy.Instant, n int64) *big.Rat {
	at := whole(int64(held(now, l.end)))
	inLine := l.waiting(at)
	if n < 0 {
		l.free = least(lastEmpty, add(at, mul(sub(inLine, whole(n)), l.unit)))
		return new(big.Rat)
	}
	back := least(whole(n), inLine)
	if back.Sign() > 0 {
		l.free = sub(l.free, mul(back, l.unit))
	}
	return back
}

func (l *line) mark() any { return l.free }

func (l *line) cancel(now policy.Instant, taken any, n int64) *big.Rat {
	if taken.(*big.Rat).Cmp(l.free) != 0 {
		return new(big.Rat) // another call stands behind, or did
	}
	return l.refund(now, n)
}

func queueOf(capacity, count int64, per time.Duration) subject {
	model := newLine(capacity, count, per)
	return subject{
		Policy:   policy.Must(policy.Queue(capacity, count, per)),
		oracle:   model,
		limit:    capacity + 1,
		end:      model.end,
		patience: longestDrain, // and of no consequence
		period:   max(ceil(model.unit), 1),
		within:   atRate(count, per, func() int64 { return model.last }),
		queues:   ceil(mul(whole(capacity), model.unit)),
	}
}

var queues = kind{
	name: "Queue",
	read: func(s *script) subject {
		count, per := s.pace()
		capacity := s.between(0, int64(longestDrain)/(int64(per)/count+1)-1)
		return queueOf(capacity, count, per)
	},
}
