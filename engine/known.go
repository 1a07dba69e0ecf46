package engine

import (
	"github.com/ral-limiter/ral/cell"
	"github.com/ral-limiter/ral/internal/adapter/binding"
	"github.com/ral-limiter/ral/policy"
)

// fewClaims bounds the claims or limits taken by offers. Two are usual, and clearing room for more
// would cost each call.
const fewClaims = 3

// knownClaim holds a claim that was taken by an offer. It implements releaser.
type knownClaim struct {
	of    claimer // nil if nothing is held
	n     int64
	offer cell.Offer
}

func (k *knownClaim) Keep(n int64) {
	if k.of != nil {
		k.of.keep(k.offer, k.n, n)
	}
}

// knownCall is a call on claims of different keys that their engines know. Each take is offered
// first, and then is one swap. Claims and held units are arguments of its methods to avoid their
// allocation.
type knownCall struct {
	decisions []policy.Decision
	order     [fewClaims]int
	places    [fewClaims]place
	atOnce    [fewClaims]int64 // that can remain of each key
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
	if allowed {
		for done, i := range c.order[:len(claims)] {
			k := &o.known[i]
			if !k.offer.Accept() {
				*o = c.takeRest(done, claims, &o.known)
				return true
			}
			k.of, k.n = claims[i].of, claims[i].n
		}
	}
	o.Allowed, o.Decisions = allowed, c.decisions
	c.countAnswers(claims, o)
	return true
}

func (c *knownCall) look(claims []Claim, held *[fewClaims]knownClaim) (allowed, sure bool) {
	var now moment
	allowed = true
	for i := range claims {
		of, o, d := claims[i].of, &held[i].offer, &c.decisions[i]
		clock := of.clock()
		o.At, c.places[i].engine = clock.read(&now), clock.id
		o.Level, o.Terms, o.Before, o.Returned, c.places[i].hash = of.known(claims[i].key, o.At)
		if o.Level == nil || !o.Take(claims[i].n, d) {
			return false, false
		}
		if c.atOnce[i] = d.Limit; o.Terms.OnCredit != nil {
			c.atOnce[i] = o.Terms.OnCredit.AtOnce() // before units are taken, as it may panic
		}
		allowed = allowed && d.Allowed
	}
	return allowed, true
}

// sort puts the n keys in order. It returns false if two may be the same.
func (c *knownCall) sort(n int) bool {
	for i := 1; i < n; i++ {
		before := i
		for ; before > 0; before-- {
			other := c.order[before-1]
			if c.places[i] == c.places[other] {
				return false
			}
			if c.places[other].less(c.places[i]) {
				break
			}
			c.order[before] = other
		}
		c.order[before] = i
	}
	return true
}

// takeRest goes on if another call was faster at a key, after taking from done keys.
func (c *knownCall) takeRest(done int, claims []Claim, held *[fewClaims]knownClaim) Outcome {
	var room claimRoom
	rest := join(claims, &room)
	for _, i := range c.order[:done] {
		k, h := &rest.keys[i], held[i]
		k.decision, k.atOnce, k.held, k.taken = c.decisions[i], c.atOnce[i], &h, true
	}
	return rest.outcome(rest.take(done))
}

// countAnswers counts and completes the answer of each key. If the call is refused, keys that would
// have allowed it are described as not taken from.
func (c *knownCall) countAnswers(claims []Claim, o *Outcome) {
	b := binding.New(o.Allowed)
	for i := range claims {
		of, d := claims[i].of, &c.decisions[i]
		switch {
		case o.Allowed:
			of.countAdmitted()
		case d.Allowed:
			o.known[i].offer.Look(d)
		default:
			if due := of.countOne(false, cell.Basis{}); due != (cell.Due{}) {
				*d = of.finishOne(claims[i].key, *d, due)
			}
		}
		b.See(i, d, c.atOnce[i])
	}
	if !o.Allowed {
		o.known = [fewClaims]knownClaim{}
	}
	o.Binding, o.RetryAfter = b.Index, b.RetryAfter
}
