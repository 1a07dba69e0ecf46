package cell

import (
	"cmp"
	"math"
	"slices"
	"sync/atomic"
	"time"

	"github.com/ral-limiter/ral/policy"
)

// Claim is a key of a cell, for TakeAll. A cell's Claim method makes it.
type Claim interface {
	// place orders claims alike in every call.
	place() (cell, hash uint64)
	same(Claim) bool
	look(n int64) policy.Decision
	// grab takes n units at once, uncounted, and returns how to give them back.
	// without is the counter of answers without the key's word, if d is one.
	grab(n int64) (d policy.Decision, undo func(), without *atomic.Uint64)
	count(allowed bool, without *atomic.Uint64)
}

type claim[K comparable] struct {
	cell *Cell[K]
	key  K
}

// Claim names a key of this cell for TakeAll.
func (c *Cell[K]) Claim(key K) Claim { return claim[K]{c, key} }

func (c claim[K]) place() (uint64, uint64) {
	hash, _ := c.cell.hash(c.key)
	return c.cell.order, hash
}

func (c claim[K]) same(other Claim) bool {
	o, ok := other.(claim[K])
	if !ok || o.cell != c.cell {
		return false
	}
	if _, hashed := c.cell.hash(c.key); !hashed {
		return false // comparing it with its like would panic
	}
	return o.key == c.key
}

func (c claim[K]) look(n int64) policy.Decision {
	return c.cell.look(c.key, &ask{n: n, atOnce: true})
}

func (c claim[K]) grab(n int64) (policy.Decision, func(), *atomic.Uint64) {
	a := ask{n: n, atOnce: true, exact: true, silent: true}
	r := c.cell.reserve(c.key, &a)
	return r.Decision, r.Cancel, a.without
}

func (c claim[K]) count(allowed bool, without *atomic.Uint64) {
	c.cell.report(allowed, without)
}

// Outcome is the answer of TakeAll.
type Outcome struct {
	// Allowed tells whether all claims were met. Otherwise nothing was taken, or it
	// was given back: see TakeAll.
	Allowed bool
	// RetryAfter is 0 if Allowed. Otherwise all claims would be met after this
	// long, if nobody else takes; policy.Never if one never will.
	RetryAfter time.Duration
	// Binding is the index of the claim that decided: of those refused the one that
	// has to wait longest, of those allowed the one with the least share of its
	// limit left. -1 if there are no claims.
	Binding int
	// Decisions has one for each claim, in their order. Those not Allowed refused.
	Decisions []policy.Decision
}

// TakeAll takes n units from every claim or from none: by address and by user and
// from everybody together. No limit is ever exceeded, not for a moment. It looks first,
// so that nearly always nothing is taken by a call that is refused; if somebody else
// is faster in between, what had been taken is given back as by Reservation.Cancel: a
// call which comes at that moment may be refused by a limit that has room the next,
// and a policy.Queue or WarmingUp behind which somebody came keeps what it cannot give
// back.
//
// A claim that stands twice is charged twice. Without claims the call is allowed.
// n == 0 looks without taking; n < 0, and n above a limit, are refused with
// policy.Never. A key that cannot be recorded is answered as for Take. A policy that
// would make the call wait refuses it here. A call that is allowed is counted once
// for each key, one that is refused once for each key that refuses. A nil Claim
// panics.
func TakeAll(n int64, claims ...Claim) Outcome {
	out := Outcome{Allowed: true, Binding: -1, Decisions: make([]policy.Decision, len(claims))}
	groups := group(n, claims)

	// Looking first keeps a call that is refused from writing, nearly always.
	for i := range groups {
		g := &groups[i]
		g.d = g.claim.look(g.n)
		out.Allowed = out.Allowed && g.d.Allowed
	}
	if out.Allowed && n > 0 {
		out.Allowed = grabAll(groups)
	}
	for i := range groups {
		g := &groups[i]
		switch {
		case n != 0 && out.Allowed == g.d.Allowed:
			g.claim.count(out.Allowed, g.without)
		case !out.Allowed:
			g.d = g.claim.look(0) // which has taken nothing
		}
		for _, at := range g.at {
			out.Decisions[at] = g.d
		}
	}
	out.bind()
	return out
}

// claimed is a key with all that is asked of it.
type claimed struct {
	claim Claim
	n     int64
	at    []int // where it stands among the claims
	d     policy.Decision
	// without is the counter that d belongs to besides; nil is none.
	without *atomic.Uint64
}

// group brings claims on one key together, and all into an order that is the same
// for every call. Two calls that want the same keys then meet at the first, where
// one of them is refused with reason, instead of each holding what the other wants.
func group(n int64, claims []Claim) []claimed {
	groups := make([]claimed, 0, len(claims))
	for i, c := range claims {
		at := slices.IndexFunc(groups, func(g claimed) bool { return g.claim.same(c) })
		if at < 0 {
			groups = append(groups, claimed{claim: c, n: n, at: []int{i}})
			continue
		}
		g := &groups[at]
		g.at = append(g.at, i)
		switch times := int64(len(g.at)); {
		case n > 0 && n > math.MaxInt64/times:
			g.n = math.MaxInt64
		case n < 0:
			g.n = n
		default:
			g.n = n * times
		}
	}
	slices.SortStableFunc(groups, func(a, b claimed) int {
		aCell, aHash := a.claim.place()
		bCell, bHash := b.claim.place()
		return cmp.Or(cmp.Compare(aCell, bCell), cmp.Compare(aHash, bHash))
	})
	return groups
}

// grabAll takes from each, and from none if one refuses.
func grabAll(groups []claimed) bool {
	refused := grab(groups)
	if refused < 0 {
		return true
	}
	for i := range groups {
		if g := &groups[i]; i != refused {
			g.d, g.without = g.claim.look(g.n), nil
		}
	}
	return false
}

// grab takes from each, or from none if one refuses, and returns which did; -1 is
// none.
func grab(groups []claimed) (refused int) {
	var undo []func()
	all := false
	defer func() { // also if a policy panics
		for i := len(undo) - 1; !all && i >= 0; i-- {
			undo[i]()
		}
	}()
	for i := range groups {
		g := &groups[i]
		var back func()
		if g.d, back, g.without = g.claim.grab(g.n); !g.d.Allowed {
			return i
		}
		undo = append(undo, back)
	}
	all = true
	return -1
}

// bind finds the claim that decided.
func (o *Outcome) bind() {
	share := math.Inf(1)
	for i, d := range o.Decisions {
		switch {
		case o.Allowed:
			if s := float64(d.Remaining) / float64(max(d.Limit, 1)); s < share {
				share, o.Binding = s, i
			}
		case !d.Allowed && d.RetryAfter > o.RetryAfter:
			o.RetryAfter, o.Binding = d.RetryAfter, i
		}
	}
}
