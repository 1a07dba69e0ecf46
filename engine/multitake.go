package engine

import (
	"slices"

	"github.com/ral-limiter/ral/cell"
	"github.com/ral-limiter/ral/policy"
)

// claimant is a key in a call on several keys. Only count counts. H is what it holds after a take.
// probe and tryTake also return the most units that can remain of the key, for calls on claims.
type claimant[H any] interface {
	probe(n int64) (d policy.Decision, basis cell.Basis, atOnce int64)
	tryTake(n int64) (d policy.Decision, held H, basis cell.Basis, atOnce int64)
	release(held H)
	// count returns the decision afterwards: a counted refusal may block the key.
	count(d policy.Decision, basis cell.Basis) policy.Decision
}

type keyRequest[C claimant[H], H any] struct {
	claim    C
	n        int64
	decision policy.Decision
	basis    cell.Basis
	held     H
	taken    bool  // give held back if another key refuses
	atOnce   int64 // the most that decision.Remaining can be
}

// multiTake is a call on several keys. It is generic so that a Tiered need not allocate its claims.
type multiTake[C claimant[H], H any] struct {
	keys  []keyRequest[C, H]
	order []int // in which keys are asked and taken from
}

const none = -1

// take takes from all keys, or from none. Offers took from the first done keys, until another call
// was faster. If the next key has no room the call is refused, as it must not take again units that
// other calls have seen it take.
func (m *multiTake[C, H]) take(done int) bool {
	return (done > 0 || m.probe()) && m.takeExcept(none)
}

// probe asks all keys, and reports whether all would allow it. It nearly always keeps a refused
// call from writing.
func (m *multiTake[C, H]) probe() bool {
	all := true
	for _, at := range m.order {
		k := &m.keys[at]
		k.decision, k.basis, k.atOnce = k.claim.probe(k.n)
		all = all && k.decision.Allowed
	}
	return all
}

// takeExcept takes from each key not yet taken from, except the held key at index has, and reports
// whether all allowed it. If a key refuses, nothing is held.
func (m *multiTake[C, H]) takeExcept(has int) (all bool) {
	refused := none
	defer func() { // also if a policy panics
		if all {
			return
		}
		for _, at := range slices.Backward(m.order) {
			if k := &m.keys[at]; k.taken || at == has {
				k.taken = false
				k.claim.release(k.held)
			}
		}
		if refused != none {
			m.probeExcept(refused)
		}
	}()
	for _, at := range m.order {
		k := &m.keys[at]
		if at == has {
			// It may have taken ahead of its turn. A limit that became one of another family
			// describes no key.
			if d, _, atOnce := k.claim.probe(0); d.Allowed {
				k.decision, k.atOnce = d, atOnce
			}
		}
		if at == has || k.taken || k.n == 0 {
			continue
		}
		k.decision, k.held, k.basis, k.atOnce = k.claim.tryTake(k.n)
		if k.taken = k.decision.Allowed; !k.taken {
			refused = at
			return false
		}
	}
	return true
}

func (m *multiTake[C, H]) probeExcept(refused int) {
	for _, at := range m.order {
		if k := &m.keys[at]; at != refused {
			k.decision, k.basis, _ = k.claim.probe(k.n)
		}
	}
}

// countAnswers counts the answer of each key. If the call is refused, keys that would have allowed
// it are described as not taken from.
func (m *multiTake[C, H]) countAnswers(allowed bool) {
	for _, at := range m.order {
		k := &m.keys[at]
		switch {
		case allowed == k.decision.Allowed && k.n != 0:
			k.decision = k.claim.count(k.decision, k.basis)
		case !allowed && k.decision.Allowed:
			k.decision, _, _ = k.claim.probe(0)
		}
	}
}

func (m *multiTake[C, H]) last() int {
	last := none
	for _, at := range m.order {
		d := m.keys[at].decision
		if !d.Allowed && (last == none || d.RetryAfter > m.keys[last].decision.RetryAfter) {
			last = at
		}
	}
	return last
}
