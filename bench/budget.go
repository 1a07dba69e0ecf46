package bench

import (
	"context"
	"time"
)

// budget keeps a run within its time. Costs are estimates; pace tells how far they are off.
type budget struct {
	most  time.Duration // 0 for no bound
	later time.Duration // cost of the first rounds of the workloads that come later
	brief time.Duration // the part of later that is not of long workloads
	done  time.Duration // cost of the steps that were carried out
}

// grace is the delay that is not yet late: the first steps are too short to tell.
const grace = time.Second

// isLate reports whether a round whose first step has this cost begins too late. It is behind its
// part of the run, or the pace leaves too little time for the first rounds of later workloads.
func (b budget) isLate(elapsed time.Duration, progress Progress, cost time.Duration) bool {
	if b.most == 0 {
		return false
	}
	due := float64(b.most) * float64(progress.Done+cost) / float64(progress.Total)
	late := float64(elapsed) > due+float64(min(b.most/50, grace))
	return late || float64(elapsed)+b.pace(elapsed)*float64(cost+b.later) > float64(b.most)
}

// pace is the time passed as a multiple of its estimate, at least 1.
func (b budget) pace(elapsed time.Duration) float64 {
	if b.done == 0 {
		return 1
	}
	return max(float64(elapsed)/float64(b.done), 1)
}

func (b *budget) add(first time.Duration, long bool) {
	b.later += first
	if !long {
		b.brief += first
	}
}

// share returns the most time for a workload that begins now and whose first round has this cost.
// Later workloads keep the time of their first rounds by estimate, or a proportional part. A long
// workload takes none from brief ones, which have the audits.
func (b budget) share(elapsed, first time.Duration, long bool) time.Duration {
	others := b.brief
	if long {
		others = b.later
	}
	left := max(b.most-elapsed, 0)
	part := float64(left) * float64(first) / float64(max(first+others, 1))
	return max(left-others, time.Duration(part))
}

func (b budget) bound(ctx context.Context, elapsed, first time.Duration, long bool) (context.Context, context.CancelFunc) {
	if b.most == 0 {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, b.share(elapsed, first, long))
}

// firstCost returns the estimated cost of a schedule without optional rounds.
func firstCost(s *schedule) (cost time.Duration) {
	for _, step := range s.steps() {
		if step.round == 0 {
			cost += step.cost
		}
	}
	return cost
}
