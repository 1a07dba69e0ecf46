package single

import (
	"github.com/ral-limiter/ral/internal/core/shape"
	"github.com/ral-limiter/ral/policy"
)

// SetPolicy puts another policy in place of the limit's, from the next call on, and
// returns when it holds. Calls go on meanwhile: each is decided by the one policy or by
// the other, on all that was admitted before it. The two must be of one family, as their
// constructors say. Nothing is forgiven: what was used counts under the new policy too, up
// to as much as that can count. A limit that is lowered and raised again has forgotten the
// rest.
//
// No call is refused for longer than the new policy would refuse it, with these
// exceptions:
//
//   - Promised turns are kept: no other call is admitted before the last of them.
//   - A debt keeps its duration under a Funnel, a Queue and a Bursty.
//   - A SlidingWindow that is lowered, with the same period, counts the units above it
//     where they are: they may refuse calls until the end of the window after, and
//     raising it again forgives nothing.
//
// Windows of another length count from the change. Calls in line get turns under the new
// policy.
//
// The limit that holds already changes nothing. After another one, reservations from before
// give nothing back: settle them first, or give back by Refund.
//
// The error is a *policy.FieldError if the policy is nil or of another family, or if the
// Limiter is the zero one. The old policy holds then.
func (l *Limiter) SetPolicy(p policy.Policy) error {
	if shape.IsNil(p) {
		return nilPolicy("SetPolicy")
	}
	t := l.terms.Load()
	if t == nil {
		return &policy.FieldError{Of: "SetPolicy", Field: "the present policy", Value: "nil", Want: "that of a Limiter that New made"}
	}
	p = l.time.anchored(p)
	if shape.Same(p, t.policy) {
		return nil
	}
	if _, err := t.successor(p); err != nil {
		return err
	}
	if lines := l.lines.Load(); lines != nil {
		resume := lines.Pause()
		defer resume()
	}
	return l.replace(p)
}

// successor returns the policy p, if it may replace that of the terms.
func (t *terms) successor(p policy.Policy) (policy.Relative, error) {
	relative, ok := p.(policy.Relative)
	if ok {
		_, ok = relative.Carry(t.policy, 0, 0)
	}
	if !ok {
		return nil, &policy.FieldError{Of: "SetPolicy", Field: "policy", Value: p, Want: "one of the family of " + t.policy.String()}
	}
	return relative, nil
}

// replace puts new terms in place of the present ones. The swap of the old word for moved
// makes the new terms, and the word that they begin with, those of all calls in one step.
// A call that was faster makes the swap fail, and a call that comes later finds the new
// terms by terms.next until the Limiter has them. No call waits for that.
func (l *Limiter) replace(p policy.Policy) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	old := l.terms.Load()
	relative, err := old.successor(p) // another change may have come first
	if err != nil {
		return err
	}
	next := newTerms(p)
	old.next.Store(next)
	for {
		word := old.word.Load()
		carried := uint64(0)
		if word != 0 {
			carried, _ = relative.Carry(old.policy, word, l.time.now())
		}
		next.word.Store(min(carried, policy.MaxWord))
		if old.word.CompareAndSwap(word, moved) {
			break
		}
	}
	l.terms.Store(next)
	old.next.Store(nil) // a reservation keeps the old terms, but not all that came after them
	return nil
}
