package supervisor

import (
	"fmt"
	"slices"
	"time"
)

// Points of the supervisor's own bookkeeping.
const (
	// A step begins.
	pointStep = "step"
	// A child has ended, and the end is not recorded yet.
	pointExit = "exit"
	// An end is recorded, and not judged yet.
	pointDecide = "decide"
	// The supervisor is about to give up on account of a child.
	pointEscalate = "escalate"
	// The supervisor is about to start a child.
	pointStart = "start"
	// The life of the child is recorded, without a goroutine.
	pointRegistered = "registered"
	// The life has a goroutine.
	pointStarted = "started"
	// The supervisor is about to ask a child to stop.
	pointStop = "stop"
	// The child has been asked.
	pointStopping = "stopping"
	// The supervisor is about to abandon a late child.
	pointAbandon = "abandon"
	// All children are stopped, and Run is about to return.
	pointFinish = "finish"
)

var points = []string{
	pointStep, pointExit, pointDecide, pointEscalate, pointStart, pointRegistered, pointStarted,
	pointStop, pointStopping, pointAbandon, pointFinish,
}

// Points returns the possible arguments of Config.Fault.
func Points() []string { return slices.Clone(points) }

// maxFaults own faults in a row, without a completed step, are too many at any intensity: the step
// is going to fail again. The bound keeps an Intensity of a million from spinning for long.
const maxFaults = 100

func (r *run) fault(point string) {
	if r.s.cfg.Fault != nil {
		r.s.cfg.Fault(point)
	}
}

// faulted records that loop has died. Within the intensity faulted returns false, and the caller
// starts another loop. Beyond the intensity faulted stops the run, or returns true if the run was
// stopping: the bookkeeping cannot be trusted even with stopping. faulted runs on the goroutine of
// Run, without fault points.
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
// within the rest of its limit. lastResort runs on the goroutine of Run, without fault points.
func (r *run) lastResort(reason error) {
	if r.verdict == nil {
		r.verdict = r.ownFault(reason)
		r.s.post(Escalated, "", r.verdict)
	}
	for _, slot := range slices.Backward(r.slots) {
		if slot.life == nil {
			continue
		}
		if !slot.life.launched {
			slot.life = nil
			continue
		}
		if !slot.asked {
			r.cancel(slot)
		}
		slot.life.wait(slot.deadline)
		// abandon notes the end instead if the child has ended.
		r.abandon(slot)
	}
}
