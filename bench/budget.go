package bench

import (
	"context"
	"time"
)

// budget keeps a run within its time. Costs are estimates; pace tells how far they are off.
type budget struct {
	// most is 0 for no bound.
	most time.Duration
	// done is the cost of the steps that were carried out.
	done time.Duration
	// later are the costs of the workloads that come later.
	later []cost
}

// cost is the estimated time of a workload: until its first round is over, and of each later round.
type cost struct {
	first, round time.Duration
	rounds       int
	isLong       bool
}

// until returns the time until so many rounds are over, or all if there are fewer.
func (c cost) until(rounds int) time.Duration {
	return c.first + c.round*time.Duration(max(min(rounds, c.rounds)-1, 0))
}

func (s *schedule) cost() cost {
	c := cost{rounds: s.Rounds, isLong: s.isLong()}
	for _, step := range s.steps() {
		switch {
		case step.round <= 1:
			c.first += step.cost
		case step.round == 2:
			c.round += step.cost
		}
	}
	return c
}

// margin is the part of the time that estimates leave alone, as later workloads may differ in pace.
const margin = 0.05

// fits reports whether each later workload can have so many rounds after work of this cost. So a
// workload has no round that others lack the time for.
func (b budget) fits(elapsed, next time.Duration, rounds int) bool {
	for _, cost := range b.later {
		next += cost.until(rounds)
	}
	return b.most == 0 || float64(elapsed)+b.pace(elapsed)*float64(next) <= (1-margin)*float64(b.most)
}

// pace is the time passed as a multiple of its estimate, at least 1.
func (b budget) pace(elapsed time.Duration) float64 {
	if b.done == 0 {
		return 1
	}
	return max(float64(elapsed)/float64(b.done), 1)
}

// share returns the most time for a workload that begins now. Later workloads keep the time of
// their first rounds by estimate and pace, or a proportional part. A long workload takes none from brief
// ones, which have the audits.
func (b budget) share(elapsed time.Duration, now cost) time.Duration {
	others := time.Duration(0)
	for _, cost := range b.later {
		if now.isLong || !cost.isLong {
			others += cost.first
		}
	}
	left := float64(max(b.most-elapsed, 0))
	part := left * float64(now.first) / float64(max(now.first+others, 1))
	return time.Duration(max(left-b.pace(elapsed)*float64(others), part))
}

func (b budget) bound(ctx context.Context, elapsed time.Duration, now cost) (context.Context, context.CancelFunc) {
	if b.most == 0 {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, b.share(elapsed, now))
}
