package envoyserver

import (
	"context"
	"time"

	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/ral-limiter/ral/cmd/rald/internal/rules"
	"github.com/ral-limiter/ral/internal/core/whole"
	"github.com/ral-limiter/ral/policy"
	"google.golang.org/protobuf/types/known/durationpb"
)

type ask struct {
	// held is nil if no limit applies.
	*held
	// key is for its hits.
	key string
	// n is the hits, from 0 on.
	n int64
	// refund gives the hits back.
	refund bool
	// free means that the rule is unlimited.
	free   bool
	status *pb.RateLimitResponse_DescriptorStatus

	// group has the indexes of the asks for the rule's limits. Those for further limits follow the
	// asks of all descriptors. It is nil with a single limit.
	group []int
	// further means that this is an ask for a further limit of asks[main].
	further bool
	main    int
	// tried means that its hits are counted in metrics.
	tried bool
}

func (a *ask) isHeld() bool { return a.held != nil && !a.free }

// isQuota reports whether the descriptor is in quota mode: one such descriptor with room admits the
// request, unless another limit refuses. With all in quota mode, a descriptor without a limit always
// has room.
func (a *ask) isQuota(all bool) bool { return !a.free && (all || a.held != nil && a.quota) }

// passed reports whether the descriptor is within its limit, or the limit is in shadow mode. It must
// have been decided.
func (a *ask) passed() bool { return a.status.Code != pb.RateLimitResponse_OVER_LIMIT }

// takes reports whether the ask takes hits, in shadow too.
func (a *ask) takes() bool { return a.n > 0 && !a.refund }

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
	a.report(!decision.Allowed, clip(decision.Remaining), &durationpb.Duration{Seconds: whole.Up(until, time.Second)})
}

func (a *ask) decidedExactly(decision policy.Decision) {
	if a.window == nil {
		a.decided(decision)
		return
	}
	a.report(!decision.Allowed, clip(decision.Remaining), untilReset(a.Unit, decision.ResetAfter))
}

func (a *ask) report(over bool, remaining uint32, until *durationpb.Duration) {
	a.status = &pb.RateLimitResponse_DescriptorStatus{
		Code: pb.RateLimitResponse_OK, CurrentLimit: a.shown, LimitRemaining: remaining, DurationUntilReset: until,
	}
	if over && !a.Shadow {
		a.status.Code = pb.RateLimitResponse_OVER_LIMIT
	}
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
		if decision, err := a.candidate.TakeWith(ctx, a.Candidate, candidateKey(a.key), a.n); err == nil {
			would = decision.Allowed
		}
	}
	a.counts.count(passed, would)
}

// untilReset returns the time left in a window of the unit, by the wall clock if nothing counted.
func untilReset(unit rules.Unit, left time.Duration) *durationpb.Duration {
	if left > 0 {
		return &durationpb.Duration{Seconds: whole.Up(left, time.Second)}
	}
	length := int64(unit.Length() / time.Second)
	return &durationpb.Duration{Seconds: length - time.Now().Unix()%length}
}
