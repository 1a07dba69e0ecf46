package engine

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/ral-limiter/ral/cell"
	"github.com/ral-limiter/ral/internal/binding"
	"github.com/ral-limiter/ral/internal/shape"
	"github.com/ral-limiter/ral/policy"
)

// claimsCall is a call on claims.
type claimsCall struct {
	multiTake[claimed, releaser]
	claims []Claim
	first  []int // for each claim, the first one on its key
	waited time.Duration
}

// claimRoom is room for the usual number of claims, so that they need not be allocated.
type claimRoom struct {
	keys   [maxTiers]keyRequest[claimed, releaser]
	first  [maxTiers]int
	order  [maxTiers]int
	places [maxTiers]place
}

// place orders keys.
type place struct{ engine, hash uint64 }

// join brings claims on one key together, and all into an order that is the same for
// every call. Two calls that want the same keys then meet at the first, where one of
// them is refused with reason, instead of each holding what the other wants.
func join(claims []Claim, room *claimRoom) claimsCall {
	keys, firsts, order, places := room.keys[:0], room.first[:0], room.order[:0], room.places[:0]
	for i, c := range claims {
		key := c.key
		if key == nil {
			key = noKey{}
		}
		first := 0
		for first < i && !keys[first].claim.same(key) {
			first++
		}
		keys, firsts = append(keys, keyRequest[claimed, releaser]{claim: key, n: c.n}), append(firsts, first)
		places = append(places, place{})
		if first == i {
			places[i].engine, places[i].hash = key.place()
			order = append(order, i)
			continue
		}
		k := &keys[first]
		if k.n < 0 || c.n < 0 {
			k.n = -1
		} else {
			k.n = addSaturated(k.n, c.n)
		}
	}
	slices.SortStableFunc(order, func(a, b int) int {
		return cmp.Or(cmp.Compare(places[a].engine, places[b].engine), cmp.Compare(places[a].hash, places[b].hash))
	})
	return claimsCall{multiTake: multiTake[claimed, releaser]{keys: keys, order: order}, claims: claims, first: firsts}
}

// addSaturated is a+b, or the largest number if that is less. Neither is below 0.
func addSaturated(a, b int64) int64 {
	if a > math.MaxInt64-b {
		return math.MaxInt64
	}
	return a + b
}

// asks reports whether any claim asks for units.
func (c *claimsCall) asks() bool {
	for _, at := range c.order {
		if c.keys[at].n != 0 {
			return true
		}
	}
	return false
}

// closed returns a key of a closed engine.
func (c *claimsCall) closed() int {
	for _, at := range c.order {
		if c.keys[at].claim.closed() {
			return at
		}
	}
	return none
}

// lined returns a key that units are asked of and that other calls wait for.
func (c *claimsCall) lined() int {
	for _, at := range c.order {
		if k := &c.keys[at]; k.n != 0 && k.claim.hasWaiters() {
			return at
		}
	}
	return none
}

// outcome counts the call and returns its answer.
func (c *claimsCall) outcome(allowed bool) Outcome {
	if allowed && len(c.order) > 1 {
		c.scale()
	}
	c.settle(allowed)
	out := Outcome{Allowed: allowed, Waited: c.waited, Decisions: make([]policy.Decision, len(c.keys))}
	if allowed && c.asks() {
		out.held = make([]heldClaim, len(c.keys))
	}
	for i, first := range c.first {
		k := &c.keys[first]
		out.Decisions[i] = k.decision
		if out.held == nil {
			continue
		}
		out.held[i] = heldClaim{n: c.claims[i].n, first: first}
		if first == i {
			out.held[i].releaser = k.held
		}
	}
	b := binding.New(allowed)
	for i, first := range c.first {
		b.See(i, &out.Decisions[i], c.keys[first].atOnce)
	}
	out.Binding, out.RetryAfter = b.Index, b.RetryAfter
	return out
}

// scale notes how much can remain of each key, to compare the shares that do. If PolicyFor
// panics everything is given back: there is no Outcome yet that could.
func (c *claimsCall) scale() {
	scaled := false
	defer func() {
		if scaled {
			return
		}
		for _, at := range slices.Backward(c.order) {
			k := &c.keys[at]
			k.claim.release(k.held)
		}
	}()
	for _, at := range c.order {
		k := &c.keys[at]
		k.atOnce = k.claim.atOnce()
	}
	scaled = true
}

// claimed is a key of any type.
type claimed interface {
	claimant[releaser]
	// place orders keys alike in every call.
	place() (engine, hash uint64)
	same(claimed) bool
	// hasWaiters reports whether calls wait for the key.
	hasWaiters() bool
	closed() bool
	// atOnce returns the most units that can remain of the key.
	atOnce() int64
	// await is tryTake for a call that waits in the key's line. If there is an error the
	// decision is a refusal.
	await(ctx context.Context, n int64, patience time.Duration) (
		d policy.Decision, held releaser, basis cell.Basis, waited time.Duration, err error)
}

// claimedKey implements claimed.
type claimedKey[K comparable] struct {
	engine *Engine[K]
	key    K
}

func (k *claimedKey[K]) probe(n int64) (d policy.Decision, basis cell.Basis) {
	basis = k.engine.cell.Probe(k.key, n, &d)
	return d, basis
}

func (k *claimedKey[K]) tryTake(n int64) (policy.Decision, releaser, cell.Basis) {
	var d policy.Decision
	var h cell.Held[K]
	basis := k.engine.cell.TryTake(k.key, n, &d, &h)
	if !d.Allowed {
		return d, nil, basis
	}
	return d, kept(h), basis
}

// kept keeps what is held for later.
func kept[K comparable](h cell.Held[K]) releaser { return &h }

func (k *claimedKey[K]) release(held releaser) {
	if held != nil {
		held.Keep(0)
	}
}

func (k *claimedKey[K]) count(allowed bool, basis cell.Basis) { k.engine.cell.Count(allowed, basis) }

func (k *claimedKey[K]) place() (engine, hash uint64) {
	hash, _ = k.engine.cell.Place(k.key)
	return k.engine.cell.ID(), hash
}

func (k *claimedKey[K]) same(other claimed) bool {
	o, ok := other.(*claimedKey[K])
	if !ok || o.engine != k.engine {
		return false
	}
	if _, hashed := k.engine.cell.Place(k.key); !hashed {
		return false // comparing it with its like would panic
	}
	return o.key == k.key
}

func (k *claimedKey[K]) hasWaiters() bool { return k.engine.cell.HasWaiters(k.key) }

func (k *claimedKey[K]) closed() bool { return k.engine.cell.Closed() }

func (k *claimedKey[K]) atOnce() int64 { return shape.AtOnce(k.engine.cell.LimitFor(k.key)) }

func (k *claimedKey[K]) await(ctx context.Context, n int64, patience time.Duration) (
	d policy.Decision, held releaser, basis cell.Basis, waited time.Duration, err error,
) {
	var h cell.Held[K]
	waited, basis, err = k.engine.cell.Await(ctx, k.key, n, patience, &d, &h)
	if err == nil {
		held = kept(h)
	}
	return d, held, basis, waited, k.engine.named(err)
}

// noKey is the key of the zero Claim: its limit is 0.
type noKey struct{}

var errNoKey = fmt.Errorf("%w: the zero Claim names no key", ErrNever)

func (noKey) probe(int64) (policy.Decision, cell.Basis) {
	return policy.Decision{RetryAfter: policy.Never}, cell.Basis{}
}
func (noKey) tryTake(int64) (policy.Decision, releaser, cell.Basis) {
	return policy.Decision{RetryAfter: policy.Never}, nil, cell.Basis{}
}
func (noKey) release(releaser)             {}
func (noKey) count(bool, cell.Basis)       {}
func (noKey) place() (engine, hash uint64) { return 0, 0 }
func (noKey) same(claimed) bool            { return false }
func (noKey) hasWaiters() bool             { return false }
func (noKey) closed() bool                 { return false }
func (noKey) atOnce() int64                { return 0 }
func (noKey) await(context.Context, int64, time.Duration) (
	policy.Decision, releaser, cell.Basis, time.Duration, error,
) {
	return policy.Decision{RetryAfter: policy.Never}, nil, cell.Basis{}, 0, errNoKey
}
