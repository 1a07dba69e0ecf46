package policy_test

import (
	"math/big"
	"time"

	"github.com/ral-limiter/ral/policy"
)

// Figures from the documentation of Funnel.
const (
	longestPatience = time.Duration(1 << 58)
	// longestDrain is the time in which the deepest bucket drains: 17 years.
	longestDrain = time.Duration(1<<59 - 1<<55)
)

// lastEmpty is the last instant that a word of sixteenths holds.
var lastEmpty = big.NewRat(policy.MaxWord, 16)

// unitTime is per/count rounded up to a sixteenth of a nanosecond.
func unitTime(count int64, per time.Duration) *big.Rat {
	exact := new(big.Rat).SetFrac(new(big.Int).Mul(big.NewInt(int64(per)), big.NewInt(16)), big.NewInt(count))
	return new(big.Rat).SetFrac(ceilInt(exact), big.NewInt(16))
}

// endOfTime is the instant at which time stands still: the last nanosecond at which a funnel can
// be filled.
func endOfTime(capacity, count int64, per time.Duration) policy.Instant {
	return policy.Instant(floor(sub(lastEmpty, mul(whole(capacity), unitTime(count, per)))))
}

// bucket is the model of a funnel. Each unit taken pours one in, and one leaks out every unit
// nanoseconds. It counts units where the code under test counts time; both round a unit's time up
// to a sixteenth of a nanosecond.
type bucket struct {
	capacity *big.Rat
	limit    int64
	// unit is the nanoseconds that a unit takes to leak out.
	unit *big.Rat
	end  policy.Instant

	// empty is the instant at which the bucket runs dry. A clock that goes back finds the bucket
	// fuller than the first time, never emptier.
	empty *big.Rat

	// start is the exact instant at which the last admitted call may start.
	start *big.Rat
}

func newBucket(capacity, count int64, per time.Duration) *bucket {
	return &bucket{
		capacity: whole(capacity),
		limit:    capacity,
		unit:     unitTime(count, per),
		end:      endOfTime(capacity, count, per),
		empty:    new(big.Rat),
	}
}

func (b *bucket) take(now policy.Instant, n int64, patience time.Duration) policy.Decision {
	instant := whole(int64(held(now, b.end)))
	level := b.levelAt(instant)
	decision := policy.Decision{Limit: b.limit}
	switch {
	case n < 0 || n > b.limit:
		decision.RetryAfter = policy.Never
	case n == 0:
		decision.Allowed = true
	default:
		poured := add(level, whole(n))
		empty := add(instant, b.timeFor(poured))
		// late is the time until all units fit.
		late := b.timeFor(positive(sub(poured, b.capacity)))
		willing := whole(int64(min(max(patience, 0), longestPatience)))
		switch {
		case empty.Cmp(lastEmpty) > 0:
			// The turn is later than any word can say.
			decision.RetryAfter = policy.Never
		case late.Cmp(willing) > 0:
			decision.RetryAfter = ceil(sub(late, willing))
			if decision.RetryAfter > time.Duration(b.end-held(now, b.end)) {
				// Time stands still before the turn.
				decision.RetryAfter = policy.Never
			}
		default:
			decision.Allowed, decision.Wait = true, ceil(late)
			b.empty, b.start, level = empty, add(instant, late), poured
		}
	}
	decision.Remaining = floor(positive(sub(b.capacity, level)))
	decision.ResetAfter = ceil(b.timeFor(level))
	return decision
}

func (b *bucket) turn() *big.Rat { return b.start }

func (b *bucket) refund(now policy.Instant, n int64) *big.Rat {
	instant := whole(int64(held(now, b.end)))
	level := b.levelAt(instant)
	if n < 0 {
		poured := sub(level, whole(n))
		b.empty = least(lastEmpty, add(instant, b.timeFor(poured)))
		return new(big.Rat)
	}
	return b.drain(instant, least(whole(n), level))
}

func (b *bucket) mark() any { return b.empty }

// cancel takes out the units of the take that are certainly still in; see Cancel.
func (b *bucket) cancel(now policy.Instant, taken any, n int64) *big.Rat {
	instant := whole(int64(held(now, b.end)))
	level := b.levelAt(instant)
	then := taken.(*big.Rat)
	still := positive(sub(then, instant))
	back := least(whole(n), still.Quo(still, b.unit))
	if later := sub(b.empty, then); later.Sign() > 0 && level.Cmp(b.capacity) > 0 {
		back = least(back, positive(sub(b.capacity, later.Quo(later, b.unit))))
	}
	return b.drain(instant, least(back, level))
}

func (b *bucket) drain(at, units *big.Rat) *big.Rat {
	if units.Sign() > 0 {
		b.empty = sub(b.empty, b.timeFor(units))
	}
	return units
}

func (b *bucket) levelAt(at *big.Rat) *big.Rat {
	left := positive(sub(b.empty, at))
	return left.Quo(left, b.unit)
}

func (b *bucket) timeFor(units *big.Rat) *big.Rat { return mul(units, b.unit) }

func funnelOf(capacity, count int64, per time.Duration) subject {
	return subject{
		Policy:   policy.Must(policy.Funnel(capacity, count, per)),
		oracle:   newBucket(capacity, count, per),
		limit:    capacity,
		end:      endOfTime(capacity, count, per),
		patience: longestPatience,
		period:   per,
		within:   atRate(count, per, func() int64 { return capacity }),
	}
}

// funnels have a rate between 1 a year and ten million a second, and any accepted depth.
var funnels = kind{
	name: "Funnel",
	read: func(s *script) subject {
		count, per := s.pace()
		capacity := s.between(1, int64(longestDrain)/(int64(per)/count+1))
		return funnelOf(capacity, count, per)
	},
}

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

	// free is the instant from which the door is free.
	free *big.Rat
	// start is the instant at which the last admitted call may start.
	start *big.Rat
	// last is the number of units of that call.
	last int64
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
	instant := whole(int64(held(now, l.end)))
	decision := policy.Decision{Limit: l.capacity + 1}
	before := l.waiting(instant)
	switch {
	case n < 0 || n > l.capacity+1:
		decision.RetryAfter = policy.Never
	case n == 0:
		decision.Allowed = true
	default:
		// room is the largest number of units that may stand before the first unit of the call.
		room := whole(l.capacity - (n - 1))
		turn := mul(before, l.unit)
		until := mul(room, l.unit)
		if patience > 0 {
			until = least(until, whole(int64(patience)))
		}
		if turn.Cmp(until) > 0 {
			decision.RetryAfter = policy.Never
			if after := ceil(sub(turn, until)); after <= time.Duration(l.end-held(now, l.end)) {
				decision.RetryAfter = after
			}
			break
		}
		decision.Allowed, decision.Wait = true, ceil(turn)
		l.start, l.last = add(instant, turn), n
		l.free = add(l.start, mul(whole(n), l.unit))
	}
	after := l.waiting(instant)
	if fit := sub(whole(l.capacity+1), after); fit.Cmp(whole(1)) >= 0 {
		decision.Remaining = floor(fit)
	}
	decision.ResetAfter = ceil(mul(after, l.unit))
	return decision
}

func (l *line) turn() *big.Rat { return l.start }

func (l *line) refund(now policy.Instant, n int64) *big.Rat {
	instant := whole(int64(held(now, l.end)))
	inLine := l.waiting(instant)
	if n < 0 {
		l.free = least(lastEmpty, add(instant, mul(sub(inLine, whole(n)), l.unit)))
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
		// Another call stands behind, or did.
		return new(big.Rat)
	}
	return l.refund(now, n)
}

func queueOf(capacity, count int64, per time.Duration) subject {
	model := newLine(capacity, count, per)
	return subject{
		Policy: policy.Must(policy.Queue(capacity, count, per)),
		oracle: model,
		limit:  capacity + 1,
		end:    model.end,
		// The patience is of no consequence.
		patience: longestDrain,
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
