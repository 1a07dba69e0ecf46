package policy_test

import (
	"math"
	"math/big"
	"time"

	"github.com/ral-limiter/ral/policy"
)

// Fractions that neither round nor overflow, for models and bounds.

const year = 365 * 24 * time.Hour

// held returns now, clamped to the instants from 0 to end.
func held(now, end policy.Instant) policy.Instant { return min(max(now, 0), end) }

func whole(n int64) *big.Rat     { return new(big.Rat).SetInt64(n) }
func add(a, b *big.Rat) *big.Rat { return new(big.Rat).Add(a, b) }
func sub(a, b *big.Rat) *big.Rat { return new(big.Rat).Sub(a, b) }
func mul(a, b *big.Rat) *big.Rat { return new(big.Rat).Mul(a, b) }

func least(a, b *big.Rat) *big.Rat {
	if a.Cmp(b) > 0 {
		return b
	}
	return a
}

func greatest(a, b *big.Rat) *big.Rat {
	if a.Cmp(b) < 0 {
		return b
	}
	return a
}

func positive(a *big.Rat) *big.Rat { return greatest(a, new(big.Rat)) }

func ceilInt(a *big.Rat) *big.Int {
	q, rest := new(big.Int).DivMod(a.Num(), a.Denom(), new(big.Int))
	if rest.Sign() != 0 {
		q.Add(q, big.NewInt(1))
	}
	return q
}

func ceil(a *big.Rat) time.Duration { return time.Duration(mustInt64(ceilInt(a))) }

func floor(a *big.Rat) int64 { return mustInt64(new(big.Int).Div(a.Num(), a.Denom())) }

// mustInt64 panics where a model would wrap.
func mustInt64(n *big.Int) int64 {
	if !n.IsInt64() || n.Int64() == math.MaxInt64 {
		panic("model: " + n.String() + " is out of range")
	}
	return n.Int64()
}

// sixteenths turns nanoseconds into sixteenths of one, rounded up.
func sixteenths(nanos *big.Rat) *big.Int { return ceilInt(mul(nanos, whole(16))) }

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
