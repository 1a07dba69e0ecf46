package policy_test

import (
	"math"
	"math/big"
	"time"

	"github.com/ral-limiter/ral/policy"
)

// Fractions that neither round nor overflow, for models and bounds.

// year has 365 days.
const year = 365 * 24 * time.Hour

// held returns the instant that now counts as, if time stands still at end.
func held(now, end policy.Instant) policy.Instant { return min(max(now, 0), end) }

func whole(n int64) *big.Rat     { return new(big.Rat).SetInt64(n) }
func add(a, b *big.Rat) *big.Rat { return new(big.Rat).Add(a, b) }
func sub(a, b *big.Rat) *big.Rat { return new(big.Rat).Sub(a, b) }
func mul(a, b *big.Rat) *big.Rat { return new(big.Rat).Mul(a, b) }

// least is the smaller of a and b.
func least(a, b *big.Rat) *big.Rat {
	if a.Cmp(b) > 0 {
		return b
	}
	return a
}

// greatest is the larger of a and b.
func greatest(a, b *big.Rat) *big.Rat {
	if a.Cmp(b) < 0 {
		return b
	}
	return a
}

// positive is a, or 0 if a is below it.
func positive(a *big.Rat) *big.Rat { return greatest(a, new(big.Rat)) }

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

// mustInt64 keeps the models honest: they must not wrap where the code might.
func mustInt64(n *big.Int) int64 {
	if !n.IsInt64() || n.Int64() == math.MaxInt64 {
		panic("model: " + n.String() + " is out of range")
	}
	return n.Int64()
}

// sixteenths turns nanoseconds into sixteenths of one, rounded up.
func sixteenths(nanos *big.Rat) *big.Int { return ceilInt(mul(nanos, whole(16))) }

// shift adds without wrapping round.
func shift(now policy.Instant, by int64) policy.Instant {
	sum := now + policy.Instant(by)
	switch {
	case by > 0 && sum < now:
		return math.MaxInt64
	case by < 0 && sum > now:
		return math.MinInt64
	}
	return sum
}
