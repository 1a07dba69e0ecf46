package envoydoor

import (
	"context"
	"time"

	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/ral-limiter/ral/limits"
	"github.com/ral-limiter/ral/policy"
)

// isHeld reports whether there is a limit to ask.
func (a *ask) isHeld() bool { return a.held != nil && !a.free }

// decide asks one limit by itself. A rule of requests per unit counts the hits whether they are
// over it or not. A limit of package policy counts none of those that it refuses.
func (a *ask) decide() {
	switch {
	case !a.isHeld():
	case a.refund:
		a.giveBack()
	case a.tally != nil:
		count, ends := a.tally.add(a.key, a.n)
		over := count > int64(a.Requests)
		a.try(!over)
		a.counted(over, count, ends)
	default:
		d := a.space.TakeWith(a.exact, a.key, a.n)
		a.try(d.Allowed)
		a.decided(d)
	}
}

// try asks the candidate, if there is one, and counts what it and the limit said.
func (a *ask) try(passed bool) {
	if a.n == 0 {
		return
	}
	tried := a.candidate != nil
	a.counts.count(passed, tried, tried && a.candidate.TakeWith(a.Candidate, candidateKey(a.key), a.n).Allowed)
}

// giveBack gives hits of the present window back, or what else of them still counts.
func (a *ask) giveBack() {
	if a.candidate != nil {
		a.candidate.RefundWith(a.Candidate, candidateKey(a.key), a.n)
	}
	if a.tally != nil {
		count, ends := a.tally.undo(a.key, a.n)
		a.counted(false, count, ends)
		return
	}
	d := a.space.RefundWith(a.exact, a.key, a.n)
	d.Allowed = true
	a.decided(d)
}

// counted sets the status of a rule of requests per unit.
func (a *ask) counted(over bool, count int64, ends time.Duration) {
	a.report(over, clip(int64(a.Requests)-count), untilReset(a.Unit, ends))
}

// decided sets the status by a decision. The time until a refused call would pass is reported
// rather than that until the key is as good as new.
func (a *ask) decided(d policy.Decision) {
	until := d.ResetAfter
	if !d.Allowed && d.RetryAfter < policy.Never {
		until = d.RetryAfter
	}
	a.report(!d.Allowed, clip(d.Remaining), &durationpb.Duration{Seconds: seconds(until)})
}

func (a *ask) report(over bool, remaining uint32, until *durationpb.Duration) {
	a.status = &pb.RateLimitResponse_DescriptorStatus{
		Code: pb.RateLimitResponse_OK, CurrentLimit: a.shown, LimitRemaining: remaining, DurationUntilReset: until,
	}
	if over && !a.Shadow {
		a.status.Code = pb.RateLimitResponse_OVER_LIMIT
	}
}

// decideTogether takes from the limits of all descriptors, or from none. Rules in shadow and in
// quota mode refuse no request: they are asked, each by itself, if the others admit it.
func decideTogether(ctx context.Context, asks []ask) error {
	claims := make([]limits.Claim, 0, len(asks))
	at := make([]int, 0, len(asks)) // of the claims, in asks
	never := false
	for i := range asks {
		a := &asks[i]
		switch {
		case !a.isHeld() || a.refund || a.n == 0 || a.Shadow || a.Quota:
		case a.exact == nil:
			never = true
		default:
			claims, at = append(claims, limits.For(a.space, limits.Call[string]{Key: a.key, N: a.n, Limit: a.exact})), append(at, i)
		}
	}
	if never {
		claims = claims[:0]
	}
	outcome, err := limits.AskAll(ctx, 0, claims...)
	if err != nil {
		return status.FromContextError(err).Err()
	}
	admitted := outcome.Allowed && !never
	for i := range claims {
		if answer := outcome.Answers[i]; admitted || !answer.Allowed {
			a := &asks[at[i]]
			a.try(answer.Allowed)
			a.decidedExactly(answer.Decision)
		}
	}
	for i := range asks {
		if a := &asks[i]; a.isHeld() && a.status == nil {
			a.decideBeside(admitted)
		}
	}
	return nil
}

// decideBeside decides on a descriptor of which the limit has not decided on the request. One
// that was not admitted only looks.
func (a *ask) decideBeside(admitted bool) {
	switch {
	case a.refund:
		a.giveBack()
	case a.exact == nil:
		if a.n > 0 {
			a.try(false)
		}
		a.counted(a.n > 0, 0, 0)
	case !admitted:
		a.decidedExactly(a.space.TakeWith(a.exact, a.key, 0))
	default:
		d := a.space.TakeWith(a.exact, a.key, a.n)
		a.try(d.Allowed)
		a.decidedExactly(d)
	}
}

// decidedExactly sets the status by the decision of an exact limit.
func (a *ask) decidedExactly(d policy.Decision) {
	if a.tally == nil {
		a.decided(d)
		return
	}
	a.report(!d.Allowed, clip(d.Remaining), untilReset(a.Unit, d.ResetAfter))
}
