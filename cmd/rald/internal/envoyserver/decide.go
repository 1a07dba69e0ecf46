package envoyserver

import (
	"context"
	"slices"

	"github.com/ral-limiter/ral/cmd/rald/internal/families"
)

func decide(ctx context.Context, asks []ask) error {
	for i := range asks {
		var err error
		switch ask := &asks[i]; {
		case !ask.isHeld() || ask.status != nil:
		case ask.group != nil && ask.takes():
			err = takeGroup(ctx, asks, ask.group)
		default:
			err = ask.decide(ctx)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// takeGroup decides on a descriptor's limits, all or none.
func takeGroup(ctx context.Context, asks []ask, group []int) error {
	admitted, err := take(ctx, asks, group)
	for _, i := range group {
		if err == nil && asks[i].status == nil {
			err = asks[i].decideBeside(ctx, admitted)
		}
	}
	return err
}

// decide asks a single limit. A rule of requests per unit counts all hits, others no refused hits.
func (a *ask) decide(ctx context.Context) error {
	if a.window != nil && !a.refund {
		return a.countHits(ctx)
	}
	return a.decideBeside(ctx, true)
}

// giveBack gives back the hits of the present window, or those that still count.
func (a *ask) giveBack(ctx context.Context) error {
	if a.counts != nil {
		a.counts.Returned.Add(uint64(a.n))
	}
	if a.candidate != nil {
		_, _ = a.candidate.RefundWith(ctx, a.Candidate, candidateKey(a.key), a.n)
	}
	limit := a.exact
	if limit == nil {
		limit = a.next
	}
	decision, err := a.family.RefundWith(ctx, limit, a.key, a.n)
	switch {
	case err != nil:
	case a.window != nil:
		a.countedHits(false, decision)
	default:
		decision.Allowed = true
		a.decided(decision)
	}
	return err
}

// decideTogether takes from the limits of all descriptors, or from none. If there are quotas, it needs
// one with room, and takes from the first one that has. The other quotas, and the rules in shadow,
// refuse no request: each is asked separately afterwards, and only takes if the request is admitted.
func decideTogether(ctx context.Context, asks []ask, allQuota bool) (err error) {
	// limits are indexes of asks.
	var limits []int
	// quotas are such indexes, each with its further limits.
	var quotas [][]int
	never, needsQuota, hasQuota := false, false, false
	for i := range asks {
		ask := &asks[i]
		if ask.further {
			continue
		}
		group := ask.group
		if group == nil {
			group = []int{i}
		}
		isQuota := ask.isQuota(allQuota)
		needsQuota = needsQuota || isQuota
		switch {
		case !ask.isHeld() || ask.refund || ask.Shadow:
			hasQuota = hasQuota || isQuota
		case ask.n == 0:
			passed := isQuota
			for _, j := range group {
				if err := asks[j].decideBeside(ctx, false); err != nil {
					return err
				}
				passed = passed && asks[j].passed()
			}
			hasQuota = hasQuota || passed
		case ask.exact == nil:
			never = never || !isQuota
		case isQuota:
			quotas = append(quotas, group)
		default:
			limits = append(limits, group...)
		}
	}
	decided := func(these []int) bool {
		return slices.ContainsFunc(these, func(i int) bool { return asks[i].status != nil })
	}
	admitted := false
	switch {
	case never:
	case needsQuota && !hasQuota:
		for _, quota := range quotas {
			if admitted, err = take(ctx, asks, slices.Concat(limits, quota)); err != nil {
				return err
			}
			if admitted || decided(limits) || !decided(quota) {
				// Another quota would not help.
				break
			}
		}
	default:
		if admitted, err = take(ctx, asks, limits); err != nil {
			return err
		}
	}
	for i := range asks {
		switch ask := &asks[i]; {
		case !ask.isHeld() || ask.status != nil:
		case ask.group == nil || !ask.takes():
			err = ask.decideBeside(ctx, admitted)
		case admitted && !decided(ask.group):
			err = takeGroup(ctx, asks, ask.group)
		default:
			err = ask.decideBeside(ctx, false)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// take takes from all of these limits or from none, and decides on them, or on those that refuse.
func take(ctx context.Context, asks []ask, these []int) (admitted bool, err error) {
	claims := make([]families.Claim, len(these))
	for i, at := range these {
		ask := &asks[at]
		claims[i] = families.Claim{Family: ask.family, Limit: ask.exact, Key: ask.key, N: ask.n}
	}
	outcome, err := families.TakeAll(ctx, claims...)
	if err != nil {
		return false, err
	}
	for i, at := range these {
		if answer := outcome.Answers[i]; outcome.Allowed || !answer.Allowed {
			ask := &asks[at]
			ask.decidedExactly(answer.Decision)
			if ask.further {
				ask = &asks[ask.main]
			}
			ask.try(ctx, answer.Allowed)
		}
	}
	return outcome.Allowed, nil
}

// decideBeside decides on a descriptor that did not take part. After a refusal it only looks.
func (a *ask) decideBeside(ctx context.Context, admitted bool) error {
	switch {
	case a.refund:
		return a.giveBack(ctx)
	case a.exact == nil:
		if a.n > 0 {
			a.try(ctx, false)
		}
		a.counted(a.n > 0, 0, 0)
		return nil
	}
	n := a.n
	if !admitted {
		n = 0
	}
	decision, err := a.family.TakeWith(ctx, a.exact, a.key, n)
	if err != nil {
		return err
	}
	if admitted {
		a.try(ctx, decision.Allowed)
	}
	a.decidedExactly(decision)
	return nil
}
