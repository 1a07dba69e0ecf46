package policy_test

import (
	"math"
	"math/big"
	"time"

	"github.com/ral-limiter/ral/policy"
)

// burstyLimit is the most that a Bursty lets a take ask for.
func burstyLimit(count int64, per time.Duration, maxBurst int64) int64 {
	unit := unitTime(count, per)
	// All units are paid within 9 years.
	paid := sub(whole(int64(longestPatience)), mul(whole(maxBurst), unit))
	n := floor(new(big.Rat).Quo(positive(paid), unit))
	return min(max(n, 1), math.MaxInt32)
}

func endOfBursty(count int64, per time.Duration, maxBurst int64) policy.Instant {
	most := add(whole(maxBurst), whole(burstyLimit(count, per, maxBurst)))
	return policy.Instant(floor(sub(lastEmpty, mul(most, unitTime(count, per)))))
}

// guavaBursty is the model of a Bursty: Guava's two variables in exact fractions.
type guavaBursty struct {
	unit *big.Rat
	// most is the largest number of stored units.
	most  *big.Rat
	limit int64
	end   policy.Instant

	stored, free *big.Rat
	used         bool

	start *big.Rat
	last  int64
}

func newGuavaBursty(count int64, per time.Duration, maxBurst int64) *guavaBursty {
	return &guavaBursty{
		unit: unitTime(count, per), most: whole(maxBurst),
		limit: burstyLimit(count, per, maxBurst), end: endOfBursty(count, per, maxBurst),
		stored: new(big.Rat), free: whole(1),
	}
}

// at returns the stored units and the instant at which the next take is free, as seen at at.
func (g *guavaBursty) at(instant *big.Rat) (stored, free *big.Rat) {
	if instant.Cmp(g.free) <= 0 {
		// If the clock went back, less is stored, by the accrual since. (Guava would make every
		// call wait for the clock.)
		gone := least(sub(g.free, instant), mul(g.stored, g.unit))
		return sub(g.stored, new(big.Rat).Quo(gone, g.unit)), sub(g.free, gone)
	}
	idle := sub(instant, g.free)
	return least(g.most, add(g.stored, idle.Quo(idle, g.unit))), instant
}

func (g *guavaBursty) full() *big.Rat { return add(g.free, mul(sub(g.most, g.stored), g.unit)) }

func (g *guavaBursty) take(now policy.Instant, n int64, patience time.Duration) policy.Decision {
	instant := whole(int64(held(now, g.end)))
	stored, free := g.at(instant)
	decision := policy.Decision{Limit: g.limit}
	late := sub(free, instant)
	willing := whole(int64(min(max(patience, 0), longestPatience)))
	switch {
	case n < 0 || n > g.limit:
		decision.RetryAfter = policy.Never
	case n == 0:
		decision.Allowed = true
	case add(add(free, mul(sub(g.most, stored), g.unit)), mul(whole(n), g.unit)).Cmp(lastEmpty) > 0:
		// The turn is later than any word can say.
		decision.RetryAfter = policy.Never
	case late.Cmp(willing) > 0:
		decision.RetryAfter = policy.Never
		if after := ceil(sub(late, willing)); after <= time.Duration(g.end-held(now, g.end)) {
			decision.RetryAfter = after
		}
	default:
		decision.Allowed, decision.Wait = true, ceil(late)
		g.start, g.last, g.used = free, n, true
		fromStore := least(whole(n), stored)
		g.stored = sub(stored, fromStore)
		g.free = add(free, mul(sub(whole(n), fromStore), g.unit))
	}
	if _, free := g.at(instant); free.Cmp(instant) <= 0 {
		stored, _ := g.at(instant)
		decision.Remaining = min(floor(stored)+1, g.limit)
	}
	if g.used {
		decision.ResetAfter = ceil(positive(sub(g.full(), instant)))
	}
	return decision
}

func (g *guavaBursty) turn() *big.Rat { return g.start }

// missing returns by how many units a key has fewer than a key never used.
func (g *guavaBursty) missing(instant *big.Rat) *big.Rat {
	never := &guavaBursty{unit: g.unit, most: g.most, stored: new(big.Rat), free: whole(1)}
	stored, free := g.at(instant)
	all, free0 := never.at(instant)
	gap := sub(free, free0)
	return add(sub(all, stored), gap.Quo(gap, g.unit))
}

// restock gives units back: to the debt first, then to the store.
func (g *guavaBursty) restock(at, units *big.Rat) {
	stored, free := g.at(at)
	owed := positive(sub(free, greatest(at, whole(1))))
	owed.Quo(owed, g.unit)
	paid := least(owed, units)
	g.free = sub(free, mul(paid, g.unit))
	g.stored = add(stored, sub(units, paid))
	if g.stored.Sign() == 0 && g.free.Cmp(whole(1)) == 0 || g.full().Cmp(add(whole(1), mul(g.most, g.unit))) == 0 {
		// The limiter is as it was made.
		g.used = false
	}
}

func (g *guavaBursty) refund(now policy.Instant, n int64) *big.Rat {
	instant := whole(int64(held(now, g.end)))
	if n < 0 {
		stored, free := g.at(instant)
		more := new(big.Rat).Neg(whole(n))
		fromStore := least(more, stored)
		g.stored, g.used = sub(stored, fromStore), true
		g.free = add(free, mul(sub(more, fromStore), g.unit))
		if g.full().Cmp(lastEmpty) > 0 {
			g.stored = positive(sub(g.most, new(big.Rat).Quo(sub(lastEmpty, g.free), g.unit)))
			g.free = sub(lastEmpty, mul(sub(g.most, g.stored), g.unit))
		}
		return new(big.Rat)
	}
	back := least(whole(n), g.missing(instant))
	if back.Sign() > 0 {
		g.restock(instant, back)
	}
	return back
}

func (g *guavaBursty) mark() any { return g.full() }

func (g *guavaBursty) cancel(now policy.Instant, taken any, n int64) *big.Rat {
	instant := whole(int64(held(now, g.end)))
	then := taken.(*big.Rat)
	if g.full().Cmp(then) < 0 || !g.used {
		// Units came back since.
		return new(big.Rat)
	}
	still := positive(sub(then, instant))
	back := least(whole(n), still.Quo(still, g.unit))
	if g.full().Cmp(then) > 0 {
		// Another call paid for the rest.
		room := g.most
		if sub(sub(g.full(), instant), new(big.Rat).Mul(g.most, g.unit)).Sign() > 0 {
			// A call may be waiting, and starts before the next unit.
			room = least(room, whole(1))
		}
		back = least(back, room)
	}
	if back = least(back, g.missing(instant)); back.Sign() > 0 {
		g.restock(instant, back)
	}
	return back
}

func burstyOf(count int64, per time.Duration, maxBurst int64) subject {
	model := newGuavaBursty(count, per, maxBurst)
	return subject{
		Policy:   policy.Must(policy.Bursty(count, per, maxBurst)),
		oracle:   model,
		limit:    model.limit,
		end:      model.end,
		patience: longestPatience,
		period:   max(ceil(model.unit), 1),
		apart:    true,
		credit:   true,
		within:   atRate(count, per, func() int64 { return model.last + maxBurst }),
	}
}

var burstys = kind{
	name: "Bursty",
	read: func(s *script) subject {
		count, per := s.pace()
		maxBurst := s.between(0, int64(longestDrain)/(int64(per)/count+1)-1)
		return burstyOf(count, per, maxBurst)
	},
}
