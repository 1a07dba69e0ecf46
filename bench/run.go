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
func Run(ctx context.Context, workloads []Workload, contenders []Contender, options Options) (Report, error) {
	options, err := options.complete()
	if err != nil {
		return Report{}, err
	}
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(0))

	r := runner{Options: options, workers: workers{ctx: ctx, epoch: time.Now(), busy: options.busy}, budget: budget{most: options.Budget}}
	schedules, total := plan(workloads, contenders, r.workers, options)
	for _, schedule := range schedules {
		r.budget.later = append(r.budget.later, schedule.cost())
	}
	_, _, r.report.Watched = options.busy()
	for i, schedule := range schedules {
		if ctx.Err() != nil || r.failure != nil {
			break
		}
		r.follow(schedule, total)
		// The keys can then be collected.
		schedules[i] = nil
	}
	r.tell(Progress{Total: total})
	r.report.Interrupted = ctx.Err() != nil
	r.report.Took = time.Since(r.epoch)
	return r.report, r.failure
}

func plan(workloads []Workload, contenders []Contender, workers workers, options Options) (schedules []*schedule, total time.Duration) {
	for _, workload := range workloads {
		cpus := options.CPUs
		if workload.Draw == DrawElsewhere {
			cpus = cpus[len(cpus)-1:]
		}
		for _, cpu := range cpus {
			next := newSchedule(workload, cpu, contenders, workers, options)
			schedules = append(schedules, next)
			for _, step := range next.steps() {
				total += step.cost
			}
		}
	}
	return schedules, total
}

func newSchedule(workload Workload, cpu int, contenders []Contender, workers workers, options Options) *schedule {
	workload.Callers, workload.Rounds, workload.Draw = cmp.Or(workload.Callers, options.Callers, cpu), cmp.Or(workload.Rounds, options.Rounds), cmp.Or(workload.Draw, DrawUniform)
	options.Duration = cmp.Or(workload.Duration, options.Duration)
	if workload.AuditOnly {
		options.NewRecorder = nil
	}
	s := &schedule{Workload: workload, workers: workers, cpu: cpu, o: options}
	for _, contender := range contenders {
		if contender.can(workload) {
			s.turns = append(s.turns, &turn{
				Result:    Result{Contender: contender, Apart: workload.Apart, Outside: contender.Measure != nil},
				recorders: newRecorders(workload.Callers, options.NewRecorder),
				known:     newRecorders(min(workload.Known, 1), options.NewRecorder),
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

func (r *runner) tell(progress Progress) {
	if r.Progress != nil {
		r.Progress(progress)
	}
}

func (r *runner) follow(plan *schedule, total time.Duration) {
	runtime.GOMAXPROCS(plan.cpu)
	now := r.budget.later[0]
	r.budget.later = r.budget.later[1:]
	ctx, cancel := r.budget.bound(r.ctx, time.Since(r.epoch), now)
	defer cancel()
	if plan.Draw != DrawElsewhere {
		plan.ctx = ctx
	}
	late := false
	for _, step := range plan.steps() {
		if r.ctx.Err() != nil || r.failure != nil {
			break
		}
		late = late || step.first && !r.budget.fits(time.Since(r.epoch), now.round, step.round)
		if late && step.round > 1 || plan.ctx.Err() != nil {
			continue
		}
		r.tell(Progress{plan.Name, plan.cpu, step.contender, step.round, total})
		if err := step.do(); err != nil {
			r.failure = fmt.Errorf("bench: workload %s, %s: %w", plan.Name, step.contender, err)
		}
		r.budget.done += step.cost
	}
	result, err := plan.finish()
	if err != nil {
		r.failure = errors.Join(r.failure, fmt.Errorf("bench: workload %s: %w", plan.Name, err))
	}
	if names := plan.unmeasured(); len(names) > 0 && r.ctx.Err() == nil && r.failure == nil {
		r.report.LeftOut = append(r.report.LeftOut, LeftOut{Workload: plan.Name, CPU: plan.cpu, Contenders: names})
	}
	if len(result.Results) > 0 {
		r.report.Workloads = append(r.report.Workloads, result)
	}
}
