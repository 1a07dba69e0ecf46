package supervisor

import (
	"context"
	"fmt"
	"time"
)

// observe takes note of what the children have done by themselves.
func (r *run) observe() {
	for _, c := range r.slots {
		switch {
		case c.life == nil:
			continue
		case !c.life.launched: // a fault came between register and launch
			r.vacate(c)
			continue
		}
		if !c.life.announced && c.life.isReady() {
			r.fault(pointReady)
			r.started(c)
		}
		if c.life.over() {
			r.fault(pointExit)
			r.ended(c)
		}
	}
}

// halt ends the lives that should not be, last child first and one at a time. It
// returns true when there are none; otherwise r.deadline says how long to wait.
func (r *run) halt() bool {
	r.deadline = time.Time{}
	for i := len(r.slots) - 1; i >= 0; i-- {
		c := r.slots[i]
		if c.life == nil || c.goal == up {
			continue
		}
		if c.state != Stopping {
			r.fault(pointStop)
			r.cancel(c)
			r.fault(pointStopping)
		}
		if time.Now().Before(c.deadline) {
			r.deadline = c.deadline
			return false // its end, or the deadline, wakes us
		}
		r.fault(pointAbandon)
		r.abandon(c)
		return r.halt() // from the top, since abandon may have changed the goals
	}
	return true
}

// launch starts, in order, the children that should run and do not, up to the
// first one that needs time. The caller has made sure that nothing is stopping.
func (r *run) launch() {
	for _, c := range r.slots {
		if c.state == Starting {
			return
		}
	}
	for _, c := range r.slots {
		if c.goal != up || c.life != nil || c.exit != nil {
			continue
		}
		if r.hasPredecessor(c) {
			r.stop(fmt.Errorf("%s: %w: child %q: %w", r.s.cfg.Name, ErrStart, c.Name, ErrAbandoned))
			poke(r.wake)
			return
		}
		r.fault(pointStart)
		r.register(c)
		r.fault(pointRegistered)
		r.begin(c)
		r.fault(pointStarted)
		if c.state == Starting {
			return
		}
	}
}

// What follows are the changes of state, without fault points. ownfault.go uses
// some of them when the rest of this file has failed.

// register gives the child a life that has not begun.
func (r *run) register(c *slot) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(r.ctx))
	c.life = &life{
		s:      r.s,
		index:  c.index,
		cancel: cancel,
		wake:   r.wake,
		done:   make(chan struct{}),
		ready:  c.Init == nil,
	}
	c.life.ctx = context.WithValue(ctx, lifeKey{}, c.life)
}

// begin launches the registered life.
func (r *run) begin(c *slot) {
	r.set(c, Starting)
	if c.lives++; c.lives > 1 {
		r.s.mu.Lock()
		c.restarts++
		r.s.mu.Unlock()
	}
	c.life.launch()
	r.started(c)
}

// started notes, once, that Init is done with, if it is.
func (r *run) started(c *slot) {
	if c.life.announced || !c.life.isReady() {
		return
	}
	c.life.announced = true
	c.born = true
	if c.state == Starting { // else it was asked to stop meanwhile
		r.set(c, Running)
	}
	r.s.post(ChildStarted, c.Name, nil)
}

// cancel asks the child to stop and sets its deadline. The state comes last:
// until it is set, all this is going to be repeated.
func (r *run) cancel(c *slot) {
	c.deadline = time.Now().Add(c.Shutdown)
	c.life.cancel()
	r.set(c, Stopping)
}

// ended takes a life that is over out of its slot. If no stop had been requested, the
// end stays in c.exit, for decide.
func (r *run) ended(c *slot) {
	r.started(c)
	l := c.life
	reason, inInit := l.err, !l.isReady()
	if inInit {
		reason = fmt.Errorf("%w: %w", ErrInit, reason)
	}
	kind := ChildExited
	if c.state == Stopping {
		kind = ChildStopped
	}
	r.s.post(kind, c.Name, reason)
	if c.goal == up {
		c.exit = &exit{reason: reason, inInit: inInit}
	}
	r.vacate(c)
}

// abandon gives up on a life that is late. The replacement of an Exclusive child must
// not run beside it, and the instant of its end is unknown, so this supervisor can
// only give up.
func (r *run) abandon(c *slot) {
	r.started(c)
	if !c.life.abandon() {
		r.ended(c)
		return
	}
	replace := c.goal == again
	r.vacate(c)
	if replace && c.Exclusive {
		r.stop(fmt.Errorf("%s: %w: child %q, limit %v", r.s.cfg.Name, ErrAbandoned, c.Name, c.Shutdown))
	}
}

// vacate empties the slot, for the next life if there is to be one.
func (r *run) vacate(c *slot) {
	c.life = nil
	switch {
	case c.goal != down:
		c.goal = up
		r.set(c, Waiting)
	case c.Restart == Temporary && !r.stopping:
		r.remove(c)
	default:
		r.set(c, Stopped)
	}
}

// hasPredecessor reports whether an Exclusive child's abandoned life goes on. It
// can only be from an earlier Run, since within one abandon gives up at once.
func (r *run) hasPredecessor(c *slot) bool {
	r.s.mu.Lock()
	defer r.s.mu.Unlock()
	return c.Exclusive && r.s.mu.abandoned[c.index] > 0
}
