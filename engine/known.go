package engine

import (
	"github.com/ral-limiter/ral/cell"
	"github.com/ral-limiter/ral/internal/adapter/binding"
	"github.com/ral-limiter/ral/internal/core/escape"
)

// maxKnown bounds the claims or limits taken by offers. Two are usual, and clearing room for more
// would cost each call.
const maxKnown = 3

// knownClaim holds a claim that was taken by an offer. It implements releaser.
type knownClaim struct {
	of    *claimer // nil if nothing is held
	n     int64
	offer cell.Offer
	taken cell.Remembered
}

func (k *knownClaim) Keep(n int64) {
	if k.of != nil {
		k.of.keep(k.offer, k.taken, k.n, n)
	}
}

// knownCall is a call on claims of different keys that their engines know. Each take is offered
// first, and then is one swap.
type knownCall struct {
	order  [maxKnown]int
	atOnce [maxKnown]int64 // that can remain of each key
}

// takeKnown is TakeAll for a knownCall. It returns false if nothing was decided or taken. What o
// points to must not escape: see TakeAll.
func (o *Outcome) takeKnown(claims []Claim) (sure bool) {
	if len(claims) == 0 || len(claims) > maxKnown {
		return false
	}
	for i := range claims {
		if claims[i].of == nil || claims[i].n <= 0 {
			return false
		}
	}
	var c knownCall
	allowed, sure := c.look(claims, o)
	if !sure || !c.sort(claims) {
		return false
	}
	if allowed {
		for done, i := range c.order[:len(claims)] {
			k, claim, accepted := &o.known[i], &claims[i], false
			if claim.brief {
				accepted = k.offer.Accept()
			} else {
				k.taken, accepted = claim.of.accept(*escape.Hide(&k.offer), claim.hash, claim.n)
			}
			if !accepted {
				*o = c.takeRest(done, claims, escape.Hide(o)) // it keeps what offers point to, which is on the heap
				return true
			}
			k.of, k.n = claim.of, claim.n
		}
	}
	o.Allowed, o.Decisions = allowed, o.Decisions[:len(claims)]
	c.countAnswers(claims, o)
	return true
}

func (c *knownCall) look(claims []Claim, o *Outcome) (allowed, sure bool) {
	var now moment
	allowed = true
	for i := range claims {
		claim, offer, d := &claims[i], &o.known[i].offer, &o.Decisions[i]
		offer.At = claim.of.time.read(&now)
		offer.Level, offer.Terms, offer.Before, offer.Returned = claim.of.known(claim.key, claim.hash, offer.At)
		if offer.Level == nil || !offer.Take(claim.n, d) {
			return false, false
		}
		if c.atOnce[i] = d.Limit; offer.Terms.OnCredit != nil {
			c.atOnce[i] = offer.Terms.OnCredit.AtOnce() // before units are taken, as it may panic
		}
		allowed = allowed && d.Allowed
	}
	return allowed, true
}

// sort puts the keys in order. It returns false if two may be the same.
func (c *knownCall) sort(claims []Claim) bool {
	for i := 1; i < len(claims); i++ {
		before := i
		for ; before > 0; before-- {
			other := c.order[before-1]
			if claims[i].of == claims[other].of && claims[i].hash == claims[other].hash {
				return false
			}
			if claims[other].before(&claims[i]) {
				break
			}
			c.order[before] = other
		}
		c.order[before] = i
	}
	return true
}

// takeRest goes on if another call was faster at a key, after taking from done keys.
func (c *knownCall) takeRest(done int, claims []Claim, o *Outcome) Outcome {
	var room claimRoom
	rest := join(claims, &room)
	for _, i := range c.order[:done] {
		k, h := &rest.keys[i], o.known[i]
		k.decision, k.atOnce, k.held, k.taken = o.Decisions[i], c.atOnce[i], &h, true
		k.basis = claims[i].of.offerBasis(h.offer)
	}
	return rest.outcome(rest.take(done))
}

// countAnswers counts and completes the answer of each key. If the call is refused, keys that would
// have allowed it are described as not taken from.
func (c *knownCall) countAnswers(claims []Claim, o *Outcome) {
	b := binding.New(o.Allowed)
	for i := range claims {
		claim, d := &claims[i], &o.Decisions[i]
		switch {
		case o.Allowed && claim.of.warns:
			*d = claimedKey{of: claim.of, key: claim.key}.count(*d, claim.of.offerBasis(*escape.Hide(&o.known[i].offer)))
		case o.Allowed:
			claim.of.tally.CountAdmitted()
		case d.Allowed:
			o.known[i].offer.Look(d)
		default:
			if due := claim.of.countOne(false, cell.Basis{}); due != (cell.Due{}) {
				*d = claim.of.finishOne(claim.key, *d, due)
			}
		}
		b.See(i, d, c.atOnce[i])
	}
	o.Binding, o.RetryAfter = b.Index, b.RetryAfter
}
