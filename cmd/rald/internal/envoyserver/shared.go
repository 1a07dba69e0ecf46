package envoyserver

import (
	"context"

	"github.com/ral-limiter/ral/cmd/rald/internal/families"
	"github.com/ral-limiter/ral/policy"
)

// Over a fleet a rule of requests per unit takes hits under its own limit, and then charges refused
// hits, since they count too. So in an outage each server has a share of the rule's limit. Calls
// between the two find less counted than in the reference, and no more is admitted than the limit.

func (h *held) isCountedShared() bool { return h.tally != nil && families.EngineOf(h.family) == nil }

func (a *ask) countShared(ctx context.Context) error {
	over, d, err := a.takeShared(ctx)
	if err != nil {
		return err
	}
	a.try(ctx, !over)
	a.countedShared(over, d)
	return nil
}

// takeShared counts the hits. over reports more than the rule allows, d the key's state.
func (a *ask) takeShared(ctx context.Context) (over bool, d policy.Decision, err error) {
	if a.exact != nil && a.n > 0 {
		if d, err = a.family.TakeWith(ctx, a.exact, a.key, a.n); err != nil || d.Allowed {
			return false, d, err
		}
		// Without Redis refused hits do not count.
		if after, err := a.family.RefundWith(ctx, a.exact, a.key, -a.n); err == nil {
			d = after
		}
		return true, d, ctx.Err()
	}
	if a.n == 0 {
		// The limit itself does not distinguish a full window from an exceeded window.
		d, err = a.family.TakeWith(ctx, a.next, a.key, 0)
		over = d.Remaining == 0
		d.Remaining = max(d.Remaining-1, 0)
		return over, d, err
	}
	if d, err = a.family.RefundWith(ctx, a.next, a.key, -a.n); err != nil {
		err = ctx.Err() // nothing is admitted in any case
	}
	return true, d, err
}

func (a *ask) giveBackShared(ctx context.Context) error {
	limit := a.exact
	if limit == nil {
		limit = a.next
	}
	d, err := a.family.RefundWith(ctx, limit, a.key, a.n)
	if err != nil {
		return err
	}
	a.countedShared(false, d)
	return nil
}

func (a *ask) countedShared(over bool, d policy.Decision) {
	count := int64(a.Requests)
	if a.exact != nil && !over {
		count = a.exact.Limit() - d.Remaining
	}
	a.counted(over, count, d.ResetAfter)
}
