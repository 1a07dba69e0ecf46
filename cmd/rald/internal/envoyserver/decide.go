package envoyserver

import (
	"context"
	"slices"
	"time"

	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/ral-limiter/ral/cmd/rald/internal/families"
	"github.com/ral-limiter/ral/policy"
)

func (a *ask) isHeld() bool { return a.held != nil && !a.free }

// isQuota reports whether the descriptor is in quota mode: one such descriptor with room admits the
// request, unless another limit refuses. With all in quota mode, a descriptor without a limit always
// has room.
func (a *ask) isQuota(all bool) bool { return !a.free && (all || a.held != nil && a.quota) }

// passed reports whether the descriptor is within its limit, or the limit is in shadow mode. It must
// have been decided.
func (a *ask) passed() bool { return a.status.Code != pb.RateLimitResponse_OVER_LIMIT }

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

// takes reports whether the ask takes hits, in shadow too.
func (a *ask) takes() bool { return a.n > 0 && !a.refund }

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
	switch {
	case a.refund:
		return a.giveBack(ctx)
	case a.window != nil:
		return a.countHits(ctx)
	default:
		decision, err := a.family.TakeWith(ctx, a.exact, a.key, a.n)
		if err != nil {
			return err
		}
		a.try(ctx, decision.Allowed)
		a.decided(decision)
	}
	return nil
}

// try counts the verdict on the hits in the rule's metrics, once, beside the verdict of the rule's
// candidate. It takes the hits from the candidate.
func (a *ask) try(ctx context.Context, passed bool) {
	if a.n == 0 || a.tried {
		return
	}
	a.tried = true
	would := passed
	if a.candidate != nil {
		// A candidate that cannot decide does not matter.
		if d, err := a.candidate.TakeWith(ctx, a.Candidate, candidateKey(a.key), a.n); err == nil {
			would = d.Allowed
		}
	}
	a.counts.count(passed, would)
}

// giveBack gives back the hits of the present window, or those that still count.
func (a *ask) giveBack(ctx context.Context) error {
	if a.counts != nil {
		a.counts.Returned.Add(uint64(a.n))
	}
	if a.candidate != nil {
		_, _ = a.candidate.RefundWith(ctx, a.Candidate, candidateKey(a.key), a.n)
	}
	if a.window != nil {
		return a.giveHitsBack(ctx)
	}
	decision, err := a.family.RefundWith(ctx, a.exact, a.key, a.n)
	if err != nil {
		return err
	}
	decision.Allowed = true
	a.decided(decision)
	return nil
}

func (a *ask) counted(over bool, count int64, ends time.Duration) {
	a.report(over, clip(int64(a.Requests)-count), untilReset(a.Unit, ends))
}

// decided sets the status by a decision. A refusal reports when the call would pass. If it never
// would, the status has the limit's window, since the reference never reports 0 and clients would
// retry at once.
func (a *ask) decided(decision policy.Decision) {
	until := decision.ResetAfter
	switch limit, ok := a.exact.(policy.Windowed); {
	case decision.Allowed:
	case decision.RetryAfter < policy.Never:
		until = decision.RetryAfter
	case ok:
		until = max(until, limit.Window())
	}
	a.report(!decision.Allowed, clip(decision.Remaining), &durationpb.Duration{Seconds: seconds(until)})
}

func (a *ask) report(over bool, remaining uint32, until *durationpb.Duration) {
	a.status = &pb.RateLimitResponse_DescriptorStatus{
		Code: pb.RateLimitResponse_OK, CurrentLimit: a.shown, LimitRemaining: remaining, DurationUntilReset: until,
	}
	if over && !a.Shadow {
		a.status.Code = pb.RateLimitResponse_OVER_LIMIT
	}
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
		a := &asks[at]
		claims[i] = families.Claim{Family: a.family, Limit: a.exact, Key: a.key, N: a.n}
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

func (a *ask) decidedExactly(decision policy.Decision) {
	if a.window == nil {
		a.decided(decision)
		return
	}
	a.report(!decision.Allowed, clip(decision.Remaining), untilReset(a.Unit, decision.ResetAfter))
}
