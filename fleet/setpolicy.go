package fleet

import (
	"errors"
	"slices"
	"sync"

	"github.com/ral-limiter/ral/engine"
	"github.com/ral-limiter/ral/fleet/internal/store"
	"github.com/ral-limiter/ral/internal/core/shape"
	"github.com/ral-limiter/ral/policy"
)

// SetPolicy puts another policy in place of this server's own, for all keys, from the next
// call on. Every server of the fleet has to call it, in any order and at any time: each
// changes its own limit. The new policy must read the words of the old one: a Funnel or a
// Queue of any figures, a Bursty of the same count and per, and a window or a SlidingLog of
// the same period.
//
// What was used is kept. A unit of a window or a log goes on counting as one. A Funnel, a
// Queue and a Bursty keep the time until all will have drained: a key that was full under 10
// an hour is full for the rest of that hour under 1,000 an hour, and of a key that was half
// full about half of the new units remain. Nothing is forgiven, and promised turns are kept.
//
// Until all servers have changed, those that have admit what both limits allow: under a
// Funnel or a Queue of another rate they keep the lower rate, with the bursts that both
// allow, which Answer.Limit tells. So as long as they differ the servers together never admit
// more than the higher rate, with the larger burst, would. A server that has changed goes by the new limit alone
// some seconds after the last server that kept the old one has changed or left, as it hears
// when servers are counted. A server that has taken from Redis without being counted for
// three seconds is not seen.
//
// Servers tell of different limits as in a deploy: see LimitDeploying and LimitConflict.
// The share of FallbackShare changes at once; what it let pass counts on. Config.Policy of
// servers that start from now on should be the new one.
//
// The error is a *policy.FieldError if the policy is nil or does not read the words, or if
// Config.PolicyFor chooses the limits; ErrModeUnsupported in Leased mode, and engine.ErrClosed. The
// old policy holds then.
func (l *Limiter) SetPolicy(p policy.Policy) error {
	bad := func(value any, want string) error {
		return &policy.FieldError{Of: "SetPolicy", Field: "policy", Value: value, Want: want}
	}
	switch {
	case shape.IsNil(p):
		return bad("nil", "a policy, such as policy.Funnel returns")
	case l.leases != nil:
		return unsupported("SetPolicy")
	case l.config.PolicyFor != nil:
		return bad(p, "none, since Config.PolicyFor chooses the limits: let it return another")
	case l.closed.Load():
		return engine.ErrClosed
	}
	limit, err := l.maker.Limit(p)
	if err == nil {
		err = lasting(l.config, limit.Lasts())
	}
	if field := (*policy.FieldError)(nil); errors.As(err, &field) {
		return bad(p, field.Want)
	}
	if err != nil {
		return err
	}
	c := &l.change
	c.mu.Lock()
	defer c.mu.Unlock()
	own := l.own.Load()
	if !limit.Reads(own.limit) {
		return bad(p, "one that reads the words of "+own.policy.String()+": of the same kind and, if it counts in windows, the same period")
	}
	before := slices.Concat(c.before, []policy.Policy{own.policy})
	if _, err := strictest(p, before); err != nil {
		return bad(p, err.Error())
	}
	if l.local != nil {
		if err := l.local.SetPolicy(l.config.anchored(p)); err != nil {
			return err
		}
	}
	c.before = before
	return l.holdTo(p, limit)
}

// change is what SetPolicy has under way.
type change struct {
	mu     sync.Mutex
	before []policy.Policy // that this server had, and others may still keep
}

// holdTo puts terms in place by which p holds, and all that were before it. The caller holds
// change.mu. limit is p's.
func (l *Limiter) holdTo(p policy.Policy, limit *store.Limit) error {
	kept, err := strictest(p, l.change.before)
	if err != nil {
		return err
	}
	if kept != p {
		if limit, err = l.maker.Limit(kept); err != nil {
			return err
		}
	}
	own := newTerms(p, limit, l.local)
	if l.local != nil {
		l.byLimit.Store(limit, own)
	}
	l.own.Store(own)
	return nil
}

// errPace says why a Bursty cannot follow another.
var errPace = errors.New("a Bursty of the same count and per: of two that drain differently none is known that admits what both do")

// strictest returns a policy that admits nothing which p or one of the others would not, on
// the same words. Each unit of it costs a word at least what it costs under any of them, and
// is admitted only if the bucket is as empty as that one wants it before the call.
//
// Limits that count in windows and those of one rate admit on the same words what the larger
// one does, whichever comes first, so that p itself is returned for these.
func strictest(p policy.Policy, others []policy.Policy) (policy.Policy, error) {
	shaped, ok := p.(shape.Shaped)
	if !ok {
		return p, nil // a log
	}
	own := shaped.Shape()
	slow, differs := own, false
	all := []shape.Shape{own}
	for _, o := range others {
		s := o.(shape.Shaped).Shape()
		all = append(all, s)
		differs = differs || s.Interval != own.Interval
		if s.Interval > slow.Interval {
			slow = s
		}
	}
	switch {
	case !differs:
		return p, nil
	case own.Kind == shape.Bursty:
		return nil, errPace
	case own.Kind == shape.Queue:
		// A call of n units is admitted if the queue is n-1 units shorter than it may be.
		depth := slow.Depth
		for _, s := range all {
			depth = min(depth, s.Depth)
		}
		return policy.Queue(int64(depth/slow.Interval), slow.Count, slow.Per)
	}
	// A call of n units is admitted if the bucket has room for them. If they take longer to
	// drain than under s, it is less full before it than s wants, which is least for n = 1.
	depth := slow.Depth
	for _, s := range all {
		depth = min(depth, s.Depth-s.Interval+slow.Interval)
	}
	return policy.Funnel(int64(depth/slow.Interval), slow.Count, slow.Per)
}
