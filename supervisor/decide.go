package supervisor

import (
	"fmt"
	"time"
)

// decide judges the ends that were not requested.
func (r *run) decide() {
	for _, slot := range r.slots {
		// An earlier judgement may have stopped the run.
		if slot.exit != nil {
			r.fault(pointDecide)
			r.judge(slot)
		}
	}
}

// judge decides whether the child is restarted. All its changes follow its only fault point, in
// escalate.
func (r *run) judge(slot *slot) {
	reason := slot.exit.reason
	if r.window.full(time.Now()) {
		r.escalate(slot, reason)
		return
	}
	r.window.add(time.Now())
	r.s.restarts.Add(1)
	r.s.post(ChildRestarting, slot.Name, reason)
	slot.exit = nil
}

func (r *run) escalate(slot *slot, reason error) {
	r.fault(pointEscalate)
	if reason == nil {
		r.stop(fmt.Errorf("%w; last: child %q returned nil", r.givingUp(), slot.Name))
		return
	}
	r.stop(fmt.Errorf("%w; last: child %q: %w", r.givingUp(), slot.Name, reason))
}

func (r *run) givingUp() error {
	return fmt.Errorf("%s: %w: more than %d within %v", r.s.cfg.Name, ErrIntensity, r.window.limit, r.window.period)
}

// window has the times of the last restarts: limit at most, and a few more once the supervisor has
// given up.
type window struct {
	limit  int
	period time.Duration
	// restarts has the oldest first.
	restarts []time.Time
}

// full reports whether a restart at now would exceed limit within period, both ends included.
func (w *window) full(now time.Time) bool {
	old := 0
	for old < len(w.restarts) && now.Sub(w.restarts[old]) > w.period {
		old++
	}
	// append moves the rest to a new array now and then.
	w.restarts = w.restarts[old:]
	return len(w.restarts) >= w.limit
}

func (w *window) add(now time.Time) { w.restarts = append(w.restarts, now) }
