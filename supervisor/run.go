package supervisor

import (
	"context"
	"time"

	"github.com/ral-limiter/ral/internal/core/seam"
)

// slot is the place of one child in one Run.
type slot struct {
	Child
	index int

	life     *life // the incarnation at work; nil if there is none
	asked    bool  // the life's context is cancelled; it is late at deadline
	deadline time.Time
	exit     *exit // an end that decide has not judged yet
}

// exit is an end that the supervisor did not ask for.
type exit struct {
	reason error // nil: the child returned nil
}

func newSlots(children []Child) []*slot {
	slots := make([]*slot, len(children))
	for i, c := range children {
		slots[i] = &slot{Child: c, index: i}
	}
	return slots
}

// run is the state of one Run. At any moment one goroutine owns it: that of loop
// or, when that has died and before the next, the caller of Run.
type run struct {
	s     *Supervisor
	ctx   context.Context // of Run; children do not get its cancellation
	wake  chan struct{}   // one slot; poked when some child's life has news
	slots []*slot         // in the order of start

	window window // restarts and own faults
	faults int    // own faults since the last step that was completed

	stopping bool      // no child is started any more, and those that run are stopped
	verdict  error     // what Run will return
	deadline time.Time // when the child that is being stopped is late; zero is never
}

func newRun(s *Supervisor, ctx context.Context) *run {
	return &run{
		s:      s,
		ctx:    ctx,
		wake:   make(chan struct{}, 1),
		slots:  newSlots(s.children),
		window: window{limit: s.cfg.Intensity, period: s.cfg.Period},
	}
}

// loop is the supervisor at work. It may die anywhere and be called again.
func (r *run) loop() {
	for !r.step() {
		r.wait()
	}
}

// step compares what should run with what does, does what can be done now, and
// reports whether all is over. Its parts (act.go) look at state alone, never at
// what they did before: that is why a step that died half-way may be repeated.
// Each change of state is a function without fault points, called between them.
func (r *run) step() (over bool) {
	r.fault(pointStep)
	if !r.stopping && r.ctx.Err() != nil {
		r.stop(nil)
	}
	r.observe()
	r.decide()
	if !r.stopping {
		r.launch()
	} else if r.halt() {
		r.fault(pointFinish)
		return true
	}
	r.faults = 0
	return false
}

// wait sleeps until there may be something to do.
func (r *run) wait() {
	ctx := r.ctx
	if r.stopping {
		ctx = nil // it has ended, or its end changes nothing any more
	}
	seam.Receive(r.s.cfg.seam, "supervisor: wait", patience(r.deadline), r.wake, ctx, nil)
}

// stop makes the run wind down and then return verdict. It stops no child by
// itself; halt does. The caller has made sure that the run is not stopping yet.
func (r *run) stop(verdict error) {
	if verdict != nil {
		r.s.post(Escalated, "", verdict)
	}
	r.verdict = verdict
	r.stopping = true
	for _, c := range r.slots {
		c.exit = nil
	}
}
