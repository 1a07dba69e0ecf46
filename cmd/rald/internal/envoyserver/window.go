package envoyserver

import (
	"context"

	"github.com/ral-limiter/ral/policy"
)

// A rule of requests per unit takes hits under its own limit, and then charges refused hits, since
// they count too. So over a fleet each server has a share of the rule's limit in an outage. A call
// between the take and the charge sees fewer hits than in the reference. No more is admitted than the limit.

func (a *ask) countHits(ctx context.Context) error {
	over, decision, err := a.takeHits(ctx)
	if err != nil {
		return err
	}
	a.try(ctx, !over)
	a.countedHits(over, decision)
	return nil
}

// takeHits counts the hits. over reports more than the rule allows, decision the key's state.
func (a *ask) takeHits(ctx context.Context) (over bool, decision policy.Decision, err error) {
	if a.exact != nil && a.n > 0 {
		if decision, err = a.family.TakeWith(ctx, a.exact, a.key, a.n); err != nil || decision.Allowed {
			return false, decision, err
		}
		// Without Redis refused hits do not count.
		if after, err := a.family.RefundWith(ctx, a.exact, a.key, -a.n); err == nil {
			decision = after
		}
		return true, decision, ctx.Err()
	}
	if a.n == 0 {
		// The limit itself does not distinguish a full window from an exceeded window.
		decision, err = a.family.TakeWith(ctx, a.next, a.key, 0)
		over = decision.Remaining == 0
		decision.Remaining = max(decision.Remaining-1, 0)
		return over, decision, err
	}
	if decision, err = a.family.RefundWith(ctx, a.next, a.key, -a.n); err != nil {
		// Nothing is admitted in any case.
		err = ctx.Err()
	}
	return true, decision, err
}

func (a *ask) countedHits(over bool, decision policy.Decision) {
	count := int64(a.Requests)
	if a.exact != nil && !over {
		count = a.exact.Limit() - decision.Remaining
	}
	a.counted(over, count, decision.ResetAfter)
}
