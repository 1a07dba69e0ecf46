package engine

import (
	"context"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/ral-limiter/ral/cell"
	"github.com/ral-limiter/ral/internal/adapter/binding"
	"github.com/ral-limiter/ral/internal/core/shape"
	"github.com/ral-limiter/ral/limits"
	"github.com/ral-limiter/ral/policy"
	"github.com/ral-limiter/ral/table"
)

type claimsCall struct {
	multiTake[claimedKey, releaser]
	claims []Claim
	first  []int // for each claim, the first claim on its key
	waited time.Duration
}

type claimRoom struct {
	keys  [maxTiers]keyRequest[claimedKey, releaser]
	first [maxTiers]int
	order [maxTiers]int
}

// join brings claims on a key together, and orders keys alike in every call. So two calls that want
// the same keys meet at the first, where one is refused with reason, instead of each holding a key
// that the other wants.
func join(claims []Claim, room *claimRoom) claimsCall {
	keys, firsts, order := room.keys[:0], room.first[:0], room.order[:0]
	for i, c := range claims {
		key := claimedKey{c.engine(), c.key, c.brief}
		first := 0
		for first < i && !keys[first].claim.same(key) {
			first++
		}
		keys, firsts = append(keys, keyRequest[claimedKey, releaser]{claim: key, n: c.n}), append(firsts, first)
		if first == i {
			order = append(order, i)
			continue
		}
		k := &keys[first]
		k.claim.brief = k.claim.brief && c.brief
		if k.n < 0 || c.n < 0 {
			k.n = -1
		} else {
			k.n = addSaturated(k.n, c.n)
		}
	}
	slices.SortStableFunc(order, func(a, b int) int {
		switch {
		case claims[a].before(&claims[b]):
			return -1
		case claims[b].before(&claims[a]):
			return 1
		}
		return 0
	})
	return claimsCall{multiTake: multiTake[claimedKey, releaser]{keys: keys, order: order}, claims: claims, first: firsts}
}

func addSaturated(a, b int64) int64 {
	if a > math.MaxInt64-b {
		return math.MaxInt64
	}
	return a + b
}

func (c *claimsCall) asks() bool {
	for _, at := range c.order {
		if c.keys[at].n != 0 {
			return true
		}
	}
	return false
}

func (c *claimsCall) closed() int {
	for _, at := range c.order {
		if c.keys[at].claim.of.isClosed() {
			return at
		}
	}
	return none
}

// lined returns a key with units to take and a line of waiting calls.
func (c *claimsCall) lined() int {
	for _, at := range c.order {
		if k := &c.keys[at]; k.n != 0 && k.claim.of.hasWaiters(k.claim.key) {
			return at
		}
	}
	return none
}

func (c *claimsCall) outcome(allowed bool) Outcome {
	c.countAnswers(allowed)
	out := Outcome{Allowed: allowed, Waited: c.waited, Decisions: make([]policy.Decision, len(c.keys))}
	if allowed && c.asks() {
		out.held = make([]heldClaim, len(c.keys))
	}
	for i, first := range c.first {
		k := &c.keys[first]
		if out.Decisions[i] = k.decision; out.held != nil {
			out.held[i] = heldClaim{n: c.claims[i].n, first: first}
			if first == i {
				out.held[i].releaser = k.held
			}
		}
	}
	for i, first := range c.first {
		out.see(i, c.keys[first].basis)
	}
	b := binding.New(allowed)
	for i, first := range c.first {
		b.See(i, &out.Decisions[i], c.keys[first].atOnce)
	}
	out.Binding, out.RetryAfter = b.Index, b.RetryAfter
	return out
}

// claimer is an engine of any type of keys.
type claimer struct {
	anyEngine
	id    uint64 // orders engines
	time  *timeSource
	tally *cell.Tally
	warns bool // see Config.WarnAt
}

// anyEngine has the methods of a claimer by the type of the keys, which are in the engine's own
// form. Only countOne counts.
type anyEngine interface {
	// known is cell.Known.
	known(key anyKey, hash uint64, now policy.Instant) (level *table.Level, terms *table.Terms, word, returned uint64)
	// accept is cell.Accept.
	accept(o cell.Offer, hash uint64, n int64) (r cell.Remembered, ok bool)
	// keep ends the take of an accepted offer of n units with used of them used.
	keep(o cell.Offer, r cell.Remembered, n, used int64)

	// For all keys, known or not.
	probeKey(key anyKey, n int64) (d policy.Decision, basis cell.Basis, atOnce int64)
	tryTakeKey(key anyKey, n int64, brief bool) (d policy.Decision, held releaser, basis cell.Basis, atOnce int64)
	// await is tryTakeKey in the key's line. On an error the decision is a refusal.
	await(ctx context.Context, key anyKey, n int64, patience time.Duration) (
		d policy.Decision, held releaser, basis cell.Basis, waited time.Duration, err error)
	// countOne counts an answer. Unless it returns the zero Due, call finishOne, which returns the
	// decision afterwards: a counted refusal may block the key.
	countOne(allowed bool, basis cell.Basis) (due cell.Due)
	finishOne(key anyKey, d policy.Decision, due cell.Due) policy.Decision

	// offerBasis returns the basis of the answer of an accepted offer.
	offerBasis(cell.Offer) cell.Basis

	explainKey(key anyKey, n int64) limits.Explanation
	// chargeKey charges units used beyond a take.
	chargeKey(key anyKey, n int64)

	sameKey(a, b anyKey) bool
	hasWaiters(anyKey) bool
	isClosed() bool
}

type claimedKey struct {
	of    *claimer
	key   anyKey
	brief bool // see Claim.Brief
}

func (k claimedKey) same(other claimedKey) bool {
	return k.of == other.of && k.of.sameKey(k.key, other.key)
}

func (k claimedKey) probe(n int64) (policy.Decision, cell.Basis, int64) {
	return k.of.probeKey(k.key, n)
}

func (k claimedKey) tryTake(n int64) (policy.Decision, releaser, cell.Basis, int64) {
	return k.of.tryTakeKey(k.key, n, k.brief)
}

func (k claimedKey) release(held releaser) {
	if held != nil {
		held.Keep(0)
	}
}

func (k claimedKey) count(d policy.Decision, basis cell.Basis) policy.Decision {
	if due := k.of.countOne(d.Allowed, basis); due != (cell.Due{}) {
		return k.of.finishOne(k.key, d, due)
	}
	return d
}

func (e *Engine[K]) known(key anyKey, hash uint64, now policy.Instant) (
	level *table.Level, terms *table.Terms, word, returned uint64,
) {
	return e.cell.Known(unpack[K](e.form, key), hash, now)
}

func (e *Engine[K]) accept(o cell.Offer, hash uint64, n int64) (r cell.Remembered, ok bool) {
	return e.cell.Accept(o, hash, n)
}

func (e *Engine[K]) keep(o cell.Offer, r cell.Remembered, n, used int64) {
	h := e.cell.Held(&o, r, n)
	h.Keep(used)
}

func (e *Engine[K]) offerBasis(o cell.Offer) cell.Basis { return e.cell.OfferBasis(&o) }

func (e *Engine[K]) probeKey(packed anyKey, n int64) (d policy.Decision, basis cell.Basis, atOnce int64) {
	key := unpack[K](e.form, packed)
	limit, atOnce := e.limitOf(key)
	basis = e.cell.Probe(limit, key, n, &d)
	return d, basis, atOnce
}

func (e *Engine[K]) tryTakeKey(packed anyKey, n int64, brief bool) (d policy.Decision, held releaser, basis cell.Basis, atOnce int64) {
	key := unpack[K](e.form, packed)
	limit, atOnce := e.limitOf(key) // before units are taken, as it may panic
	var h cell.Held[K]
	basis = e.cell.TryTake(limit, key, n, brief, &d, &h)
	if d.Allowed {
		held = kept(h)
	}
	return d, held, basis, atOnce
}

// limitOf returns PolicyFor's limit for the key, nil for the engine's own, and the most that can
// remain.
func (e *Engine[K]) limitOf(key K) (limit policy.Policy, atOnce int64) {
	if limit = e.cell.Chosen(key); limit != nil {
		return limit, shape.AtOnce(limit)
	}
	return nil, shape.AtOnce(e.cell.Limit())
}

func kept[K comparable](h cell.Held[K]) releaser { return &h }

func (e *Engine[K]) await(ctx context.Context, key anyKey, n int64, patience time.Duration) (
	d policy.Decision, held releaser, basis cell.Basis, waited time.Duration, err error,
) {
	var h cell.Held[K]
	waited, basis, err = e.cell.Await(ctx, nil, unpack[K](e.form, key), n, patience, &d, &h)
	if err == nil {
		held = kept(h)
	}
	return d, held, basis, waited, e.named(err)
}

func (e *Engine[K]) chargeKey(key anyKey, n int64) { e.charge(nil, unpack[K](e.form, key), n) }

func (e *Engine[K]) countOne(allowed bool, basis cell.Basis) (due cell.Due) {
	return e.cell.CountOnly(allowed, basis)
}

func (e *Engine[K]) finishOne(key anyKey, d policy.Decision, due cell.Due) policy.Decision {
	e.cell.Finish(unpack[K](e.form, key), &d, due)
	return d
}

func (e *Engine[K]) sameKey(a, b anyKey) bool {
	key := unpack[K](e.form, a)
	if _, hashed := e.cell.Hash(key); !hashed {
		return false // comparing it with its like would panic
	}
	return key == unpack[K](e.form, b)
}

func (e *Engine[K]) hasWaiters(key anyKey) bool { return e.cell.HasWaiters(unpack[K](e.form, key)) }

func (e *Engine[K]) isClosed() bool { return e.cell.Closed() }

// noEngine has the key of the zero Claim: its limit is 0.
type noEngine struct{}

var noClaimer = &claimer{anyEngine: noEngine{}}

var errNoKey = fmt.Errorf("%w: the zero Claim names no key", ErrNever)

func (noEngine) known(anyKey, uint64, policy.Instant) (*table.Level, *table.Terms, uint64, uint64) {
	return nil, nil, 0, 0
}
func (noEngine) accept(cell.Offer, uint64, int64) (r cell.Remembered, ok bool) { return r, false }
func (noEngine) keep(cell.Offer, cell.Remembered, int64, int64)                {}
func (noEngine) offerBasis(cell.Offer) (b cell.Basis)                          { return b }
func (noEngine) probeKey(anyKey, int64) (policy.Decision, cell.Basis, int64) {
	return policy.Decision{RetryAfter: policy.Never}, cell.Basis{}, 0
}
func (noEngine) tryTakeKey(anyKey, int64, bool) (policy.Decision, releaser, cell.Basis, int64) {
	return policy.Decision{RetryAfter: policy.Never}, nil, cell.Basis{}, 0
}
func (noEngine) countOne(bool, cell.Basis) (due cell.Due)                          { return due }
func (noEngine) finishOne(_ anyKey, d policy.Decision, _ cell.Due) policy.Decision { return d }
func (noEngine) explainKey(anyKey, int64) limits.Explanation {
	return limits.Explanation{Decision: policy.Decision{RetryAfter: policy.Never}, Binding: none}
}
func (noEngine) chargeKey(anyKey, int64)     {}
func (noEngine) sameKey(anyKey, anyKey) bool { return false }
func (noEngine) hasWaiters(anyKey) bool      { return false }
func (noEngine) isClosed() bool              { return false }
func (noEngine) await(context.Context, anyKey, int64, time.Duration) (
	policy.Decision, releaser, cell.Basis, time.Duration, error,
) {
	return policy.Decision{RetryAfter: policy.Never}, nil, cell.Basis{}, 0, errNoKey
}
