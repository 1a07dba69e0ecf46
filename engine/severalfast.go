package engine

import (
	"github.com/ral-limiter/ral/cell"
	"github.com/ral-limiter/ral/internal/adapter/binding"
	"github.com/ral-limiter/ral/internal/core/escape"
	"github.com/ral-limiter/ral/policy"
)

// maxKnown bounds the claims or limits taken by offers. Two are usual, and clearing room for more
// would cost each call.
const maxKnown = 3

// knownClaim holds a claim that was taken by an offer.
type knownClaim struct {
	// engine is nil if nothing is held.
	engine *claimer
	n      int64
	offer  cell.Offer
	taken  cell.Remembered
}

// knownCall is a call on claims of different keys that their engines know. Each take is offered
// first, and then is one swap.
type knownCall struct {
	order [maxKnown]int
	// atOnce is the most units that can remain of each key.
	atOnce [maxKnown]int64
}

// takeKnown is TakeAll for a knownCall. takeKnown returns false if nothing was decided or taken.
// The memory that o points to must not escape: see TakeAll.
func (o *Outcome) takeKnown(claims []Claim) (sure bool) {
	if len(claims) == 0 || len(claims) > maxKnown {
		return false
	}
	for i := range claims {
		if claims[i].engine == nil || claims[i].n <= 0 {
			return false
		}
	}
	var call knownCall
	allowed, sure := call.look(claims, o)
	if !sure || !call.sort(claims) {
		return false
	}
	if allowed {
		for done, i := range call.order[:len(claims)] {
			knownClaim, claim, accepted := &o.known[i], &claims[i], false
			if offer := &knownClaim.offer; claim.brief {
				accepted = offer.Accept()
			} else {
				knownClaim.taken, accepted = claim.engine.accept(escape.Hide(offer.Level), escape.Hide(offer.Terms), offer.Before, offer.After, offer.Returned, offer.At, claim.n, claim.hash)
			}
			if !accepted {
				// The outcome keeps what offers point to, which is on the heap.
				*o = call.takeRest(done, claims, escape.Hide(o))
				return true
			}
			knownClaim.engine, knownClaim.n = claim.engine, claim.n
		}
	}
	o.Allowed, o.Decisions = allowed, o.Decisions[:len(claims)]
	call.countAnswers(claims, o)
	return true
}

func (c *knownCall) look(claims []Claim, outcome *Outcome) (allowed, sure bool) {
	var now moment
	allowed = true
	for i := range claims {
		claim, offer, decision := &claims[i], &outcome.known[i].offer, &outcome.Decisions[i]
		offer.At = claim.engine.time.read(&now)
		offer.Level, offer.Terms, offer.Before, offer.Returned = claim.engine.known(claim.key, claim.hash, offer.At)
		if offer.Level == nil || !offer.Take(claim.n, decision) {
			return false, false
		}
		if c.atOnce[i] = decision.Limit; offer.Terms.OnCredit != nil {
			// The policy is asked before units are taken, as a policy may panic.
			c.atOnce[i] = offer.Terms.OnCredit.AtOnce()
		}
		allowed = allowed && decision.Allowed
	}
	return allowed, true
}

// sort puts the keys in order. sort returns false if two keys may be the same.
func (c *knownCall) sort(claims []Claim) bool {
	for i := 1; i < len(claims); i++ {
		before := i
		for ; before > 0; before-- {
			other := c.order[before-1]
			order := claims[other].compare(&claims[i])
			if order == 0 {
				return false
			}
			if order < 0 {
				break
			}
			c.order[before] = other
		}
		c.order[before] = i
	}
	return true
}

// takeRest goes on if another call was faster at a key, after taking from done keys.
func (c *knownCall) takeRest(done int, claims []Claim, outcome *Outcome) Outcome {
	var room claimRoom
	rest := join(claims, &room)
	for _, i := range c.order[:done] {
		request, claim := &rest.keys[i], &outcome.known[i]
		request.decision, request.atOnce, request.receipt, request.taken = outcome.Decisions[i], c.atOnce[i], claim.offer.Receipt(claim.taken, claim.n), true
		request.basis = request.engine.offerBasis(claim.offer)
	}
	return rest.outcome(rest.take(done))
}

// countAnswers counts and completes the answer of each key. If the call is refused, keys that would
// have allowed it are described as not taken from.
func (c *knownCall) countAnswers(claims []Claim, outcome *Outcome) {
	b := binding.New(outcome.Allowed)
	for i := range claims {
		claim, decision := &claims[i], &outcome.Decisions[i]
		switch {
		case outcome.Allowed && claim.engine.warns:
			*decision = claim.engine.record(claim.key, *decision, claim.engine.offerBasis(*escape.Hide(&outcome.known[i].offer)))
		case outcome.Allowed:
			claim.engine.tally.CountAdmitted()
		case decision.Allowed:
			outcome.known[i].offer.Look(decision)
		default:
			if due := claim.engine.countOne(false, cell.Basis{}); due != (cell.Due{}) {
				*decision = claim.engine.finishOne(claim.key, *decision, due)
			}
		}
		b.See(i, decision, c.atOnce[i])
	}
	outcome.Binding, outcome.RetryAfter = b.Index, b.RetryAfter
}

func (t *Tiered[K]) take(key K, n int64) (all policy.Decision, recorded bool) {
	var decisions [maxKnown]policy.Decision
	call := tieredCall[K]{tiers: t, key: key, n: n}
	allowed, decided := call.take(&decisions)
	if !decided {
		return call.takeRest(&decisions)
	}
	all.Allowed = allowed
	for i := range t.engines {
		decision := &decisions[i]
		// Nothing was taken.
		if !allowed && decision.Allowed {
			call.offers[i].Look(decision)
		}
		combine(&all, decision, i == 0)
	}
	return all, true
}

// tieredCall is a call on a key under all limits of a Tiered. If all engines know the key, each
// offers its take, and then each take is one swap. These are the steps of knownCall without an
// interface in between. One generic function for both calls its keys' methods indirectly: Tiered.Choke
// took 75 ns with it, not 63, and Tiered.Take 115 ns, not 76.
type tieredCall[K comparable] struct {
	tiers   *Tiered[K]
	key     K
	n       int64
	offers  [maxKnown]cell.Offer
	refuses [maxKnown]bool
	// taken is the number of accepted offers.
	taken int
}

// take takes by offers from all engines, or from none. decisions may be nil if n is 1. decided is
// false if takeRest is to go on.
func (c *tieredCall[K]) take(decisions *[maxKnown]policy.Decision) (allowed, decided bool) {
	engines := c.tiers.engines
	if len(engines) > maxKnown {
		return false, false
	}
	var now moment
	var hash uint64
	allowed = true
	for i, engine := range engines {
		// Engines of a Tiered share a seed, but a test's may not.
		if i == 0 || engine.cell.Seed() != engines[i-1].cell.Seed() {
			if hash, decided = engine.cell.Hash(c.key); !decided {
				return false, false
			}
		}
		offer := &c.offers[i]
		offer.At = engine.time.read(&now)
		if offer.Level, offer.Terms, offer.Before, offer.Returned = engine.cell.Known(c.key, hash, offer.At); offer.Level == nil {
			return false, false
		}
		one := false
		if decisions == nil {
			one, decided = offer.TakeOne()
		} else {
			decided = offer.Take(c.n, &decisions[i])
			one = decisions[i].Allowed
		}
		if !decided {
			return false, false
		}
		c.refuses[i] = !one
		allowed = allowed && one
	}
	if allowed {
		for i := range engines {
			if !c.offers[i].Accept() {
				c.taken = i
				return false, false
			}
		}
	}
	for i, engine := range engines {
		switch {
		case allowed:
			engine.cell.Tally().CountAdmitted()
			if engine.cell.Warns() {
				engine.cell.WarnOfOffer(c.key, &c.offers[i])
			}
		case !c.refuses[i]:
		case decisions == nil:
			engine.cell.Count(c.key, &policy.Decision{}, cell.Basis{})
		default:
			engine.cell.Count(c.key, &decisions[i], cell.Basis{})
		}
	}
	return allowed, true
}

// takeRest goes on after take, for any key. recorded reports whether all limits recorded the key.
func (c *tieredCall[K]) takeRest(decisions *[maxKnown]policy.Decision) (all policy.Decision, recorded bool) {
	engines := c.tiers.engines
	var room [maxTiers]keyRequest
	keys := severalKeys{room[:len(engines)], asMade[:len(engines)]}
	for i, engine := range engines {
		request := &keys.keys[i]
		request.engine, request.key, request.n, request.brief = &engine.claimer, packHere(engine.form, &c.key), c.n, true
		if i >= c.taken {
			continue
		}
		if request.decision.Allowed = true; decisions != nil {
			request.decision = decisions[i]
		}
		request.receipt, request.taken = c.offers[i].Receipt(cell.Remembered{}, c.n), true
		request.basis = engine.cell.OfferBasis(&c.offers[i])
	}
	all.Allowed, recorded = keys.take(c.taken), true
	keys.countAnswers(all.Allowed)
	for i := range keys.keys {
		combine(&all, &keys.keys[i].decision, i == 0)
		recorded = recorded && keys.keys[i].basis.Recorded()
	}
	return all, recorded
}

var asMade = []int{0, 1, 2, 3, 4, 5, 6, 7}

func combine(all, decision *policy.Decision, first bool) {
	if first {
		all.Limit, all.Remaining = decision.Limit, decision.Remaining
	}
	all.Limit = min(all.Limit, decision.Limit)
	all.Remaining = min(all.Remaining, decision.Remaining)
	all.ResetAfter = max(all.ResetAfter, decision.ResetAfter)
	all.RetryAfter = max(all.RetryAfter, decision.RetryAfter)
}
