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
	r.progress.Total = total
	for _, s := range schedules {
		r.budget.later = append(r.budget.later, s.cost())
	}
	_, _, r.report.Watched = o.busy()
	for i, s := range schedules {
		if ctx.Err() != nil || r.failure != nil {
			break
		}
		r.follow(s)
		schedules[i] = nil // frees the keys
	}
	r.progress = Progress{Doing: "done", Done: r.progress.Done, Total: r.progress.Total}
	r.tell()
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
	if w.Callers == 0 {
		w.Callers = o.Callers
	}
	if w.Callers == 0 {
		w.Callers = cpu
	}
	if w.Rounds == 0 {
		w.Rounds = o.Rounds
	}
	if w.Duration > 0 {
		o.Duration = w.Duration
	}
	if w.AuditOnly {
		o.NewRecorder = nil
	}
	w.Draw = cmp.Or(w.Draw, DrawUniform)
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
	budget   budget
	progress Progress
	report   Report
	failure  error
}

func (r *runner) tell() {
	if r.Progress != nil {
		r.Progress(r.progress)
	}
}

func (r *runner) follow(plan *schedule) {
	r.progress.Workload, r.progress.CPU = plan.Name, plan.cpu
	runtime.GOMAXPROCS(plan.cpu)
	now := r.budget.later[0]
	r.budget.later = r.budget.later[1:]
	var spared []string
	if !r.budget.fits(time.Since(r.epoch), now.until(allRounds), allRounds) {
		spared = plan.dropSpare()
		r.progress.Done += now.spare
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
		late = late || s.first && !r.budget.fits(time.Since(r.epoch), now.round, s.round+1)
		if late && s.round > 0 || plan.ctx.Err() != nil {
			r.progress.Done += s.cost
			continue
		}
		r.progress.Contender, r.progress.Doing = s.contender, s.doing
		r.tell()
		if err := s.do(); err != nil {
			r.failure = fmt.Errorf("bench: workload %s, %s: %w", plan.Name, s.contender, err)
		}
		r.progress.Done += s.cost
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
