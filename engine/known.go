package engine

import (
	"slices"
	"unsafe"

	"github.com/ral-limiter/ral/cell"
	"github.com/ral-limiter/ral/internal/adapter/binding"
	"github.com/ral-limiter/ral/internal/core/shape"
	"github.com/ral-limiter/ral/policy"
	"github.com/ral-limiter/ral/table"
)

// fewClaims bounds the claims of a call, or the limits of a Tiered, that are taken by
// offers. The usual number is two, and clearing room for more would cost each call.
const fewClaims = 3

// knownClaim is what an Outcome holds of a claim that was taken by an offer.
type knownClaim struct {
	of    holder         // nil if nothing is held
	entry unsafe.Pointer // a claimer's offer returned it
	taken cell.Plain
}

// holder ends a take with n of its units used: see claimer.
type holder interface {
	keep(entry unsafe.Pointer, taken cell.Plain, n int64)
}

// released is the holder of a take that was not made by an offer.
type released struct{ releaser }

func (r released) keep(_ unsafe.Pointer, _ cell.Plain, n int64) { r.Keep(n) }

// keep ends the take with n of its units used.
func (k *knownClaim) keep(n int64) {
	if k.of != nil {
		k.of.keep(k.entry, k.taken, n)
	}
}

// knownCall is a call on claims of which each is on another key, that its engine knows.
// Each engine offers its take first. Then each take is one swap. The claims and what is
// held are arguments of its methods, so that they need not be allocated: what a structure
// points to is, if an engine keeps any part of that.
type knownCall struct {
	decisions []policy.Decision
	order     [fewClaims]int
	at        [fewClaims]place
	terms     [fewClaims]*table.Terms // nil if the decision is not of an offer
	basis     [fewClaims]cell.Basis
	atOnce    [fewClaims]int64 // the most units that can remain of each key
}

// takeKnown is TakeAll for a knownCall. It returns false if nothing was decided or taken.
func (o *Outcome) takeKnown(claims []Claim) (sure bool) {
	if len(claims) == 0 || len(claims) > fewClaims {
		return false
	}
	for i := range claims {
		if claims[i].of == nil || claims[i].n <= 0 {
			return false
		}
	}
	c := knownCall{decisions: make([]policy.Decision, len(claims))}
	allowed, sure := c.look(claims, &o.known)
	if !sure || !c.sort(len(claims)) {
		o.known = [fewClaims]knownClaim{}
		return false
	}
	o.Allowed, o.Decisions = allowed && c.take(claims, &o.known), c.decisions
	c.settle(claims, o)
	return true
}

// look has all keys make an offer, and reports whether all would allow the call.
func (c *knownCall) look(claims []Claim, held *[fewClaims]knownClaim) (allowed, sure bool) {
	var now moment
	allowed = true
	for i := range claims {
		clock := claims[i].of.clock()
		held[i].taken.At, c.at[i].engine = clock.at(&now), clock.id
		if !c.offer(i, &claims[i], &held[i]) {
			return false, false
		}
		allowed = allowed && c.decisions[i].Allowed
	}
	return allowed, true
}

// offer has one key make an offer.
func (c *knownCall) offer(i int, claim *Claim, k *knownClaim) (sure bool) {
	t, d := &k.taken, &c.decisions[i]
	k.entry, c.terms[i], t.Before, t.After, t.Returned, c.at[i].hash, sure = claim.of.offer(claim.key, t.At, claim.n, d)
	if sure {
		c.atOnce[i] = d.Limit
		if p, ok := c.terms[i].Policy.(shape.OnCredit); ok {
			c.atOnce[i] = p.AtOnce() // before units are taken, as it may panic
		}
	}
	return sure
}

// sort puts the n keys in order. It returns false if two may be the same.
func (c *knownCall) sort(n int) bool {
	for i := 1; i < n; i++ {
		before := i
		for ; before > 0; before-- {
			other := c.order[before-1]
			if c.at[i] == c.at[other] {
				return false
			}
			if c.at[other].less(c.at[i]) {
				break
			}
			c.order[before] = other
		}
		c.order[before] = i
	}
	return true
}

// take accepts all offers.
func (c *knownCall) take(claims []Claim, held *[fewClaims]knownClaim) bool {
	for done, i := range c.order[:len(claims)] {
		if !c.accept(i, &claims[i], &held[i]) {
			return c.takeRest(done, claims, held)
		}
	}
	return true
}

// accept accepts one offer.
func (c *knownCall) accept(i int, claim *Claim, k *knownClaim) bool {
	if !claim.of.accept(k.entry, c.terms[i], k.taken.Before, k.taken.After) {
		return false
	}
	k.of, k.taken.N, k.taken.Epoch = claim.of, claim.n, c.terms[i].Epoch
	return true
}

// takeRest goes on for take if another call was faster at a key: it decides there again and
// goes on to the others. If one refuses, all is given back, also if a policy panics, and the
// call is refused: it must not take again what other calls have seen it take. done is how
// many keys were taken from.
func (c *knownCall) takeRest(done int, claims []Claim, held *[fewClaims]knownClaim) (all bool) {
	order, refused := c.order[:len(claims)], none
	defer func() {
		if all {
			return
		}
		for _, i := range slices.Backward(order) {
			held[i].keep(0)
			held[i].of = nil
		}
		if refused == none {
			return
		}
		for i := range claims {
			if c.terms[i] = nil; i != refused {
				c.decisions[i], c.basis[i], _ = claims[i].of.probeKey(claims[i].key, claims[i].n)
			}
		}
	}()
	for _, i := range order[done:] {
		if !c.takeAgain(i, &claims[i], &held[i]) {
			refused = i
			return false
		}
	}
	return true
}

// takeAgain takes from one key, and decides anew, at the same instant, as often as another
// call is faster.
func (c *knownCall) takeAgain(i int, claim *Claim, k *knownClaim) bool {
	for !c.accept(i, claim, k) {
		if c.offer(i, claim, k) {
			if !c.decisions[i].Allowed {
				return false
			}
			continue
		}
		// It takes more than the key's word by now.
		var h releaser
		c.decisions[i], h, c.basis[i], c.atOnce[i] = claim.of.tryTakeKey(claim.key, claim.n)
		if !c.decisions[i].Allowed {
			return false
		}
		k.of, k.taken.N = released{h}, claim.n
		break
	}
	return true
}

// settle counts the call and completes its answer. The decisions of keys that would have
// allowed a refused call become those of keys that were not taken from.
func (c *knownCall) settle(claims []Claim, o *Outcome) {
	b := binding.New(o.Allowed)
	for i := range claims {
		d := &c.decisions[i]
		if o.Allowed == d.Allowed {
			of := claims[i].of
			if due := of.countOne(d.Allowed, c.basis[i]); due != (cell.Due{}) {
				*d = of.finishOne(claims[i].key, *d, due)
			}
		} else if terms, taken := c.terms[i], &o.known[i].taken; terms != nil {
			_, *d = terms.Policy.Take(taken.Before^terms.EpochBit, taken.At, 0, 0)
		} else {
			*d, _, _ = claims[i].of.probeKey(claims[i].key, 0)
		}
		if c.basis[i] != (cell.Basis{}) {
			o.see(i, c.basis[i])
		}
		b.See(i, d, c.atOnce[i])
	}
	if !o.Allowed {
		o.known = [fewClaims]knownClaim{}
	}
	o.Binding, o.RetryAfter = b.Index, b.RetryAfter
}
