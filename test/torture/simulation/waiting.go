package simulation

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/ral-limiter/ral/engine"
	"github.com/ral-limiter/ral/policy"
)

// wait makes a call of Wait and checks its place in line.
func (c *caller) wait(number int) {
	w, a := c.w, c.w.accounts[number]
	ctx := &waitContext{c: c}
	c.cancel = never
	if w.random.one(2) || !w.roomy { // a place in a full table may take long
		c.cancel = w.elapsed + int64(w.random.n(int(6*perUnit)))
	}
	ctx.deadline = c.cancel != never && w.random.one(2)
	n := int64(1 + w.random.n(2))
	c.begin(wait, number, seamForever)
	c.until, c.overtaken = c.cancel, never
	a.open++
	a.known = false
	epoch, regime := a.epoch, w.regime
	u := w.enters(a, n)
	a.waits++
	var err error
	var r engine.Reservation[key]
	if w.limit.longest > 0 && w.random.one(4) {
		r, err = w.engine.Acquire(ctx, w.keys[number], n, time.Duration(w.random.n(4))*perUnit)
	} else if w.limit.longest > 0 {
		r, err = w.engine.Acquire(ctx, w.keys[number], n, policy.Never)
	} else {
		err = w.engine.Wait(ctx, w.keys[number], n)
	}
	a.open--
	a.known = false
	if err != nil {
		a.lowered++ // units of a waiting call came back, and may be in a state
	}
	c.until = never
	if i := slices.Index(w.lines[number], c); i >= 0 {
		// While the engine closes, time leaps. A call that was served before may return after.
		if err == nil && c.overtaken < w.elapsed && w.inOrder() && !w.closing {
			w.fail("%s is served on key %s at %v, and a later call was at %v",
				c.name, a.name, time.Duration(w.elapsed), time.Duration(c.overtaken))
		}
		for _, earlier := range w.lines[number][:i] {
			if err == nil {
				earlier.overtaken = min(earlier.overtaken, w.elapsed)
			}
		}
		w.lines[number] = slices.Delete(w.lines[number], i, i+1)
	}
	if err != nil && !slices.ContainsFunc([]error{
		engine.ErrNever, engine.ErrDeadline, engine.ErrCrowded, engine.ErrCancelled, engine.ErrClosed, engine.ErrUnavailable,
	}, func(known error) bool { return errors.Is(err, known) }) {
		w.fail("Wait returns %v", err)
	}
	without := w.answers(err == nil)
	switch {
	case w.limit.longest == 0:
	case err != nil || without:
		u.end(w.steps)
		w.overstays++ // units of a call whose wait has ended come back
	case !w.over():
		// Another call in line may have taken the units for this one, at any time since.
		c.uses(a, u, int64(w.instant(c.lo)))
		c.held = append(c.held, held{r: r, key: number, units: []*units{u}})
	}
	if !w.over() {
		if err != nil || without || epoch != a.epoch || regime != w.regime {
			n = 0 // it may have taken all the same, and so moved a window on
		}
		hi := c.latest()
		if w.ownClock && (w.wentBack || w.chaos.clock > 0) {
			hi += w.elapsed - c.since
		}
		w.record(a, admission{n, int64(w.instant(c.lo)), hi, true})
	}
}

const seamForever = time.Duration(never)

// inOrder reports whether turns come in the order given: if no call returns units, no key is
// forgiven and time does not leap over turns. Returned units do not advance promised turns.
func (w *world) inOrder() bool {
	v := w.plan.verbs
	return w.roomy && w.chaos.jump == 0 && w.chaos.clock == 0 && v[refund]+v[reset]+v[cancel]+v[takeAll] == 0
}

// waitContext is the context of a Wait. It ends at c.cancel.
type waitContext struct {
	c        *caller
	deadline bool
}

func (x *waitContext) Deadline() (time.Time, bool) {
	if !x.deadline {
		return time.Time{}, false
	}
	return time.Now().Add(time.Duration(x.c.cancel - x.c.w.elapsed)), true
}

// Done returns nil: under the simulation Err is polled.
func (x *waitContext) Done() <-chan struct{} { return nil }

func (x *waitContext) Err() error {
	switch {
	case x.c.w.elapsed < x.c.cancel:
		return nil
	case x.deadline:
		return context.DeadlineExceeded
	}
	return context.Canceled
}

func (x *waitContext) Value(any) any { return nil }
