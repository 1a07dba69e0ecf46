package cell

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/ral-limiter/ral/policy"
)

const (
	// forever is the patience of a call that waits until its context ends.
	forever = time.Duration(math.MaxInt64)
	// lookahead is how long before their turn calls in line take what they wait
	// for. It should be longer than goroutines take to wake up, so that at high
	// rates turns follow each other without a gap, and is what a cancelled call may
	// cost those behind it.
	lookahead = 10 * time.Millisecond
)

// Wait blocks until n units can be used, and takes them. It returns nil if it did.
//
// Who calls it first for a key is served first. A line forms behind a call that has
// to wait: the first in it has taken its units ahead of its turn, so that calls
// which do not wait (Choke, Take) cannot keep it from having them for ever; the
// others take theirs when they are about to be the first. So a call that gives up
// costs nobody anything, nearly always.
//
// The error wraps one of ErrNever, ErrDeadline, ErrCrowded, ErrCancelled, ErrClosed
// and ErrUnavailable, and nothing was taken then, or it was given back as by
// Reservation.Cancel. ErrDeadline and ErrCrowded come at once: before it joins the
// line, the call works out when its turn will come. Those who do not wait may still
// take what the line has not taken yet, so that a turn may come later than that; if
// the deadline passes first, the error is ErrCancelled.
//
// n == 0 never waits. A key that cannot be recorded, now or later, does not wait
// either: WhenUnavailable decides between nil and ErrUnavailable. A new key waits for
// room in a full table up to the open timeout, without regard to the context; then it
// passes unrecorded where the configuration says so, and else waits on in line. What Refund, Reset or a cancelled
// Reservation give back does not bring forward the turn of a call that has taken.
// Turns go by package time also where Config.Clock is set: it
// should run as fast.
func (c *Cell[K]) Wait(ctx context.Context, key K, n int64) error {
	a := ask{n: n, atOnce: true, exact: true, silent: true}
	err := c.wait(ctx, key, &a)
	if n != 0 {
		c.report(err == nil, a.without)
	}
	return err
}

func (c *Cell[K]) wait(ctx context.Context, key K, a *ask) error {
	if ctx.Err() != nil {
		return cancelled(ctx)
	}
	if c.closed.Load() {
		return ErrClosed
	}
	a.with = c.chosen(key)
	var d policy.Decision
	if !c.lines.has(c, key) {
		d, _ = c.take(key, a) // nobody waits
	} else {
		d = c.look(key, &ask{with: a.with})
		d.Allowed = a.n == 0
		if a.n < 0 || a.n > d.Limit {
			d.RetryAfter = policy.Never
		}
	}
	switch {
	case a.n == 0, d.Allowed:
		return nil
	case a.lost && 0 < a.n && a.n <= d.Limit:
		return ErrUnavailable
	case d.RetryAfter == policy.Never:
		return never(a.n, d)
	}
	a.without = nil
	return c.queueUp(ctx, key, a)
}

// queueUp waits in the key's line.
func (c *Cell[K]) queueUp(ctx context.Context, key K, a *ask) error {
	ended := ctx.Done()
	w := &waiting[K]{n: a.n, with: a.with, signal: make(chan struct{}, 1)}
	// The line is locked but while the call sleeps, so that whatever ends this
	// function, a policy that panics too, leaves the line to others.
	l := c.lines.join(c, key)
	defer l.release()
	if err := l.admit(ctx, w); err != nil {
		return err
	}
	w.at = l.line.PushBack(w)
	defer l.leave(w)
	c.step("wait: joined")
	l.advance()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		pause, done := l.progress(w)
		if done {
			a.without = w.without
			return w.err
		}
		l.unlock()
		var cancel, closed bool
		if c.seam != nil {
			cancel, closed = c.sleepUntilWoken(ctx, w, pause)
		} else {
			timer.Reset(pause)
			select {
			case <-w.signal:
			case <-timer.C:
			case <-ended:
				cancel = true
			case <-c.done:
				closed = true
			}
		}
		l.lock()
		switch {
		case cancel:
			return cancelled(ctx)
		case closed:
			return ErrClosed
		}
	}
}

func never(n int64, d policy.Decision) error {
	if d.Limit == 0 {
		return fmt.Errorf("%w: engine.PolicyFor chose a policy of another family for this key", ErrNever)
	}
	return fmt.Errorf("%w: %d of at most %d", ErrNever, n, d.Limit)
}

// cancelled wraps both what the context says and why, if those are two things.
func cancelled(ctx context.Context) error {
	err, cause := ctx.Err(), context.Cause(ctx)
	if errors.Is(cause, err) {
		return fmt.Errorf("%w: %w", ErrCancelled, cause)
	}
	return fmt.Errorf("%w: %w: %w", ErrCancelled, err, cause)
}

// chosen is the limit that engine.PolicyFor chooses for the key; nil is the cell's
// own.
func (c *Cell[K]) chosen(key K) policy.Policy {
	if c.policyFor == nil {
		return nil
	}
	return c.policyFor(key)
}
