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

// SetPolicy replaces this server's own policy, for all keys, from the next call on. Every server of
// the fleet must call it, in any order and at any time. The new policy must read the words of the
// old. It is a Funnel or Queue of any figures, a Bursty of the same count and per, or a window or
// SlidingLog of the same period.
//
// Used units are kept. In a window or log a unit still counts as one. A Funnel, Queue or Bursty
// keeps its time to drain. A key that was full under 10 an hour is full for the rest of that hour
// under 1,000 an hour; a half full key has about half of the new units left. Nothing is forgiven,
// and promised turns are kept.
//
// Until all servers have changed, a changed server admits only calls that both limits allow. Under
// a Funnel or Queue of another rate that is the lower rate, with the bursts that both allow, as
// Answer.Limit tells. So the servers together never admit more than the higher rate with the larger
// burst. The new limit alone holds some seconds after the last server changed or left, as servers
// are counted. A server that takes from Redis uncounted for three seconds is not seen.
//
// Different limits are told as in a deploy: see LimitDeploying and LimitConflict. The share of
// FallbackShare changes at once; the units it let pass still count. Start further servers with the
// new policy. The error is a *policy.FieldError if the policy is nil or does not read the words, or
// if Config.PolicyFor chooses the limits. It is ErrModeUnsupported in Leased mode, or
// engine.ErrClosed. The old policy holds then.
func (l *Limiter) SetPolicy(p policy.Policy) error {
	bad := func(value any, want string) error {
		return &policy.FieldError{Of: "SetPolicy", Field: "policy", Value: value, Want: want}
	}
	switch {
	case shape.IsNil(p):
		return bad("nil", "a policy, such as policy.Funnel returns")
	case l.leased != nil:
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

type change struct {
	mu     sync.Mutex
	before []policy.Policy // that this server had, and others may still keep
}

// holdTo has p, with its limit, and all policies before hold. The caller locks change.mu.
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

// strictest returns a policy that admits only calls that p and all the others admit, on the same
// words. Each unit costs a word at least as much as under any of them. It is admitted only if the
// bucket is as empty as each wants before the call. Limits that count in windows, and limits of one
// rate, admit on the same words as many as the larger, in any order. For them it returns p.
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
		// A call of n units needs a queue n-1 units shorter than allowed.
		depth := slow.Depth
		for _, s := range all {
			depth = min(depth, s.Depth)
		}
		return policy.Queue(int64(depth/slow.Interval), slow.Count, slow.Per)
	}
	// A call of n units needs room for them. If they drain slower than under s, the bucket is
	// emptier before them than s wants, least for n = 1.
	depth := slow.Depth
	for _, s := range all {
		depth = min(depth, s.Depth-s.Interval+slow.Interval)
	}
	return policy.Funnel(int64(depth/slow.Interval), slow.Count, slow.Per)
}
