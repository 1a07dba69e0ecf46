package policy_test

import (
	"math"
	"math/big"
	"time"

	"github.com/ral-limiter/ral/policy"
)

// What the documentation of Funnel promises in words, in figures.
const (
	// endOfTime is the instant at which time stands still for a funnel.
	endOfTime = policy.Instant(1<<59 - 2)
	// longestPatience is what any longer patience counts as.
	longestPatience = time.Duration(1 << 58)
	// longestDrain is the time that the deepest bucket takes to drain.
	longestDrain = time.Duration(1 << 59)
	// year has 365 days.
	year = 365 * 24 * time.Hour
)

// model is the bucket written down as it would be explained at a whiteboard,
// with numbers that neither round nor overflow. It holds water: each unit taken
// pours one in, and one leaks out every unit nanoseconds. Everything in it is
// counted in units of the limit, where the code under test counts time; the two
// share only the rule that a unit's time is rounded up to a sixteenth of a
// nanosecond.
type model struct {
	capacity *big.Rat
	limit    int64
	unit     *big.Rat // nanoseconds that one unit takes to leak out

	// empty is the instant at which the bucket runs dry if nobody takes again.
	// It is the whole memory, so a clock that goes back finds the bucket fuller
	// than it was at that instant the first time round, never emptier.
	empty *big.Rat

	// turn is when the last admitted call may start, exactly.
	turn *big.Rat
}

func newModel(capacity, count int64, per time.Duration) *model {
	return &model{
		capacity: whole(capacity),
		limit:    capacity,
		unit:     unitTime(count, per),
		empty:    new(big.Rat),
		turn:     new(big.Rat),
	}
}

// take does what Take must do, and remembers it.
func (m *model) take(now policy.Instant, n int64, patience time.Duration) policy.Decision {
	at := whole(int64(held(now)))
	level := m.levelAt(at)
	d := policy.Decision{Limit: m.limit}
	switch {
	case n < 0 || n > m.limit:
		d.RetryAfter = policy.Never
	case n == 0:
		d.Allowed = true
	default:
		poured := new(big.Rat).Add(level, whole(n))
		empty := add(at, m.timeFor(poured))
		late := m.timeFor(positive(sub(poured, m.capacity))) // until it all fits
		willing := whole(int64(min(max(patience, 0), longestPatience)))
		switch {
		case empty.Cmp(lastEmpty) > 0:
			d.RetryAfter = policy.Never // later than any word can say
		case late.Cmp(willing) > 0:
			d.RetryAfter = ceil(sub(late, willing))
		default:
			d.Allowed, d.Wait = true, ceil(late)
			m.empty, m.turn, level = empty, add(at, late), poured
		}
	}
	d.Remaining = floor(positive(sub(m.capacity, level)))
	d.ResetAfter = ceil(m.timeFor(level))
	return d
}

// levelAt is how many units, and parts of one, are in the bucket.
func (m *model) levelAt(at *big.Rat) *big.Rat {
	left := positive(sub(m.empty, at))
	return left.Quo(left, m.unit)
}

// timeFor is how long so many units take to leak out.
func (m *model) timeFor(units *big.Rat) *big.Rat { return new(big.Rat).Mul(units, m.unit) }

// lastEmpty is the last instant that a word can stand for.
var lastEmpty = new(big.Rat).SetFrac(new(big.Int).SetUint64(policy.MaxWord), big.NewInt(16))

// unitTime is per/count rounded up to a sixteenth of a nanosecond.
func unitTime(count int64, per time.Duration) *big.Rat {
	sixteenths := new(big.Rat).SetFrac(
		new(big.Int).Mul(big.NewInt(int64(per)), big.NewInt(16)), big.NewInt(count))
	return new(big.Rat).SetFrac(ceilInt(sixteenths), big.NewInt(16))
}

// held is the instant that now counts as.
func held(now policy.Instant) policy.Instant { return min(max(now, 0), endOfTime) }

func whole(n int64) *big.Rat     { return new(big.Rat).SetInt64(n) }
func add(a, b *big.Rat) *big.Rat { return new(big.Rat).Add(a, b) }
func sub(a, b *big.Rat) *big.Rat { return new(big.Rat).Sub(a, b) }

// positive is a, or 0 if a is below it.
func positive(a *big.Rat) *big.Rat {
	if a.Sign() < 0 {
		return new(big.Rat)
	}
	return a
}

// ceilInt is the smallest whole number that is not below a.
func ceilInt(a *big.Rat) *big.Int {
	q, rest := new(big.Int).DivMod(a.Num(), a.Denom(), new(big.Int))
	if rest.Sign() != 0 {
		q.Add(q, big.NewInt(1))
	}
	return q
}

func ceil(a *big.Rat) time.Duration { return time.Duration(mustInt64(ceilInt(a))) }

func floor(a *big.Rat) int64 { return mustInt64(new(big.Int).Div(a.Num(), a.Denom())) }

// mustInt64 keeps the model honest: it must not wrap where the code might.
func mustInt64(n *big.Int) int64 {
	if !n.IsInt64() || n.Int64() == math.MaxInt64 {
		panic("model: " + n.String() + " is out of range")
	}
	return n.Int64()
}
