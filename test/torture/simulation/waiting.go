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
	world, account := c.w, c.w.accounts[number]
	ctx := &waitContext{c: c}
	c.cancel = never
	if world.random.one(2) || !world.roomy { // a place in a full table may take long
		c.cancel = world.elapsed + int64(world.random.n(int(6*perUnit)))
	}
	ctx.deadline = c.cancel != never && world.random.one(2)
	n := int64(1 + world.random.n(2))
	c.begin(wait, number, seamForever)
	c.until, c.overtaken = c.cancel, never
	account.open++
	account.known = false
	epoch, regime := account.epoch, world.regime
	u := world.enters(account, n)
	account.waits++
	var err error
	var reservation engine.Reservation[key]
	if world.limit.longest > 0 && world.random.one(4) {
		reservation, err = world.engine.Acquire(ctx, world.keys[number], n, time.Duration(world.random.n(4))*perUnit)
	} else if world.limit.longest > 0 {
		reservation, err = world.engine.Acquire(ctx, world.keys[number], n, policy.Never)
	} else {
		err = world.engine.Wait(ctx, world.keys[number], n)
	}
	account.open--
	account.known = false
	if err != nil {
		account.lowered++ // units of a waiting call came back, and may be in a state
	}
	c.until = never
	if i := slices.Index(world.lines[number], c); i >= 0 {
		// While the engine closes, time leaps. A call that was served before may return after.
		if err == nil && c.overtaken < world.elapsed && world.inOrder() && !world.closing {
			world.fail("%s is served on key %s at %v, and a later call was at %v",
				c.name, account.name, time.Duration(world.elapsed), time.Duration(c.overtaken))
		}
		for _, earlier := range world.lines[number][:i] {
			if err == nil {
				earlier.overtaken = min(earlier.overtaken, world.elapsed)
			}
		}
		world.lines[number] = slices.Delete(world.lines[number], i, i+1)
	}
	if err != nil && !slices.ContainsFunc([]error{
		engine.ErrNever, engine.ErrDeadline, engine.ErrCrowded, engine.ErrCancelled, engine.ErrClosed, engine.ErrUnavailable,
	}, func(known error) bool { return errors.Is(err, known) }) {
		world.fail("Wait returns %v", err)
	}
	without := world.answers(err == nil)
	switch {
	case world.limit.longest == 0:
	case err != nil || without:
		u.end(world.steps)
		world.overstays++ // units of a call whose wait has ended come back
	case !world.over():
		// Another call in line may have taken the units for this one, at any time since.
		c.uses(account, u, int64(world.instant(c.lo)))
		c.held = append(c.held, held{r: reservation, key: number, units: []*units{u}})
	}
	if !world.over() {
		if err != nil || without || epoch != account.epoch || regime != world.regime {
			n = 0 // it may have taken all the same, and so moved a window on
		}
		hi := c.latest()
		if world.ownClock && (world.wentBack || world.chaos.clock > 0) {
			hi += world.elapsed - c.since
		}
		world.record(account, admission{n, int64(world.instant(c.lo)), hi, true})
	}
}

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
