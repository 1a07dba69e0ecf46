// Package plan says how to lease a limit, and decides on a key's leases. It is arithmetic on values,
// without locks, clocks and channels: package lease has those. A [Plan] is a limit's, an [Account] is
// a key's. Start reading at [New].
package plan

import (
	"fmt"
	"math/bits"
	"time"

	"github.com/ral-limiter/ral/fleet/internal/lease/word"
	"github.com/ral-limiter/ral/fleet/internal/store"
	"github.com/ral-limiter/ral/internal/core/shape"
	"github.com/ral-limiter/ral/policy"
)

const (
	// DefaultTerm is the longest that a lease lasts without a given term if the bank is near. For a
	// far bank it is defaultTrips round trips, up to longDefault. A funnel keeps back the drain of
	// the longest term. So its leases last at most an eighth of its drain time, or shortDefault if
	// longer. It keeps back an eighth of its capacity, and less if it drains in more than 8 s.
	DefaultTerm  = 250 * time.Millisecond
	longDefault  = time.Second
	shortDefault = 50 * time.Millisecond
	defaultTrips = 10
	// ShortestTerm is the shortest permitted term: long compared with a round trip.
	ShortestTerm = 10 * time.Millisecond

	// pauses is the number of pauses in a term. A refused key is not asked for again before a pause
	// has passed, since several servers may want more than there is. A default term counts before it
	// is shortened.
	pauses = 16

	// tick is the number of a funnel's ticks in a nanosecond.
	tick = 16

	unleased = "a Funnel, a FixedWindow or a SlidingWindow, or Mode Exact: of others nothing can be leased"

	// A lease is cut short by 1/drift of its time, as the clocks of server and bank may drift
	// apart. NTP steers a clock within 500 parts per million, so two within 1000.
	drift = 1000
)

// Plan says how to lease a limit. It never changes; any number of goroutines may use it.
type Plan struct {
	// Policy is the bank's: for a Funnel, with less capacity.
	Policy policy.Policy
	// Term is the longest time that a lease lasts. near is the longest time if exchanges with the bank
	// are short: see TermAt.
	Term, near time.Duration
	// Most bounds the units of a lease beyond those of the waiting calls. A funnel drains Most units
	// in a term.
	Most int64

	// Pause is a term divided by pauses.
	Pause time.Duration
	// shape is the shape of Policy.
	shape shape.Shape
	// rate is the units a second in the long run.
	rate float64
}

// New returns how to lease a Funnel, FixedWindow or SlidingWindow, for at most term: 0 is
// DefaultTerm. The error, if any, is a *policy.FieldError.
func New(limit policy.Policy, term time.Duration) (*Plan, error) {
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
	if shape.IsNil(limit) {
		return bad("Policy", "nil", "a policy, such as policy.Funnel returns")
	}
	shaped, ok := limit.(shape.Shaped)
	if !ok {
		return bad("Policy", limit, unleased)
	}
	plan := &Plan{Policy: limit, Term: term, shape: shaped.Shape()}
	switch form := plan.shape; form.Kind {
	case shape.Funnel:
		// At most half of the capacity may be out in leases.
		half := time.Duration(form.Depth / tick / 2)
		if plan.Term = min(term, half); plan.Term < ShortestTerm {
			return bad("Policy", limit, fmt.Sprintf(
				"a Funnel that drains in 20ms or more (this one does in %v), or Mode Exact", 2*half))
		}
		near = min(near, half)
		plan.Pause = near / pauses
		if shorten {
			plan.Term = min(plan.Term, max(half/4, shortDefault))
		}
		ticks := uint64(plan.Term) * tick
		less := int64((ticks + form.Interval - 1) / form.Interval)
		if less >= form.Capacity {
			return bad("Policy", limit, "a Funnel of capacity 2 or more, or Mode Exact: of less nothing can be leased ahead")
		}
		smaller, err := policy.Funnel(form.Capacity-less, form.Count, form.Per)
		if err != nil {
			return nil, err
		}
		plan.Policy, plan.shape = smaller, smaller.(shape.Shaped).Shape()
		plan.Most = max(1, int64(ticks/form.Interval))
		plan.rate = float64(time.Second) * tick / float64(form.Interval)
	case shape.FixedWindow, shape.SlidingWindow:
		if plan.Term = min(term, form.Per); plan.Term < ShortestTerm {
			return bad("Policy", limit, "a window of 10ms or more, or Mode Exact")
		}
		plan.Pause = min(near, form.Per) / pauses
		plan.Most = form.Limit
		plan.rate = float64(form.Limit) * float64(time.Second) / float64(form.Per)
	default:
		return bad("Policy", limit, unleased)
	}
	plan.Most, plan.near = min(plan.Most, word.MaxUnits), min(near, plan.Term)
	return plan, nil
}

// Limit is the most that can be taken at once.
func (p *Plan) Limit() int64 { return p.shape.Limit }

// Drains reports whether units drain, as of a Funnel, rather than end with a window.
func (p *Plan) Drains() bool { return p.shape.Kind == shape.Funnel }

// window returns the end of the window that paid a grant, by the bank's clock; 0 without windows.
func (p *Plan) window(leaseReply store.LeaseReply) policy.Instant {
	switch p.shape.Kind {
	case shape.FixedWindow:
		return leaseReply.At + policy.Instant(leaseReply.Decision.ResetAfter)
	case shape.SlidingWindow:
		per := policy.Instant(p.shape.Per)
		return (leaseReply.At/per + 1) * per
	}
	return 0
}

// TermAt returns how long leases last if an exchange with the bank takes trip.
func (p *Plan) TermAt(trip time.Duration) time.Duration {
	return min(max(p.near, defaultTrips*trip), p.Term)
}

// lasts returns how long after its request was sent a grant may be used.
func (p *Plan) lasts(leaseReply store.LeaseReply, term time.Duration) time.Duration {
	rest := min(p.Term, term)
	if end := p.window(leaseReply); end != 0 {
		rest = min(rest, time.Duration(end-leaseReply.At))
	}
	// The bank's clock may count whole microseconds.
	return max(rest-(rest+drift-1)/drift-time.Microsecond, 0)
}

// Back gives back unused units of a lease.
type Back struct {
	// Name is the key's.
	Name  string
	Units int64
	// Word is the word from the grant, and At is its instant.
	Word uint64
	At   policy.Instant
	// Age is the time since the ask by the server's clock, since the bank's may go back.
	Age time.Duration
}

// GiveBack returns the bank's word after units are given back to the word before. They are given
// back at now, or up to late after it. Funnel units drain meanwhile, and count as older by late.
func (p *Plan) GiveBack(before uint64, now policy.Instant, late time.Duration, back Back) uint64 {
	refunder := p.Policy.(policy.Refunder)
	if !p.Drains() {
		return refunder.Cancel(before, back.Word, back.At, now, back.Units, 0)
	}
	return refunder.Refund(before, now, p.Worth(back.Units, max(time.Duration(now-back.At), back.Age)+late))
}

// Worth returns how many units of a funnel's lease of that age have not drained, if the funnel held
// no other units.
func (p *Plan) Worth(units int64, age time.Duration) int64 {
	hi, ticks := bits.Mul64(uint64(max(age, 0)), tick)
	if hi != 0 || ticks > 1<<62 {
		return 0
	}
	drained := (ticks + p.shape.Interval - 1) / p.shape.Interval
	return max(units-int64(drained), 0)
}
