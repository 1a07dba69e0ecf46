package fleet

import (
	"errors"
	"slices"

	"github.com/ral-limiter/ral/engine"
	"github.com/ral-limiter/ral/internal/core/shape"
	"github.com/ral-limiter/ral/policy"
)

// SetPolicy replaces this server's own policy, for all keys, from the next call on. Every server of
// the fleet must call it, in any order and at any time. The new policy must read the words of the
// old. The new policy is a Funnel, Queue or InFlight of any figures, a Bursty of the same count and
// per, or a window or SlidingLog of the same period.
//
// Used units are kept. In a window or log a unit still counts as one. Units in use of an InFlight count
// until a release, or end after the longest time under which they were taken. A Funnel, Queue or Bursty
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
// FallbackShare changes at once; the units that the share let pass still count. Start further
// servers with the new policy. The error is a *policy.FieldError if the policy is nil or does not
// read the words, or if Config.PolicyFor chooses the limits. The error is ErrModeUnsupported in
// Leased mode, or engine.ErrClosed. The old policy holds then.
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
	limit, err := l.newLimit(p)
	if field := (*policy.FieldError)(nil); errors.As(err, &field) {
		return bad(p, field.Want)
	}
	if err != nil {
		return err
	}
	change := &l.change
	change.mu.Lock()
	defer change.mu.Unlock()
	own := l.own.Load()
	if !limit.Reads(own.limit) {
		return bad(p, "one that reads the words of "+own.policy.String()+": of the same kind and, if it counts in windows, the same period")
	}
	before := slices.Concat(change.before, []policy.Policy{own.policy})
	if _, err := strictest(p, before); err != nil {
		return bad(p, err.Error())
	}
	if l.local != nil {
		if err := l.local.SetPolicy(l.config.anchored(p)); err != nil {
			return err
		}
	}
	change.before = before
	return l.holdTo(p, limit)
}
