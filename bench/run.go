package bench

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime"
	"time"
)

// Run makes the contenders do the workloads until done or the context ends, which is no error. With
// an error, the report holds the measurements before it.
//
// Run needs the machine for itself: one run at a time. It may set GOMAXPROCS, and restores it.
func Run(ctx context.Context, workloads []Workload, contenders []Contender, o Options) (Report, error) {
	o, err := o.complete()
	if err != nil {
		return Report{}, err
	}
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(0))

	r := runner{Options: o, workers: workers{ctx: ctx, epoch: time.Now(), busy: o.busy}, budget: budget{most: o.Budget}}
	schedules, total := plan(workloads, contenders, r.workers, o)
	for _, s := range schedules {
		r.budget.later = append(r.budget.later, s.cost())
	}
	_, _, r.report.Watched = o.busy()
	for i, s := range schedules {
		if ctx.Err() != nil || r.failure != nil {
			break
		}
		r.follow(s, total)
		// The keys can then be collected.
		schedules[i] = nil
	}
	r.tell(Progress{Total: total})
	r.report.Interrupted = ctx.Err() != nil
	r.report.Took = time.Since(r.epoch)
	return r.report, r.failure
}

// Estimate returns the rough time of a run on a quiet machine, ignoring the budget.
func Estimate(workloads []Workload, contenders []Contender, o Options) time.Duration {
	o, err := o.complete()
	if err != nil {
		return 0
	}
	_, total := plan(workloads, contenders, workers{}, o)
	return total
}

func plan(workloads []Workload, contenders []Contender, c workers, o Options) (schedules []*schedule, total time.Duration) {
	for _, w := range workloads {
		cpus := o.CPUs
		if w.Draw == DrawElsewhere {
			cpus = cpus[len(cpus)-1:]
		}
		for _, cpu := range cpus {
			next := newSchedule(w, cpu, contenders, c, o)
			schedules = append(schedules, next)
			for _, s := range next.steps() {
				total += s.cost
			}
		}
	}
	return schedules, total
}

func newSchedule(w Workload, cpu int, contenders []Contender, c workers, o Options) *schedule {
	w.Callers, w.Rounds, w.Draw = cmp.Or(w.Callers, o.Callers, cpu), cmp.Or(w.Rounds, o.Rounds), cmp.Or(w.Draw, DrawUniform)
	o.Duration = cmp.Or(w.Duration, o.Duration)
	if w.AuditOnly {
		o.NewRecorder = nil
	}
	s := &schedule{Workload: w, workers: c, cpu: cpu, o: o}
	for _, contender := range contenders {
		if contender.can(w) {
			s.turns = append(s.turns, &turn{
				Result:    Result{Contender: contender, Apart: w.Apart, Outside: contender.Measure != nil},
				recorders: newRecorders(w.Callers, o.NewRecorder),
				known:     newRecorders(min(w.Known, 1), o.NewRecorder),
			})
		}
	}
	return s
}

type runner struct {
	Options
	workers
	budget  budget
	report  Report
	failure error
}

func (r *runner) tell(p Progress) {
	if r.Progress != nil {
		r.Progress(p)
	}
}

func (r *runner) follow(plan *schedule, total time.Duration) {
	runtime.GOMAXPROCS(plan.cpu)
	now := r.budget.later[0]
	r.budget.later = r.budget.later[1:]
	var spared []string
	if !r.budget.fits(time.Since(r.epoch), now.until(allRounds), allRounds) {
		spared = plan.dropSpare()
		now.spare = 0
	}
	ctx, cancel := r.budget.bound(r.ctx, time.Since(r.epoch), now)
	defer cancel()
	if plan.Draw != DrawElsewhere {
		plan.ctx = ctx
	}
	late := false
	for _, s := range plan.steps() {
		if r.ctx.Err() != nil || r.failure != nil {
			break
		}
		late = late || s.first && !r.budget.fits(time.Since(r.epoch), now.round, s.round)
		if late && s.round > 1 || plan.ctx.Err() != nil {
			continue
		}
		r.tell(Progress{plan.Name, plan.cpu, s.contender, s.round, total})
		if err := s.do(); err != nil {
			r.failure = fmt.Errorf("bench: workload %s, %s: %w", plan.Name, s.contender, err)
		}
		r.budget.done += s.cost
	}
	result, err := plan.finish()
	if err != nil {
		r.failure = errors.Join(r.failure, fmt.Errorf("bench: workload %s: %w", plan.Name, err))
	}
	if names := append(spared, plan.unmeasured()...); len(names) > 0 && r.ctx.Err() == nil && r.failure == nil {
		r.report.LeftOut = append(r.report.LeftOut, LeftOut{Workload: plan.Name, CPU: plan.cpu, Contenders: names})
	}
	if len(result.Results) > 0 {
		r.report.Workloads = append(r.report.Workloads, result)
		if r.Finished != nil {
			r.Finished(result)
		}
	}
}
