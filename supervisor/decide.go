package supervisor

import (
	"fmt"
	"time"
)

// decide judges the ends that were not requested.
func (r *run) decide() {
	for _, c := range r.slots {
		if c.exit != nil { // an earlier child's judgement may have stopped the run
			r.fault(pointDecide)
			r.judge(c)
		}
	}
}

// judge decides whether the child is started again. It changes nothing before its
// only fault point, in escalate, and everything after it.
func (r *run) judge(c *slot) {
	reason := c.exit.reason
	if r.window.full(time.Now()) {
		r.escalate(c, reason)
		return
	}
	r.window.add(time.Now())
	r.s.restarts.Add(1)
	r.s.post(ChildRestarting, c.Name, reason)
	c.exit = nil
}

// escalate gives up on account of a child.
func (r *run) escalate(c *slot, reason error) {
	r.fault(pointEscalate)
	if reason == nil {
		r.stop(fmt.Errorf("%w; last: child %q returned nil", r.givingUp(), c.Name))
		return
	}
	r.stop(fmt.Errorf("%w; last: child %q: %w", r.givingUp(), c.Name, reason))
}

// givingUp begins the text of a verdict.
func (r *run) givingUp() error {
	return fmt.Errorf("%s: %w: more than %d within %v", r.s.cfg.Name, ErrIntensity, r.window.limit, r.window.period)
}

// window remembers the moments of the last restarts. It holds limit of them at
// most, and a few more once the supervisor has given up.
type window struct {
	limit  int
	period time.Duration
	at     []time.Time // oldest first
}

// full reports whether one more at now would be more than limit within period.
// What lies exactly a period back is still within.
func (w *window) full(now time.Time) bool {
	old := 0
	for old < len(w.at) && now.Sub(w.at[old]) > w.period {
		old++
	}
	w.at = w.at[old:] // append moves what is left to a new array now and then
	return len(w.at) >= w.limit
}

// add notes one at now. It does not ask whether that is too many.
func (w *window) add(now time.Time) { w.at = append(w.at, now) }
