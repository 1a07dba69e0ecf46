package supervisor

import (
	"fmt"
	"slices"
	"time"
)

// Points of the supervisor's own bookkeeping.
const (
	pointStep       = "step"       // a step begins
	pointExit       = "exit"       // a child has ended, not recorded yet
	pointDecide     = "decide"     // an end is recorded, not judged yet
	pointEscalate   = "escalate"   // about to give up on account of a child
	pointStart      = "start"      // about to start a child
	pointRegistered = "registered" // its life is recorded, without a goroutine
	pointStarted    = "started"    // it has a goroutine
	pointStop       = "stop"       // about to ask a child to stop
	pointStopping   = "stopping"   // the child has been asked
	pointAbandon    = "abandon"    // about to abandon a late child
	pointFinish     = "finish"     // all is stopped, and Run about to return
)

var points = []string{
	pointStep, pointExit, pointDecide, pointEscalate, pointStart, pointRegistered, pointStarted,
	pointStop, pointStopping, pointAbandon, pointFinish,
}

// Points returns the possible arguments of Config.Fault.
func Points() []string { return slices.Clone(points) }

// maxFaults own faults in a row, without a completed step, are too many at any intensity: the step
// is going to fail again. It keeps an Intensity of a million from spinning for long.
const maxFaults = 100

func (r *run) fault(point string) {
	if r.s.cfg.Fault != nil {
		r.s.cfg.Fault(point)
	}
}

// faulted records that loop has died. Within the intensity it returns false, and the caller starts
// another loop. Beyond the intensity it stops the run, or returns true if that was under way: the
// bookkeeping cannot be trusted even with stopping. It runs on the goroutine of Run, without fault
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

func (r *run) ownFault(reason error) error {
	return fmt.Errorf("%w; last: own fault: %w", r.givingUp(), reason)
}

// lastResort stops the children without the bookkeeping that has failed: last child first, each
// within the rest of its limit. It runs on the goroutine of Run, without fault points.
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
