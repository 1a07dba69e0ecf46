package bench

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"time"
)

// Options say how to measure. All fields but Duration and Rounds may be left
// zero.
type Options struct {
	// Duration is how long a contender is asked in each round, in the workloads
	// that do not end by themselves. Passes that time single calls last half of
	// it.
	Duration time.Duration
	// Rounds is how many rounds there are, for workloads that do not say.
	Rounds int
	// CPUs are the values of GOMAXPROCS to measure with, one after the other in
	// each workload. Empty leaves it as it is.
	CPUs []int
	// Callers is how many goroutines ask at once, for workloads that do not say;
	// 0 is for as many as GOMAXPROCS.
	Callers int
	// Budget is how long the whole run should take at the most; 0 is for as long
	// as it takes. Rounds after the first are left out of a workload when the run
	// is late by it. The first rounds are not, so it may still be exceeded.
	// Disturbed passes are done again as long as the run is not late.
	Budget time.Duration
	// NewRecorder makes what keeps latencies. Nil leaves them unmeasured.
	NewRecorder func() Recorder
	// Progress, if not nil, is told before each step what it will be, and at the
	// end. The clock does not run while it is called.
	Progress func(Progress)
	// Finished, if not nil, is told what came of each workload.
	Finished func(WorkloadReport)

	busy busyTime // for tests; nil is for what the machine tells
}

// Progress says how far a run has come.
type Progress struct {
	Workload  string
	CPU       int    // GOMAXPROCS
	Contender string // empty if the step is about none
	Doing     string
	// Done of Total is behind us, both by estimate.
	Done, Total time.Duration
}

// Run lets the contenders do the workloads, and returns when they are done or
// the context has ended. The report is of use even if there is an error: it has
// what was measured before. That the context ended is no error.
//
// Run wants the machine for itself; run one at a time. It sets GOMAXPROCS if the
// options say so, and sets it back.
func Run(ctx context.Context, workloads []Workload, contenders []Contender, o Options) (Report, error) {
	o, err := o.complete()
	if err != nil {
		return Report{}, err
	}
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(0))

	r := runner{Options: o, crew: crew{ctx: ctx, epoch: time.Now(), busy: o.busy}}
	courses, total := plan(workloads, contenders, r.crew, o)
	r.at.Total = total
	_, _, r.report.Watched = o.busy()
	for i, c := range courses {
		if ctx.Err() != nil || r.failure != nil {
			break
		}
		r.take(c)
		courses[i] = nil // frees the keys
	}
	r.at = Progress{Doing: "done", Done: r.at.Done, Total: r.at.Total}
	r.tell()
	r.report.Interrupted = ctx.Err() != nil
	r.report.Took = time.Since(r.epoch)
	return r.report, r.failure
}

// Estimate returns how long a run would take on a quiet machine, roughly and
// whatever the budget is.
func Estimate(workloads []Workload, contenders []Contender, o Options) time.Duration {
	o, err := o.complete()
	if err != nil {
		return 0
	}
	_, total := plan(workloads, contenders, crew{}, o)
	return total
}

// plan returns the courses of a run, and what they cost by estimate.
func plan(workloads []Workload, contenders []Contender, c crew, o Options) (courses []course, total time.Duration) {
	for _, w := range workloads {
		for _, cpu := range o.CPUs {
			course := newCourse(w, cpu, contenders, c, o)
			courses = append(courses, course)
			for _, s := range course.steps() {
				total += s.cost
			}
		}
	}
	return courses, total
}

// complete checks the options and fills in what was left zero.
func (o Options) complete() (Options, error) {
	if o.Duration <= 0 || o.Rounds < 1 || o.Callers < 0 {
		return o, fmt.Errorf("bench: Duration, Rounds and Callers are %v, %d and %d, but must be positive", o.Duration, o.Rounds, o.Callers)
	}
	if len(o.CPUs) == 0 {
		o.CPUs = []int{runtime.GOMAXPROCS(0)}
	}
	for _, cpu := range o.CPUs {
		if cpu < 1 {
			return o, fmt.Errorf("bench: CPUs are %v, but must be positive", o.CPUs)
		}
	}
	if o.busy == nil {
		o.busy = machineBusy
	}
	return o, nil
}

// runner is a run that goes on.
type runner struct {
	Options
	crew
	at       Progress
	repeated time.Duration // what was spent on doing passes again, by estimate
	futile   int           // how many were disturbed again, since the last pass that was not
	report   Report
	failure  error
}

func (r *runner) tell() {
	if r.Progress != nil {
		r.Progress(r.at)
	}
}

// take takes a course from its beginning to its end, or to that of the run.
func (r *runner) take(c course) {
	w := c.about()
	r.at.Workload, r.at.CPU = w.Name, w.CPU
	runtime.GOMAXPROCS(w.CPU)
	late := false
	for _, s := range c.steps() {
		if r.ctx.Err() != nil || r.failure != nil {
			break
		}
		if late = late || s.first && r.late(time.Since(r.epoch), r.at, s.cost); late && s.round > 0 {
			r.at.Done += s.cost
			continue
		}
		r.at.Contender, r.at.Doing = s.contender, s.doing
		r.tell()
		r.do(s)
		r.at.Done += s.cost
	}
	result, err := c.finish()
	if err != nil {
		r.failure = errors.Join(r.failure, fmt.Errorf("bench: workload %s: %w", w.Name, err))
	}
	if len(result.Results) > 0 {
		r.report.Workloads = append(r.report.Workloads, result)
		if r.Finished != nil {
			r.Finished(result)
		}
	}
}

// do does a step, and does it again while other load disturbs it and there is
// time.
func (r *runner) do(s step) {
	disturbed, err := s.do(false)
	if s.watched && !disturbed {
		r.futile = 0
	}
	for again := 0; again < mostRepeats && disturbed && err == nil && r.mayRepeat(s.cost); again++ {
		r.repeated += s.cost
		r.futile++
		if disturbed, err = s.do(true); !disturbed {
			r.futile = 0
		}
	}
	if err != nil {
		r.failure = fmt.Errorf("bench: workload %s, %s: %w", r.at.Workload, s.contender, err)
	}
}

// How much may be done again: each pass so often, and in all this share of the
// run. On a machine that stays busy it is of no use: after so many in a row that
// did not help, nothing is done again until a pass is undisturbed by itself.
const (
	mostRepeats = 2
	repeatShare = 0.25
	fairTrial   = 8
)

func (r *runner) mayRepeat(cost time.Duration) bool {
	return r.futile < fairTrial && r.ctx.Err() == nil &&
		float64(r.repeated+cost) <= repeatShare*float64(r.at.Total) &&
		!r.late(time.Since(r.epoch), r.at, cost)
}

// course is a workload as it is carried out: some steps, of which the last ones
// may be left out, and an end.
type course interface {
	about() WorkloadReport // without results
	steps() []step
	finish() (WorkloadReport, error)
}

type step struct {
	contender, doing string
	cost             time.Duration // by estimate
	// do tells whether other load disturbed it so much that it had better be done
	// again.
	do      func(again bool) (disturbed bool, err error)
	watched bool // do tells the truth: it would have noticed
	round   int  // from 0
	first   bool // of a round other than 0
}

// always is a step that nothing disturbs.
func always(do func() error) func(bool) (bool, error) {
	return func(bool) (bool, error) { return false, do() }
}

// late tells whether a round that begins with a step of this cost would begin
// too late for the budget, when time goes by as estimated from then on.
func (o Options) late(elapsed time.Duration, at Progress, cost time.Duration) bool {
	due := float64(o.Budget) * float64(at.Done+cost) / float64(at.Total)
	return o.Budget > 0 && float64(elapsed) > due+float64(min(o.Budget/50, grace))
}

// grace is what a run may be late by and still not be: the first steps are too
// short to tell.
const grace = time.Second

// What the estimates go by.
const (
	newKeyCost  = time.Microsecond      // of opening a key, or of asking for it when it is new
	slowKeyCost = 30 * time.Microsecond // of that with a slow contender
	prepareCost = 100 * time.Nanosecond // of a key's name
	turnCost    = 10 * time.Millisecond // of a garbage collection and what else is about a turn
)

func newCourse(w Workload, cpu int, contenders []Contender, c crew, o Options) course {
	if w.Callers == 0 {
		w.Callers = o.Callers
	}
	if w.Callers == 0 {
		w.Callers = cpu
	}
	if w.Rounds == 0 {
		w.Rounds = o.Rounds
	}
	if w.AuditOnly {
		o.NewRecorder = nil
	}
	b := base{Workload: w, crew: c, cpu: cpu, o: o}
	for _, contender := range contenders {
		if contender.can(w) {
			b.turns = append(b.turns, &turn{
				Contender: contender,
				recorders: newRecorders(w.Callers, o.NewRecorder),
				known:     newRecorders(min(w.Known, 1), o.NewRecorder),
			})
		}
	}
	if w.Draw.lasting() {
		return &lasting{base: b}
	}
	return &fresh{base: b}
}

// base is what all courses have.
type base struct {
	Workload
	crew
	cpu   int
	o     Options
	turns []*turn
}

// turn is what a contender has done so far.
type turn struct {
	Contender
	rounds    []Pass
	recorders *recorders // one a caller
	known     *recorders
	repeated  int
	memory    *Memory
	audit     Audit
}

// keyCost is what it takes, by estimate, to ask for all keys as the workload
// does.
func (b *base) keyCost(t *turn) time.Duration {
	switch {
	case t.Slow:
		return time.Duration(b.keyCalls()) * slowKeyCost
	case b.Draw == Together:
		return time.Duration(b.Keys)*newKeyCost + time.Duration(b.keyCalls())*prepareCost
	}
	return time.Duration(b.keyCalls()) * newKeyCost
}

// setup says what limiters are made for.
func (b *base) setup() Setup {
	keys := b.Keys + b.Known
	s := Setup{Limit: b.Limit, Keys: keys, MaxKeys: b.MaxKeys}
	if s.MaxKeys == 0 {
		// Two callers who meet at a new key may take a place each for a moment.
		s.MaxKeys = keys + keys/8 + 1024
	}
	return s
}

// keep keeps a pass, unless the run was interrupted in it. One that was done
// again takes the place of the first if other load took less from it: whether the
// figures are better does not count. It tells whether what was kept is disturbed.
func (b *base) keep(t *turn, p Pass, again bool) (disturbed bool) {
	if b.ctx.Err() != nil {
		return false
	}
	if t.Elsewhere {
		// The other process is at work for the contender: it is no disturbance.
		p.Others, p.Disturbed, p.lost = 0, false, 0
	}
	if !again {
		t.rounds = append(t.rounds, p)
		return p.Disturbed
	}
	t.repeated++
	last := &t.rounds[len(t.rounds)-1]
	if float64(p.lost)/float64(max(p.Elapsed, 1)) < float64(last.lost)/float64(max(last.Elapsed, 1)) {
		*last = p
	}
	return last.Disturbed
}

// about describes the workload as it is carried out.
func (b *base) about() WorkloadReport {
	return WorkloadReport{
		Name: b.Name, About: b.About, Draw: b.Draw.String(), Limit: b.Limit,
		Keys: b.Keys, MaxKeys: b.setup().MaxKeys, Callers: b.Workload.Callers, CPU: b.cpu, Rounds: b.Workload.Rounds,
		Timed: b.OneTimedPass,
	}
}

// report sums up the turns that came to anything.
func (b *base) report() WorkloadReport {
	w := b.about()
	for _, t := range b.turns {
		if len(t.rounds) == 0 {
			continue
		}
		r := Result{
			Contender: t.Name, IsFloor: t.Floor, Note: t.Note, Exact: t.Exact, Elsewhere: t.Elsewhere,
			Rounds: t.rounds, Repeated: t.repeated,
			Latency: t.recorders.latency(), LatencyRounds: t.recorders.rounds, Known: t.known.latency(), Memory: t.memory,
		}
		r.summarize()
		if !t.Floor {
			audit := t.audit
			r.Audit = &audit
		}
		w.Results = append(w.Results, r)
	}
	w.compare()
	return w
}
