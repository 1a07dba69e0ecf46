package lease

import (
	"fmt"
	"math/bits"
	"time"

	"github.com/ral-limiter/ral/internal/core/shape"
	"github.com/ral-limiter/ral/policy"
)

const (
	// DefaultTerm is the longest time that a lease lasts if no term is given and the bank is
	// near. Of a bank far away it is defaultTrips round trips, up to longDefault. A funnel
	// keeps back what drains in the longest term, so that its leases last no longer than an
	// eighth of the time in which it drains, though shortDefault if they must: an eighth of
	// its capacity is kept back then, and less of one that takes longer than 8 s.
	DefaultTerm  = 250 * time.Millisecond
	longDefault  = time.Second
	shortDefault = 50 * time.Millisecond
	defaultTrips = 10
	// ShortestTerm is the least that a lease must be able to last: it should be long
	// against a round trip.
	ShortestTerm = 10 * time.Millisecond

	tick = 16 // ticks a nanosecond

	unleased = "a Funnel, a FixedWindow or a SlidingWindow, or Mode Exact: of others nothing can be leased"

	// drift is the part of a lease's time by which it is cut short, because the clocks
	// of server and bank may drift apart by as much. A clock that NTP steers is off by
	// 500 parts per million at most, so two are by 1000.
	drift = 1000
)

// Plan is what follows from a limit for leasing it. It never changes; any number of
// goroutines may use it.
type Plan struct {
	// Policy is what the bank keeps: of a Funnel, one of less capacity.
	Policy policy.Policy
	// Term is how long a lease lasts at most, and near how long if the bank is near.
	Term, near time.Duration
	// Most is the highest number of units of a lease, not counting those that calls are
	// waiting for. A funnel drains as many in a term.
	Most int64

	// pause is how long a key that the bank refused is not asked for at least.
	pause time.Duration
	shape shape.Shape // of Policy
	rate  float64     // units a second in the long run
}

// NewPlan returns how to lease a limit, for a term of at most so long: 0 is
// DefaultTerm. The limit is a Funnel, a FixedWindow or a SlidingWindow. The error, if
// any, is a *policy.FieldError.
func NewPlan(p policy.Policy, term time.Duration) (*Plan, error) {
	bad := func(field string, value any, want string) (*Plan, error) {
		return nil, &policy.FieldError{Of: "fleet.Config", Field: field, Value: value, Want: want}
	}
	shorten, near := term == 0, term
	if shorten {
		term, near = longDefault, DefaultTerm
	}
	if term < ShortestTerm || term > time.Minute {
		return bad("Term", term, "between 10ms and 1m, or 0 for the default")
	}
	if shape.IsNil(p) {
		return bad("Policy", "nil", "a policy, such as policy.Funnel returns")
	}
	shaped, ok := p.(shape.Shaped)
	if !ok {
		return bad("Policy", p, unleased)
	}
	plan := &Plan{Policy: p, Term: term, shape: shaped.Shape()}
	switch s := plan.shape; s.Kind {
	case shape.Funnel:
		// Half of the capacity may be under way: the rest is there for all.
		half := time.Duration(s.Depth / tick / 2)
		if plan.Term = min(term, half); plan.Term < ShortestTerm {
			return bad("Policy", p, fmt.Sprintf(
				"a Funnel that drains in 20ms or more (this one does in %v), or Mode Exact", 2*half))
		}
		near = min(near, half)
		plan.pause = near / pauses
		if shorten {
			plan.Term = min(plan.Term, max(half/4, shortDefault))
		}
		ticks := uint64(plan.Term) * tick
		less := int64((ticks + s.Interval - 1) / s.Interval)
		if less >= s.Capacity {
			return bad("Policy", p, "a Funnel of capacity 2 or more, or Mode Exact: of less nothing can be leased ahead")
		}
		smaller, err := policy.Funnel(s.Capacity-less, s.Count, s.Per)
		if err != nil {
			return nil, err
		}
		plan.Policy, plan.shape = smaller, smaller.(shape.Shaped).Shape()
		plan.Most = max(1, int64(ticks/s.Interval))
		plan.rate = float64(time.Second) * tick / float64(s.Interval)
	case shape.FixedWindow, shape.SlidingWindow:
		if plan.Term = min(term, s.Per); plan.Term < ShortestTerm {
			return bad("Policy", p, "a window of 10ms or more, or Mode Exact")
		}
		plan.pause = min(near, s.Per) / pauses
		plan.Most = s.Limit
		plan.rate = float64(s.Limit) * float64(time.Second) / float64(s.Per)
	default:
		return bad("Policy", p, unleased)
	}
	plan.Most, plan.near = min(plan.Most, maxUnits), min(near, plan.Term)
	return plan, nil
}

// Limit is the most that can be taken at once.
func (p *Plan) Limit() int64 { return p.shape.Limit }

// window is when the window ends that a grant was paid in, by the bank's clock; 0 if
// the limit has no windows.
func (p *Plan) window(g Grant) policy.Instant {
	switch p.shape.Kind {
	case shape.FixedWindow:
		return g.At + policy.Instant(g.Decision.ResetAfter)
	case shape.SlidingWindow:
		per := policy.Instant(p.shape.Per)
		return (g.At/per + 1) * per
	}
	return 0
}

// term is how long leases last at such a round trip to the bank.
func (p *Plan) term(trip time.Duration) time.Duration {
	return min(max(p.near, defaultTrips*trip), p.Term)
}

// lasts is for how long after its request was sent the units of a grant may be used, by leases
// of such a term.
func (p *Plan) lasts(g Grant, term time.Duration) time.Duration {
	rest := min(p.Term, term)
	if end := p.window(g); end != 0 {
		rest = min(rest, time.Duration(end-g.At))
	}
	// The bank's clock may count microseconds, of which the present one has begun.
	return max(rest-(rest+drift-1)/drift-time.Microsecond, 0)
}

// GiveBack returns the bank's word after units were given back at now, or up to late after
// it: units of a funnel drain meanwhile, so that they count as so much older.
func (p *Plan) GiveBack(word uint64, now policy.Instant, late time.Duration, b Back) uint64 {
	refunder := p.Policy.(policy.Refunder)
	if p.shape.Kind != shape.Funnel {
		return refunder.Cancel(word, b.Word, b.At, now, b.Units, 0)
	}
	return refunder.Refund(word, now, p.worth(b.Units, max(time.Duration(now-b.At), b.Age)+late))
}

// worth is how many units of a funnel's lease of that age can be given back: those that
// have not drained since, even if it stood empty otherwise.
func (p *Plan) worth(units int64, age time.Duration) int64 {
	hi, ticks := bits.Mul64(uint64(max(age, 0)), tick)
	if hi != 0 || ticks > 1<<62 {
		return 0
	}
	drained := (ticks + p.shape.Interval - 1) / p.shape.Interval
	return max(units-int64(drained), 0)
}
