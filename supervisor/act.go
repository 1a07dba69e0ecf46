package supervisor

import (
	"context"
	"slices"
	"time"
)

func (r *run) observe() {
	for _, slot := range r.slots {
		switch {
		case slot.life == nil:
			continue
		// A fault came between register and launch.
		case !slot.life.launched:
			slot.life = nil
			continue
		}
		if slot.life.over() {
			r.fault(pointExit)
			r.ended(slot)
		}
	}
}

// halt stops the children, last child first. halt returns true when none is left; otherwise
// r.deadline bounds the wait.
func (r *run) halt() bool {
	r.deadline = time.Time{}
	for _, slot := range slices.Backward(r.slots) {
		if slot.life == nil {
			continue
		}
		if !slot.asked {
			r.fault(pointStop)
			r.cancel(slot)
			r.fault(pointStopping)
		}
		if time.Now().Before(slot.deadline) {
			r.deadline = slot.deadline
			// The child's end, or the deadline, wakes the supervisor.
			return false
		}
		r.fault(pointAbandon)
		r.abandon(slot)
	}
	return true
}

func (r *run) launch() {
	for _, slot := range r.slots {
		if slot.life != nil {
			continue
		}
		r.fault(pointStart)
		r.register(slot)
		r.fault(pointRegistered)
		r.begin(slot)
		r.fault(pointStarted)
	}
}

// The changes of state below have no fault points. ownfault.go uses some of them when the code
// above has failed.

// register gives the child a life that has not begun.
func (r *run) register(slot *slot) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(r.ctx))
	slot.life = &life{
		s:      r.s,
		index:  slot.index,
		cancel: cancel,
		wake:   r.wake,
		done:   make(chan struct{}),
	}
	slot.life.ctx = context.WithValue(ctx, lifeKey{}, slot.life)
}

func (r *run) begin(slot *slot) {
	r.s.post(ChildStarted, slot.Name, nil)
	slot.life.launch()
}

// cancel asks the child to stop and sets its deadline. asked comes last: until it is set, all this
// is repeated.
func (r *run) cancel(slot *slot) {
	slot.deadline = time.Now().Add(slot.Shutdown)
	slot.life.cancel()
	slot.asked = true
}

// ended empties the slot of a life that is over. Unless the run is stopping, the end stays in
// slot.exit, for decide.
func (r *run) ended(slot *slot) {
	reason := slot.life.err
	kind := ChildExited
	if slot.asked {
		kind = ChildStopped
	}
	r.s.post(kind, slot.Name, reason)
	if !r.stopping {
		slot.exit = &exit{reason}
	}
	slot.life = nil
}

func (r *run) abandon(slot *slot) {
	if !slot.life.abandon() {
		r.ended(slot)
		return
	}
	slot.life = nil
}
