package supervisor

import (
	"context"
	"slices"
	"time"
)

func (r *run) observe() {
	for _, c := range r.slots {
		switch {
		case c.life == nil:
			continue
		// A fault came between register and launch.
		case !c.life.launched:
			c.life = nil
			continue
		}
		if c.life.over() {
			r.fault(pointExit)
			r.ended(c)
		}
	}
}

// halt stops the children, last child first. It returns true when none is left; otherwise
// r.deadline bounds the wait.
func (r *run) halt() bool {
	r.deadline = time.Time{}
	for _, c := range slices.Backward(r.slots) {
		if c.life == nil {
			continue
		}
		if !c.asked {
			r.fault(pointStop)
			r.cancel(c)
			r.fault(pointStopping)
		}
		if time.Now().Before(c.deadline) {
			r.deadline = c.deadline
			// The child's end, or the deadline, wakes the supervisor.
			return false
		}
		r.fault(pointAbandon)
		r.abandon(c)
	}
	return true
}

func (r *run) launch() {
	for _, c := range r.slots {
		if c.life != nil {
			continue
		}
		r.fault(pointStart)
		r.register(c)
		r.fault(pointRegistered)
		r.begin(c)
		r.fault(pointStarted)
	}
}

// The changes of state below have no fault points. ownfault.go uses some of them when the code
// above has failed.

// register gives the child a life that has not begun.
func (r *run) register(c *slot) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(r.ctx))
	c.life = &life{
		s:      r.s,
		index:  c.index,
		cancel: cancel,
		wake:   r.wake,
		done:   make(chan struct{}),
	}
	c.life.ctx = context.WithValue(ctx, lifeKey{}, c.life)
}

func (r *run) begin(c *slot) {
	r.s.post(ChildStarted, c.Name, nil)
	c.life.launch()
}

// cancel asks the child to stop and sets its deadline. asked comes last: until it is set, all this
// is repeated.
func (r *run) cancel(c *slot) {
	c.deadline = time.Now().Add(c.Shutdown)
	c.life.cancel()
	c.asked = true
}

// ended empties the slot of a life that is over. Unless the run is stopping, the end stays in
// c.exit, for decide.
func (r *run) ended(c *slot) {
	reason := c.life.err
	kind := ChildExited
	if c.asked {
		kind = ChildStopped
	}
	r.s.post(kind, c.Name, reason)
	if !r.stopping {
		c.exit = &exit{reason}
	}
	c.life = nil
}

func (r *run) abandon(c *slot) {
	if !c.life.abandon() {
		r.ended(c)
		return
	}
	c.life = nil
}
