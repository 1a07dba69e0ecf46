package supervisor

import (
	"fmt"
	"slices"
	"time"
)

// The points of the supervisor's own bookkeeping at which Config.Fault is called.
const (
	pointStep       = "step"       // a step begins
	pointExit       = "exit"       // a child has ended, which is not recorded yet
	pointDecide     = "decide"     // an end is recorded, and not judged yet
	pointEscalate   = "escalate"   // the supervisor is about to give up on account of a child
	pointStart      = "start"      // a child is about to be started
	pointRegistered = "registered" // its life is in the books, but there is no goroutine yet
	pointStarted    = "started"    // there is
	pointStop       = "stop"       // a child is about to be asked to stop
	pointStopping   = "stopping"   // it has been asked
	pointAbandon    = "abandon"    // a late child is about to be abandoned
	pointFinish     = "finish"     // all is stopped, and Run about to return
)

var points = []string{
	pointStep, pointExit, pointDecide, pointEscalate, pointStart, pointRegistered, pointStarted,
	pointStop, pointStopping, pointAbandon, pointFinish,
}

// Points returns the names that Config.Fault may be called with.
func Points() []string { return slices.Clone(points) }

// maxFaults is the number of own faults in a row, without a completed step in
// between, that count as too many whatever the intensity: a step that failed that
// often with the same state is going to fail again. It bounds the time that an
// Intensity of a million would otherwise let the supervisor spin.
const maxFaults = 100

func (r *run) fault(point string) {
	if r.s.cfg.Fault != nil {
		r.s.cfg.Fault(point)
	}
}

// faulted is told that loop has died. Within the intensity it only counts, and
// the caller lets another loop try. Beyond that it makes the run stop; and if
// that was under way already, it returns true: the bookkeeping is not to be
// trusted even with stopping. It runs on the goroutine of Run and has no fault
// points.
func (r *run) faulted(reason error) (hopeless bool) {
	now := time.Now()
	r.faults++
	over := r.window.full(now) || r.faults > maxFaults
	r.window.add(now)
	r.s.post(OwnFault, "", reason)
	if !over {
		return false
	}
	if r.stopping {
		return true
	}
	r.stop(r.ownFault(reason))
	return false
}

// ownFault is the verdict when the supervisor's own faults exceed the intensity.
func (r *run) ownFault(reason error) error {
	return fmt.Errorf("%w; last: own fault: %w", r.givingUp(), reason)
}

// lastResort stops the children without the bookkeeping that has failed: last
// child first, each within what is left of its limit. It runs on the goroutine
// of Run and has no fault points.
func (r *run) lastResort(reason error) {
	if r.verdict == nil {
		r.verdict = r.ownFault(reason)
		r.s.post(Escalated, "", r.verdict)
	}
	for _, c := range slices.Backward(r.slots) {
		if c.life == nil {
			continue
		}
		if !c.life.launched {
			c.life = nil
			continue
		}
		if !c.asked {
			r.cancel(c)
		}
		c.life.wait(c.deadline)
		r.abandon(c) // or note that it has ended
	}
}
