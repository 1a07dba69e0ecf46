package properties

import (
	"math/big"
	"time"

	"github.com/ral-limiter/ral/policy"
)

type oracle interface {
	// take answers as Take must, and records it.
	take(now policy.Instant, n int64, patience time.Duration) policy.Decision
	// refund answers as Refund must, and records it.
	refund(now policy.Instant, n int64) policy.Decision
	// mark returns a function that restores the present state, if no other call changes it.
	mark() (back func())
	// owes reports whether forgetting the key would change an answer.
	owes(now policy.Instant) bool
	forget()
}

// word models a key by the policy's own pure function.
type word struct {
	p    policy.Policy
	word uint64
}

func (w *word) take(now policy.Instant, n int64, patience time.Duration) (d policy.Decision) {
	w.word, d = w.p.Take(w.word, now, n, patience)
	return d
}

func (w *word) refund(now policy.Instant, n int64) policy.Decision {
	w.word = w.p.(policy.Refunder).Refund(w.word, now, n)
	_, d := w.p.Take(w.word, now, 0, 0)
	return d
}

func (w *word) mark() func() {
	was := w.word
	return func() { w.word = was }
}

func (w *word) owes(now policy.Instant) bool { return w.p.FreshAt(w.word) > now }
func (w *word) forget()                      { w.word = 0 }

// bucket is a key under a funnel: it holds so many units, and leaks a unit every interval.
type bucket struct {
	capacity int64
	interval *big.Rat // nanoseconds, as the funnel's documentation rounds them
	level    *big.Rat // units, at the instant at
	at       policy.Instant
}

func newBucket(capacity, count int64, per time.Duration) *bucket {
	// In sixteenths of a nanosecond, rounded up.
	sixteenths := new(big.Int).Mul(big.NewInt(int64(per)), big.NewInt(16))
	sixteenths.Add(sixteenths, big.NewInt(count-1)).Div(sixteenths, big.NewInt(count))
	return &bucket{capacity: capacity, interval: new(big.Rat).SetFrac(sixteenths, big.NewInt(16)), level: new(big.Rat)}
}

func (b *bucket) drain(now policy.Instant) {
	leaked := new(big.Rat).SetInt64(int64(now - b.at))
	leaked.Quo(leaked, b.interval)
	b.level = new(big.Rat).Sub(b.level, leaked)
	if b.level.Sign() < 0 {
		b.level.SetInt64(0)
	}
	b.at = now
}

// lasts returns the time to leak so many units, rounded up to nanoseconds.
func (b *bucket) lasts(units *big.Rat) time.Duration {
	t := new(big.Rat).Mul(units, b.interval)
	up := new(big.Int).Add(t.Num(), new(big.Int).Sub(t.Denom(), big.NewInt(1)))
	return time.Duration(up.Div(up, t.Denom()).Int64())
}

func (b *bucket) describe(d policy.Decision) policy.Decision {
	d.Limit = b.capacity
	if room := new(big.Rat).Sub(new(big.Rat).SetInt64(b.capacity), b.level); room.Sign() > 0 {
		d.Remaining = new(big.Int).Div(room.Num(), room.Denom()).Int64()
	}
	d.ResetAfter = b.lasts(b.level)
	return d
}

func (b *bucket) take(now policy.Instant, n int64, patience time.Duration) policy.Decision {
	b.drain(now)
	if n < 0 || n > b.capacity {
		return b.describe(policy.Decision{RetryAfter: policy.Never})
	}
	if n == 0 {
		return b.describe(policy.Decision{Allowed: true})
	}
	after := new(big.Rat).Add(b.level, new(big.Rat).SetInt64(n))
	over := new(big.Rat).Sub(after, new(big.Rat).SetInt64(b.capacity))
	var wait time.Duration
	if over.Sign() > 0 {
		// Patience is compared before it is rounded.
		longest := new(big.Rat).Quo(new(big.Rat).SetInt64(int64(patience)), b.interval)
		if over.Cmp(longest) > 0 {
			return b.describe(policy.Decision{RetryAfter: b.lasts(over.Sub(over, longest))})
		}
		wait = b.lasts(over)
	}
	b.level = after
	return b.describe(policy.Decision{Allowed: true, Wait: wait})
}

func (b *bucket) refund(now policy.Instant, n int64) policy.Decision {
	b.drain(now)
	b.level = new(big.Rat).Sub(b.level, new(big.Rat).SetInt64(n))
	if b.level.Sign() < 0 {
		b.level.SetInt64(0)
	}
	return b.describe(policy.Decision{Allowed: true})
}

func (b *bucket) mark() func() {
	level, at := b.level, b.at
	return func() { b.level, b.at = level, at }
}

func (b *bucket) owes(now policy.Instant) bool {
	b.drain(now)
	return b.level.Sign() > 0
}

func (b *bucket) forget() { b.level = new(big.Rat) }
