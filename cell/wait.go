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
// n == 0 never waits. A key that cannot be recorded, now or later, does not wait either:
// WhenUnavailable decides between nil and ErrUnavailable. A new key waits for room in a
// full table up to the open timeout, without regard to the context; then it passes
// unrecorded where the configuration says so, and else waits on in line. What Refund,
// Reset or a cancelled Reservation give back does not bring forward the turn of a call
// that has taken. Turns go by package time also where Config.Clock is set: it should run
// as fast.
func (c *Cell[K]) Wait(ctx context.Context, key K, n int64) error {
	a := ask{n: n, atOnce: true, exact: true, silent: true}
	_, err := c.acquire(ctx, key, &a, forever)
	if n != 0 {
		c.report(err == nil, a.without)
	}
	return err
}

// Acquire is Wait for those who may need less in the end, or do not wait for ever: it
// returns what it has taken, to be given back by Keep or Cancel, and waits up to
// patience. 0 is not at all. It allocates nothing if it need not wait. The reservation's
// Decision is that of the moment in which the units were taken: its Wait is over when
// Acquire returns.
//
// If there is an error, the reservation is a refusal, which tells how the key stands, and
// when the call would be admitted if nobody were before it. ErrDeadline is also that of a
// turn that comes too late for patience.
func (c *Cell[K]) Acquire(ctx context.Context, key K, n int64, patience time.Duration) (Reservation[K], error) {
	a := ask{n: n, atOnce: true, exact: true, silent: true}
	r, err := c.acquire(ctx, key, &a, max(patience, 0))
	if err != nil {
		r = Reservation[K]{Decision: c.refusal(key, n, err), Waited: r.Waited}
	}
	if n != 0 {
		c.report(err == nil, a.without)
	}
	return r, err
}

// refusal is the decision about a call that ended with an error.
func (c *Cell[K]) refusal(key K, n int64, err error) policy.Decision {
	d := c.look(key, &ask{n: n, atOnce: true})
	switch {
	case d.RetryAfter == policy.Never:
	case errors.Is(err, ErrClosed) || errors.Is(err, ErrUnavailable):
		d = policy.Decision{Limit: d.Limit, RetryAfter: c.openTimeout} // a guess, as for Take
	case d.Allowed:
		d = c.look(key, &ask{}) // it has taken nothing
		d.RetryAfter = 1        // others are before it
	}
	d.Allowed = false
	return d
}

func (c *Cell[K]) acquire(ctx context.Context, key K, a *ask, patience time.Duration) (none Reservation[K], err error) {
	if ctx.Err() != nil {
		return none, cancelled(ctx)
	}
	if c.closed.Load() {
		return none, ErrClosed
	}
	a.with = c.chosen(key)
	var r Reservation[K]
	if !c.lines.has(c, key) {
		r = c.reserve(key, a) // nobody waits
	} else {
		r.Decision = c.look(key, &ask{with: a.with})
		r.Allowed = r.Allowed && a.n == 0
		if a.n < 0 || a.n > r.Limit {
			r.RetryAfter = policy.Never
		}
	}
	switch {
	case a.n == 0, r.Allowed:
		return r, nil
	case a.lost && 0 < a.n && a.n <= r.Limit:
		return none, ErrUnavailable
	case r.RetryAfter == policy.Never:
		return none, never(a.n, r.Decision)
	case r.RetryAfter > patience:
		return none, fmt.Errorf("%w: %v to wait, %v at the most", ErrDeadline, r.RetryAfter, patience)
	}
	a.without = nil
	return c.queueUp(ctx, key, a, patience)
}

// queueUp waits in the key's line.
func (c *Cell[K]) queueUp(ctx context.Context, key K, a *ask, patience time.Duration) (r Reservation[K], err error) {
	ended := ctx.Done()
	began := time.Now()
	w := &waiting[K]{n: a.n, with: a.with, signal: make(chan struct{}, 1)}
	// The line is locked but while the call sleeps, so that whatever ends this
	// function, a policy that panics too, leaves the line to others.
	l := c.lines.join(c, key)
	defer l.release()
	if err := l.admit(ctx, w, patience); err != nil {
		return r, err
	}
	w.at = l.line.PushBack(w)
	defer l.leave(w)
	defer func() { r.Waited = time.Since(began) }()
	c.step("wait: joined")
	l.advance()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		pause, done := l.progress(w)
		if done {
			a.without = w.without
			return w.taken, w.err
		}
		left := patience
		if patience < forever {
			left -= time.Since(began)
		}
		if left <= 0 {
			return r, fmt.Errorf("%w: it did not come within %v", ErrDeadline, patience)
		}
		pause = min(pause, left)
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
			return r, cancelled(ctx)
		case closed:
			return r, ErrClosed
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
