package bench

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Options say how to measure. All fields but Duration, Rounds and Callers may be
// left zero.
type Options struct {
	// Duration is how long a contender is asked in each round, in the workloads
	// that do not end by themselves. Passes that time single calls last half of
	// it.
	Duration time.Duration
	// Rounds is how many rounds there are, for workloads that do not say.
	Rounds int
	// Callers is how many goroutines ask at once, for workloads that do not say;
	// GOMAXPROCS is the number to take.
	Callers int
	// Budget is how long the whole run should take at the most; 0 is for as long
	// as it takes. Rounds after the first are left out of a workload when the run
	// is late by it. The first rounds are not, so it may still be exceeded.
	Budget time.Duration
	// NewRecorder makes what keeps latencies. Nil leaves them unmeasured.
	NewRecorder func() Recorder
	// Progress, if not nil, is told before each step what it will be, and at the
	// end. The clock does not run while it is called.
	Progress func(Progress)
	// Finished, if not nil, is told what came of each workload.
	Finished func(WorkloadReport)
}

// Progress says how far a run has come.
type Progress struct {
	Workload  string
	Contender string // empty if the step is about none
	Doing     string
	// Done of Total is behind us, both by estimate.
	Done, Total time.Duration
}

// Run lets the contenders do the workloads, and returns when they are done or
// the context has ended. The report is of use even if there is an error: it has
// what was measured before. That the context ended is no error.
//
// Run wants the machine for itself; run one at a time.
func Run(ctx context.Context, workloads []Workload, contenders []Contender, o Options) (Report, error) {
	if o.Duration <= 0 || o.Rounds < 1 || o.Callers < 1 {
		return Report{}, fmt.Errorf("bench: Duration, Rounds and Callers are %v, %d and %d, but must be positive", o.Duration, o.Rounds, o.Callers)
	}
	c := crew{ctx: ctx, epoch: time.Now()}
	courses := make([]course, len(workloads))
	at := Progress{}
	for i, w := range workloads {
		courses[i] = newCourse(w, contenders, c, o)
		for _, s := range courses[i].steps() {
			at.Total += s.cost
		}
	}

	var report Report
	var failure error
	tell := func() {
		if o.Progress != nil {
			o.Progress(at)
		}
	}
	for i, course := range courses {
		if ctx.Err() != nil || failure != nil {
			break
		}
		at.Workload = workloads[i].Name
		late := false
		for _, s := range course.steps() {
			if ctx.Err() != nil || failure != nil {
				break
			}
			if late = late || s.first && o.late(time.Since(c.epoch), at, s.cost); late && s.round > 0 {
				at.Done += s.cost
				continue
			}
			at.Contender, at.Doing = s.contender, s.doing
			tell()
			if err := s.do(); err != nil {
				failure = fmt.Errorf("bench: workload %s, %s: %w", at.Workload, s.contender, err)
			}
			at.Done += s.cost
		}
		result, err := course.finish()
		if err != nil {
			failure = errors.Join(failure, fmt.Errorf("bench: workload %s: %w", at.Workload, err))
		}
		if len(result.Results) > 0 {
			report.Workloads = append(report.Workloads, result)
			if o.Finished != nil {
				o.Finished(result)
			}
		}
		courses[i] = nil // frees the keys
	}
	at = Progress{Doing: "done", Done: at.Done, Total: at.Total}
	tell()
	report.Interrupted = ctx.Err() != nil
	report.Took = time.Since(c.epoch)
	return report, failure
}

// course is a workload as it is carried out: some steps, of which the last ones
// may be left out, and an end.
type course interface {
	steps() []step
	finish() (WorkloadReport, error)
}

type step struct {
	contender, doing string
	cost             time.Duration // by estimate
	do               func() error
	round            int  // from 0
	first            bool // of a round other than 0
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
	newKeyCost  = 700 * time.Nanosecond // of opening a key, or of asking for it when it is new
	prepareCost = 100 * time.Nanosecond // of a key's name
	turnCost    = 10 * time.Millisecond // of a garbage collection and what else is about a turn
)

func newCourse(w Workload, contenders []Contender, c crew, o Options) course {
	if w.Callers == 0 {
		w.Callers = o.Callers
	}
	if w.Rounds == 0 {
		w.Rounds = o.Rounds
	}
	if w.AuditOnly {
		o.NewRecorder = nil
	}
	b := base{Workload: w, crew: c, o: o}
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
	o     Options
	turns []*turn
}

// turn is what a contender has done so far.
type turn struct {
	Contender
	rounds    []Pass
	recorders recorders // one a caller
	known     recorders
	audit     Audit
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

// keep keeps a pass, unless the run was interrupted in it.
func (b *base) keep(t *turn, p Pass) {
	if b.ctx.Err() == nil {
		t.rounds = append(t.rounds, p)
	}
}

// report sums up the turns that came to anything.
func (b *base) report() WorkloadReport {
	w := WorkloadReport{
		Name: b.Name, About: b.About, Draw: b.Draw.String(), Limit: b.Limit,
		Keys: b.Keys, MaxKeys: b.setup().MaxKeys, Callers: b.Workload.Callers, Rounds: b.Workload.Rounds,
		Timed: b.OneTimedPass,
	}
	for _, t := range b.turns {
		if len(t.rounds) == 0 {
			continue
		}
		r := Result{
			Contender: t.Name, IsFloor: t.Floor, Rounds: t.rounds,
			Latency: t.recorders.latency(), Known: t.known.latency(),
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
