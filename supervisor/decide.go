package supervisor

import (
	"errors"
	"fmt"
	"time"
)

// decide judges the ends that were not requested.
func (r *run) decide() {
	for _, c := range r.slots {
		if c.exit != nil { // no longer, if an earlier one's judgement covered it
			r.fault(pointDecide)
			r.judge(c)
		}
	}
}

// judge turns one end into new goals. It changes nothing before its only fault
// point, in escalate, and everything after it.
func (r *run) judge(c *slot) {
	e := c.exit
	switch {
	case e.inInit && !c.born:
		r.escalate(ErrStart, c, e.reason)
	case c.Restart == Temporary:
		c.exit = nil
		r.remove(c)
	case c.Restart == Transient && e.reason == nil:
		c.exit = nil
		c.goal = down
		r.set(c, Finished)
	case r.window.full(time.Now()):
		r.escalate(ErrIntensity, c, e.reason)
	default:
		r.window.add(time.Now())
		r.s.restarts.Add(1)
		r.s.post(ChildRestarting, c.Name, e.reason)
		r.restart(c)
	}
}

// restart sets the goals for a restart on account of c. An end of another one in
// the group, be it simultaneous or while the group is being stopped, is part of
// this restart and asks for none of its own.
func (r *run) restart(c *slot) {
	for _, x := range r.group(c) {
		x.exit = nil
		switch {
		case x.removed:
		case x.Restart == Temporary && x.lives > 0:
			x.goal = down
			if x.life == nil {
				r.remove(x)
			}
		case x.life != nil:
			x.goal = again
		default:
			x.goal = up
			r.set(x, Waiting)
		}
	}
}

// group returns the children that share c's fate, in the order of start.
func (r *run) group(c *slot) []*slot {
	switch r.s.cfg.Strategy {
	case OneForAll:
		return r.slots
	case RestForOne:
		return r.slots[c.index:]
	default:
		return r.slots[c.index : c.index+1]
	}
}

// escalate gives up on account of a child.
func (r *run) escalate(why error, c *slot, reason error) {
	r.fault(pointEscalate)
	if reason == nil {
		r.stop(fmt.Errorf("%w; last: child %q returned nil", r.givingUp(why), c.Name))
		return
	}
	r.stop(fmt.Errorf("%w; last: child %q: %w", r.givingUp(why), c.Name, reason))
}

// givingUp begins the text of a verdict.
func (r *run) givingUp(why error) error {
	if errors.Is(why, ErrIntensity) {
		return fmt.Errorf("%s: %w: more than %d within %v",
			r.s.cfg.Name, why, r.window.limit, r.window.period)
	}
	return fmt.Errorf("%s: %w", r.s.cfg.Name, why)
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
