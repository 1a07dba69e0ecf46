package supervisor

import (
	"context"
	"time"

	"github.com/ral-limiter/ral/internal/core/seam"
)

// slot is the place of a child in a Run.
type slot struct {
	Child
	index int

	life     *life // the present incarnation, or nil
	asked    bool  // the life's context is cancelled; it is late at deadline
	deadline time.Time
	exit     *exit // an end that decide has not judged yet
}

// exit is an unrequested end.
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

// run is the state of a Run. Its one owner is loop's goroutine or, between loops, the caller of
// Run.
type run struct {
	s     *Supervisor
	ctx   context.Context // of Run; children do not get its cancellation
	wake  chan struct{}   // one slot; poked when some child's life has news
	slots []*slot         // in the order of start

	window window // restarts and own faults
	faults int    // own faults since the last completed step

	stopping bool      // no child is started, and running children are stopped
	verdict  error     // the result of Run
	deadline time.Time // when the child being stopped is late; zero is never
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

// loop may die anywhere and be called again.
func (r *run) loop() {
	for !r.step() {
		r.wait()
	}
}

// step compares what should run with what does, does what can be done now, and reports whether all
// is over. It may die half-way and be repeated: its parts (act.go) look at state alone. Each change
// of state is a function without fault points, called between them.
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

func (r *run) wait() {
	ctx := r.ctx
	if r.stopping {
		ctx = nil // it has ended, or its end changes nothing
	}
	seam.Receive(r.s.cfg.seam, "supervisor: wait", patience(r.deadline), r.wake, ctx, nil)
}

// stop makes the run wind down, by halt, and then return verdict. The run must not be stopping yet.
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
