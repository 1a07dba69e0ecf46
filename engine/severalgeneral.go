package engine

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/ral-limiter/ral/cell"
	"github.com/ral-limiter/ral/internal/adapter/binding"
	"github.com/ral-limiter/ral/internal/core/escape"
	"github.com/ral-limiter/ral/internal/core/shape"
	"github.com/ral-limiter/ral/limits"
	"github.com/ral-limiter/ral/policy"
	"github.com/ral-limiter/ral/table"
)

// severalKeys is a call on several keys, known or not. severalfast.go has the calls on known keys.
type severalKeys struct {
	keys []keyRequest
	// order is the order in which keys are asked and taken from.
	order []int
}

// keyRequest is a key in a call on several keys.
type keyRequest struct {
	engine *claimer
	key    anyKey
	n      int64
	// brief is Claim.Brief.
	brief    bool
	decision policy.Decision
	basis    cell.Basis
	receipt  cell.Receipt
	// taken means that the receipt's units are given back if another key refuses.
	taken bool
	// atOnce is the most that decision.Remaining can be.
	atOnce int64
}

const none = -1

// take takes from all keys, or from none. If done is not 0, offers have taken from that many keys, until another call
// was faster. If the next key has no room the call is refused, as it must not take again units that
// other calls have seen it take.
func (s *severalKeys) take(done int) bool {
	return (done > 0 || s.probe()) && s.takeExcept(none)
}

// probe asks all keys, and reports whether all would allow it. probe nearly always keeps a refused
// call from writing.
func (s *severalKeys) probe() bool {
	all := true
	for _, index := range s.order {
		request := &s.keys[index]
		request.probe()
		all = all && request.decision.Allowed
	}
	return all
}

// takeExcept takes from each key not yet taken from, except the held key at index has, and reports
// whether all allowed it. If a key refuses, nothing is held.
func (s *severalKeys) takeExcept(has int) (all bool) {
	refused := none
	// The units also go back if a policy panics.
	defer func() {
		if all {
			return
		}
		for _, index := range slices.Backward(s.order) {
			if request := &s.keys[index]; request.taken || index == has {
				request.taken = false
				request.engine.keep(request.receipt, 0)
			}
		}
		if refused != none {
			s.probeExcept(refused)
		}
	}()
	for _, index := range s.order {
		request := &s.keys[index]
		if index == has {
			// The held call may have taken ahead of its turn. A limit that became one of another
			// family describes no key.
			var decision policy.Decision
			if _, atOnce := request.engine.probeKey(request.key, 0, escape.Hide(&decision)); decision.Allowed {
				request.decision, request.atOnce = decision, atOnce
			}
		}
		if index == has || request.taken || request.n == 0 {
			continue
		}
		request.basis, request.atOnce = request.engine.tryTakeKey(request.key, request.n, request.brief, escape.Hide(&request.decision), escape.Hide(&request.receipt))
		if request.taken = request.decision.Allowed; !request.taken {
			refused = index
			return false
		}
	}
	return true
}

func (s *severalKeys) probeExcept(refused int) {
	for _, index := range s.order {
		if request := &s.keys[index]; index != refused {
			request.probe()
		}
	}
}

// countAnswers counts the answer of each key. If the call is refused, keys that would have allowed
// it are described as not taken from.
func (s *severalKeys) countAnswers(allowed bool) {
	for _, index := range s.order {
		request := &s.keys[index]
		switch {
		case allowed == request.decision.Allowed && request.n != 0:
			request.decision = request.engine.record(request.key, request.decision, request.basis)
		case !allowed && request.decision.Allowed:
			request.engine.probeKey(request.key, 0, escape.Hide(&request.decision))
		}
	}
}

// first returns the index of the first key in order for which is returns true, or none.
func (s *severalKeys) first(is func(request *keyRequest) bool) int {
	for _, index := range s.order {
		if is(&s.keys[index]) {
			return index
		}
	}
	return none
}

func (k *keyRequest) probe() {
	k.basis, k.atOnce = k.engine.probeKey(k.key, k.n, escape.Hide(&k.decision))
}

func (k *keyRequest) asks() bool     { return k.n != 0 }
func (k *keyRequest) isClosed() bool { return k.engine.isClosed() }
func (k *keyRequest) isLined() bool  { return k.n != 0 && k.engine.hasWaiters(k.key) }

// last returns the refusing key with the longest wait.
func (s *severalKeys) last() int {
	last := none
	for _, index := range s.order {
		decision := s.keys[index].decision
		if !decision.Allowed && (last == none || decision.RetryAfter > s.keys[last].decision.RetryAfter) {
			last = index
		}
	}
	return last
}

// claimsCall is a call on claims.
type claimsCall struct {
	severalKeys
	claims []Claim
	// firsts has, for each claim, the first claim on its key.
	firsts []int
	waited time.Duration
}

type claimRoom struct {
	keys   [maxTiers]keyRequest
	firsts [maxTiers]int
	order  [maxTiers]int
}

// join brings claims on a key together, and orders keys alike in every call. So two calls that want
// the same keys meet at the first, where one is refused with reason, instead of each holding a key
// that the other wants.
func join(claims []Claim, room *claimRoom) claimsCall {
	keys, firsts, order := room.keys[:0], room.firsts[:0], room.order[:0]
	for i, claim := range claims {
		key := keyRequest{engine: claim.claimer(), key: claim.key, n: claim.n, brief: claim.brief}
		first := 0
		for first < i && !(keys[first].engine.id == key.engine.id && key.engine.sameKey(keys[first].key, key.key)) {
			first++
		}
		if call, ok := key.engine.anyEngine.(perCall); ok {
			key.engine = &claimer{anyEngine: call.forCall(), id: key.engine.id}
		}
		keys, firsts = append(keys, key), append(firsts, first)
		if first == i {
			order = append(order, i)
			continue
		}
		request := &keys[first]
		request.brief = request.brief && claim.brief
		request.n = binding.Sum(request.n, claim.n)
	}
	slices.SortStableFunc(order, func(a, b int) int { return claims[a].compare(&claims[b]) })
	return claimsCall{severalKeys: severalKeys{keys, order}, claims: claims, firsts: firsts}
}

// compare orders keys alike in every call. Different keys may compare equal.
func (c *Claim) compare(other *Claim) int {
	if c.engine != other.engine {
		if order := cmp.Compare(c.claimer().id, other.claimer().id); order != 0 {
			return order
		}
	}
	return cmp.Compare(c.hash, other.hash)
}

func (c *claimsCall) outcome(allowed bool) Outcome {
	c.countAnswers(allowed)
	out := Outcome{Allowed: allowed, Waited: c.waited, Decisions: make([]policy.Decision, len(c.keys))}
	if allowed && c.first((*keyRequest).asks) != none {
		out.held = make([]heldClaim, len(c.keys))
	}
	for i, first := range c.firsts {
		request := &c.keys[first]
		if out.Decisions[i] = request.decision; out.held != nil {
			out.held[i] = heldClaim{n: c.claims[i].n, first: first}
			if first == i {
				out.held[i].engine, out.held[i].receipt = request.engine, request.receipt
			}
		}
	}
	for i, first := range c.firsts {
		out.see(i, c.keys[first].basis)
	}
	claim := binding.New(allowed)
	for i, first := range c.firsts {
		claim.See(i, &out.Decisions[i], c.keys[first].atOnce)
	}
	out.Binding, out.RetryAfter = claim.Index, claim.RetryAfter
	return out
}

// claimer is an engine of any type of keys.
type claimer struct {
	anyEngine
	// id orders engines, those that were made earlier first.
	id    uint64
	time  *timeSource
	tally *cell.Tally
	// warns reports whether there is a Config.WarnAt.
	warns bool
}

// claimers counts the ids of claimers.
var claimers atomic.Uint64

// record counts an answer, and returns the decision afterwards: a counted refusal may block the key.
func (c *claimer) record(key anyKey, decision policy.Decision, basis cell.Basis) policy.Decision {
	if due := c.countOne(decision.Allowed, basis); due != (cell.Due{}) {
		return c.finishOne(key, decision, due)
	}
	return decision
}

// anyEngine is an engine with the type of its keys hidden, since TakeAll takes claims on keys of different
// types. The keys are in the engine's own form. Only countOne counts.
type anyEngine interface {
	// known is cell.Known.
	known(key anyKey, hash uint64, now policy.Instant) (level *table.Level, terms *table.Terms, word, returned uint64)
	// accept is cell.Accept.
	accept(level *table.Level, terms *table.Terms, before, after, returned uint64, now policy.Instant, n int64, hash uint64) (
		r cell.Remembered, ok bool)
	// keep ends a take with used of its units used. The zero receipt holds none.
	keep(r cell.Receipt, used int64)

	// For all keys, known or not. They keep no pointer. atOnce is the most units that can remain.
	probeKey(key anyKey, n int64, d *policy.Decision) (basis cell.Basis, atOnce int64)
	tryTakeKey(key anyKey, n int64, brief bool, d *policy.Decision, r *cell.Receipt) (basis cell.Basis, atOnce int64)
	// await is tryTakeKey in the key's line. On an error the decision is a refusal.
	await(ctx context.Context, key anyKey, n int64, patience time.Duration, d *policy.Decision, r *cell.Receipt) (
		waited time.Duration, basis cell.Basis, err error)
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

// perCall is implemented by an anyEngine that holds the units of a key itself, and so needs a copy for each key of a call.
type perCall interface{ forCall() anyEngine }

func (e *Engine[K]) known(key anyKey, hash uint64, now policy.Instant) (
	level *table.Level, terms *table.Terms, word, returned uint64,
) {
	return e.cell.Known(unpack[K](e.form, key), hash, now)
}

func (e *Engine[K]) accept(
	level *table.Level, terms *table.Terms, before, after, returned uint64, now policy.Instant, n int64, hash uint64,
) (remembered cell.Remembered, ok bool) {
	return e.cell.Accept(level, terms, before, after, returned, now, n, hash)
}

func (e *Engine[K]) keep(receipt cell.Receipt, used int64) {
	held := e.cell.Held(receipt)
	held.Keep(used)
}

func (e *Engine[K]) offerBasis(offer cell.Offer) cell.Basis { return e.cell.OfferBasis(&offer) }

func (e *Engine[K]) probeKey(packed anyKey, n int64, decision *policy.Decision) (basis cell.Basis, atOnce int64) {
	limit, basis := e.cell.Probe(nil, unpack[K](e.form, packed), n, decision)
	return basis, e.atOnce(limit)
}

func (e *Engine[K]) tryTakeKey(packed anyKey, n int64, brief bool, decision *policy.Decision, receipt *cell.Receipt) (
	basis cell.Basis, atOnce int64,
) {
	var held cell.Held[K]
	limit, basis := e.cell.TryTake(unpack[K](e.form, packed), n, brief, decision, &held)
	*receipt = held.Receipt
	return basis, e.atOnce(limit)
}

// atOnce returns the most that can remain under a limit; nil is the engine's own.
func (e *Engine[K]) atOnce(limit policy.Policy) int64 {
	if limit == nil {
		limit = e.cell.Limit()
	}
	return shape.AtOnce(limit)
}

func (e *Engine[K]) await(
	ctx context.Context, key anyKey, n int64, patience time.Duration, decision *policy.Decision, receipt *cell.Receipt,
) (waited time.Duration, basis cell.Basis, err error) {
	var held cell.Held[K]
	waited, basis, err = e.cell.Await(ctx, nil, unpack[K](e.form, key), n, patience, decision, &held)
	*receipt = held.Receipt
	return waited, basis, e.named(err)
}

func (e *Engine[K]) chargeKey(key anyKey, n int64) { e.charge(nil, unpack[K](e.form, key), n) }

func (e *Engine[K]) countOne(allowed bool, basis cell.Basis) (due cell.Due) {
	return e.cell.CountOnly(allowed, basis)
}

func (e *Engine[K]) finishOne(key anyKey, decision policy.Decision, due cell.Due) policy.Decision {
	e.cell.Finish(unpack[K](e.form, key), &decision, due)
	return decision
}

func (e *Engine[K]) sameKey(a, b anyKey) bool {
	key := unpack[K](e.form, a)
	if _, hashed := e.cell.Hash(key); !hashed {
		// Comparing the key with its like would panic.
		return false
	}
	return key == unpack[K](e.form, b)
}

func (e *Engine[K]) hasWaiters(key anyKey) bool { return e.cell.HasWaiters(unpack[K](e.form, key)) }

func (e *Engine[K]) isClosed() bool { return e.cell.Closed() }

// noEngine has the key of the zero Claim: its limit is 0. No call asks it anything that follows a
// take, so noEngine lacks those methods.
type noEngine struct{ anyEngine }

var noClaimer = &claimer{anyEngine: noEngine{}}

var errNoKey = fmt.Errorf("%w: the zero Claim names no key", ErrNever)

func (noEngine) probeKey(_ anyKey, _ int64, decision *policy.Decision) (basis cell.Basis, atOnce int64) {
	*decision = policy.Decision{RetryAfter: policy.Never}
	return basis, 0
}
func (noEngine) countOne(bool, cell.Basis) (due cell.Due) { return due }
func (noEngine) keep(cell.Receipt, int64)                 {}
func (noEngine) sameKey(anyKey, anyKey) bool              { return false }
func (noEngine) hasWaiters(anyKey) bool                   { return false }
func (noEngine) isClosed() bool                           { return false }
func (noEngine) explainKey(anyKey, int64) limits.Explanation {
	return limits.Explanation{Decision: policy.Decision{RetryAfter: policy.Never}, Binding: none}
}
func (noEngine) await(_ context.Context, _ anyKey, _ int64, _ time.Duration, decision *policy.Decision, _ *cell.Receipt) (
	waited time.Duration, basis cell.Basis, err error,
) {
	*decision = policy.Decision{RetryAfter: policy.Never}
	return 0, basis, errNoKey
}
