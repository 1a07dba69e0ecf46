package engine

import (
	"unsafe"

	"github.com/ral-limiter/ral/cell"
	"github.com/ral-limiter/ral/internal/adapter/binding"
	"github.com/ral-limiter/ral/internal/core/shape"
	"github.com/ral-limiter/ral/policy"
	"github.com/ral-limiter/ral/table"
)

// fewClaims bounds the claims or limits taken by offers. Two are usual, and clearing room for more
// would cost each call.
const fewClaims = 3

// knownClaim holds a claim that was taken by an offer. It implements releaser.
type knownClaim struct {
	of    claimer        // nil if nothing is held
	entry unsafe.Pointer // from the claimer's offer
	taken cell.Plain
}

func (k *knownClaim) Keep(n int64) {
	if k.of != nil {
		k.of.keep(k.entry, k.taken, n)
	}
}

// knownCall is a call on claims of different keys that their engines know. Each engine offers its
// take; then each take is one swap. Claims and held units are arguments of its methods to avoid
// their allocation.
type knownCall struct {
	decisions []policy.Decision
	order     [fewClaims]int
	places    [fewClaims]place
	terms     [fewClaims]*table.Terms
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
			if !c.accept(i, &claims[i], &o.known[i]) {
				*o = c.takeRest(done, claims, &o.known)
				return true
			}
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
		clock := claims[i].of.clock()
		held[i].taken.At, c.places[i].engine = clock.read(&now), clock.id
		if !c.offer(i, &claims[i], &held[i]) {
			return false, false
		}
		allowed = allowed && c.decisions[i].Allowed
	}
	return allowed, true
}

func (c *knownCall) offer(i int, claim *Claim, k *knownClaim) (sure bool) {
	t, d := &k.taken, &c.decisions[i]
	k.entry, c.terms[i], t.Before, t.After, t.Returned, c.places[i].hash, sure = claim.of.offer(claim.key, t.At, claim.n, d)
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

func (c *knownCall) accept(i int, claim *Claim, k *knownClaim) bool {
	if !claim.of.accept(k.entry, c.terms[i], k.taken.Before, k.taken.After) {
		return false
	}
	k.of, k.taken.N, k.taken.Epoch = claim.of, claim.n, c.terms[i].Epoch
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
		d := &c.decisions[i]
		if o.Allowed == d.Allowed {
			of := claims[i].of
			if due := of.countOne(d.Allowed, cell.Basis{}); due != (cell.Due{}) {
				*d = of.finishOne(claims[i].key, *d, due)
			}
		} else {
			terms, taken := c.terms[i], &o.known[i].taken
			_, *d = terms.Policy.Take(taken.Before^terms.EpochBit, taken.At, 0, 0)
		}
		b.See(i, d, c.atOnce[i])
	}
	if !o.Allowed {
		o.known = [fewClaims]knownClaim{}
	}
	o.Binding, o.RetryAfter = b.Index, b.RetryAfter
}
