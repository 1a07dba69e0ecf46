package single

import (
	"github.com/ral-limiter/ral/internal/core/decide"
	"github.com/ral-limiter/ral/internal/core/shape"
	"github.com/ral-limiter/ral/policy"
)

// SetPolicy replaces the policy and returns when the new policy applies to the next call. Each call
// meanwhile is decided by one of the two, on everything admitted before it. The two must be of one
// family, as their constructors say. Usage counts under the new policy too, up to as much as that
// can count: a limit that is lowered and raised again has forgotten the rest. Units in use of an
// InFlight are not forgotten: all count until they are released or end.
//
// No call is refused for longer than the new policy would refuse it, with these exceptions:
//
//   - Promised turns are kept: no other call is admitted before the last of them.
//   - A debt keeps its duration under a Funnel, a Queue and a Bursty.
//   - A SlidingWindow that is lowered, with the same period, keeps the units above it in place:
//     they may refuse calls until the end of the window after, and raising it again forgives
//     nothing.
//
// Windows of another length count from the change. Calls in line get turns under the new policy. An
// equal limit changes nothing. After another limit, earlier reservations give nothing back: settle
// them first, or use Refund. Units in use of an InFlight are released and extended as before, as long
// as they count. Only after 64 further changes of its longest time they are not found any more, and end
// by themselves.
//
// The error is a *policy.FieldError for a nil policy, another family or the zero Limiter. The old
// policy then stays.
func (l *Limiter) SetPolicy(limit policy.Policy) error {
	if shape.IsNil(limit) {
		return nilPolicy("SetPolicy")
	}
	terms := l.terms.Load()
	if terms == nil {
		return &policy.FieldError{Of: "SetPolicy", Field: "the present policy", Value: "nil", Want: "a Limiter from New"}
	}
	limit = l.time.anchored(limit)
	if shape.Same(limit, terms.policy) {
		return nil
	}
	if _, err := terms.successor(limit); err != nil {
		return err
	}
	if lines := l.lines.Load(); lines != nil {
		resume := lines.Pause()
		defer resume()
	}
	return l.replace(limit)
}

func (t *terms) successor(limit policy.Policy) (policy.Relative, error) {
	relative, ok := decide.Related(t.policy, limit)
	if !ok {
		return nil, &policy.FieldError{Of: "SetPolicy", Field: "policy", Value: limit, Want: "one of the family of " + t.policy.String()}
	}
	return relative, nil
}

// replace puts new terms in place. Swapping the old word for moved gives all calls the new terms
// and their first word in a single step. A faster call makes the swap fail; a later call finds the
// new terms by terms.next until the Limiter has these. No call waits for that.
func (l *Limiter) replace(limit policy.Policy) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	old := l.terms.Load()
	// Another change may have come first.
	relative, err := old.successor(limit)
	if err != nil {
		return err
	}
	next := newTerms(limit)
	next.returned.Store(old.returned.Load())
	old.next.Store(next)
	for {
		word, now := old.word.Load(), l.time.now()
		carried := uint64(0)
		if word != 0 {
			carried, _ = relative.Carry(old.policy, word, now)
		}
		if next.inUse != nil {
			next.inUse.epoch = old.inUse.epoch + 1
			next.inUse.rewrites = old.inUse.rewrites.Add(next.inUse.epoch, now, old.policy, relative)
		}
		next.word.Store(min(carried, policy.MaxWord))
		if old.word.CompareAndSwap(word, moved) {
			break
		}
	}
	l.terms.Store(next)
	// A reservation then keeps only the old terms.
	old.next.Store(nil)
	return nil
}
