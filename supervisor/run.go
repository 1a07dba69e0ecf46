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

	// life is the present incarnation, or nil.
	life *life
	// asked is set once the life's context is cancelled. The life is late at deadline.
	asked    bool
	deadline time.Time
	// exit is an end that decide has not judged yet.
	exit *exit
}

// exit is an unrequested end.
type exit struct {
	// reason is nil if the child returned nil.
	reason error
}

func newSlots(children []Child) []*slot {
	slots := make([]*slot, len(children))
	for i, child := range children {
		slots[i] = &slot{Child: child, index: i}
	}
	return slots
}

// run is the state of a Run. Its one owner is loop's goroutine or, between loops, the caller of
// Run.
type run struct {
	s *Supervisor
	// ctx is the context of Run. Children do not get its cancellation.
	ctx context.Context
	// wake has one slot. wake is poked when some child's life has news.
	wake chan struct{}
	// slots are in the order of start.
	slots []*slot

	// window has restarts and own faults.
	window window
	// faults counts the own faults since the last completed step.
	faults int

	// stopping means that no child is started, and running children are stopped.
	stopping bool
	// verdict is the result of Run.
	verdict error
	// deadline is when the child being stopped is late. Zero is never.
	deadline time.Time
}

func newRun(supervisor *Supervisor, ctx context.Context) *run {
	return &run{
		s:      supervisor,
		ctx:    ctx,
		wake:   make(chan struct{}, 1),
		slots:  newSlots(supervisor.children),
		window: window{limit: supervisor.cfg.Intensity, period: supervisor.cfg.Period},
	}
}

// loop may die anywhere and be called again.
func (r *run) loop() {
	for !r.step() {
		r.wait()
	}
}

// step compares what should run with what does, does what can be done now, and reports whether all
// is over. The step may die half-way and be repeated: its parts (act.go) look at state alone. Each
// change of state is a function without fault points, called between the parts.
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
		// The context has ended, or its end changes nothing.
		ctx = nil
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
	for _, slot := range r.slots {
		slot.exit = nil
	}
}
