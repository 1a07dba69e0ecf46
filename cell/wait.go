package cell

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ral-limiter/ral/policy"
)

const (
	// lookahead is how long before their turn calls in line take what they wait
	// for. It should be longer than goroutines take to wake up, so that at high
	// rates turns follow each other without a gap, and is what a cancelled call may
	// cost those behind it.
	lookahead = 10 * time.Millisecond
)

// Wait is Acquire without a bound on the wait except its context, for what is not given
// back.
func (c *Cell[K]) Wait(ctx context.Context, key K, n int64) error {
	_, basis, err := c.acquire(ctx, key, n, forever)
	if n != 0 {
		c.Count(err == nil, basis)
	}
	return err
}

// Acquire takes n units for the key, and waits in its line for them if there is no room,
// or if other calls wait. If there is an error, the reservation is a refusal.
func (c *Cell[K]) Acquire(ctx context.Context, key K, n int64, patience time.Duration) (Reservation[K], error) {
	r, basis, err := c.acquire(ctx, key, n, max(patience, 0))
	if err != nil {
		r = Reservation[K]{Decision: c.refusal(key, n, err), Waited: r.Waited}
	}
	if n != 0 {
		c.Count(err == nil, basis)
	}
	return r, err
}

// refusal is the decision about a call that ended with an error.
func (c *Cell[K]) refusal(key K, n int64, err error) policy.Decision {
	d := c.Probe(key, n)
	switch {
	case d.RetryAfter == policy.Never:
	case errors.Is(err, ErrClosed) || errors.Is(err, ErrUnavailable):
		d = policy.Decision{Limit: d.Limit, RetryAfter: c.openTimeout} // a guess, as for Take
	case d.Allowed:
		d = c.Probe(key, 0) // it has taken nothing
		d.RetryAfter = 1    // others are before it
	}
	d.Allowed = false
	return d
}

// acquire is Acquire, and counts nothing. If there is an error, only Waited says anything.
func (c *Cell[K]) acquire(
	ctx context.Context, key K, n int64, patience time.Duration,
) (r Reservation[K], basis Basis, err error) {
	if ctx.Err() != nil {
		return r, basis, Cancelled(ctx)
	}
	if c.closed.Load() {
		return r, basis, ErrClosed
	}
	q := request{n: n, patience: noDelay, limit: c.chosen(key)}
	if !c.lines.has(c, key) {
		r, basis = c.reserve(key, &q) // no call waits
	} else {
		r.Decision = c.probe(key, &request{limit: q.limit})
		r.Allowed = r.Allowed && n == 0
		if n < 0 || n > r.Limit {
			r.RetryAfter, basis = policy.Never, BasisOf(r.Decision)
		}
	}
	switch {
	case n == 0, r.Allowed:
		return r, basis, nil
	case basis.lost && 0 < n && n <= r.Limit:
		return r, basis, ErrUnavailable
	case r.RetryAfter == policy.Never:
		return r, basis, Never(n, r.Decision)
	case r.RetryAfter > patience:
		return r, basis, fmt.Errorf("%w: %v to wait, %v at the most", ErrDeadline, r.RetryAfter, patience)
	}
	return c.queueUp(ctx, key, &q, patience)
}

// queueUp waits in the key's line.
func (c *Cell[K]) queueUp(
	ctx context.Context, key K, q *request, patience time.Duration,
) (r Reservation[K], basis Basis, err error) {
	ended := ctx.Done()
	began := time.Now()
	w := &waiting[K]{n: q.n, limit: q.limit, signal: make(chan struct{}, 1)}
	// The line is locked but while the call sleeps, so that whatever ends this
	// function, a policy that panics too, leaves the line to others.
	l := c.lines.join(c, key)
	defer l.release()
	if err := l.admit(ctx, w, patience); err != nil {
		return r, basis, err
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
			return w.taken, w.basis, w.err
		}
		left := patience
		if patience < forever {
			left -= time.Since(began)
		}
		if left <= 0 {
			return r, basis, fmt.Errorf("%w: it did not come within %v", ErrDeadline, patience)
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
			return r, basis, Cancelled(ctx)
		case closed:
			return r, basis, ErrClosed
		}
	}
}

// Never returns ErrNever for a call of n units that d refuses.
func Never(n int64, d policy.Decision) error {
	if d.Limit == 0 {
		return fmt.Errorf("%w: engine.PolicyFor chose a policy of another family for this key", ErrNever)
	}
	return fmt.Errorf("%w: %d of at most %d", ErrNever, n, d.Limit)
}

// Cancelled returns ErrCancelled with the context's error, and with its cause if that is
// another.
func Cancelled(ctx context.Context) error {
	err, cause := ctx.Err(), context.Cause(ctx)
	if errors.Is(cause, err) {
		return fmt.Errorf("%w: %w", ErrCancelled, cause)
	}
	return fmt.Errorf("%w: %w: %w", ErrCancelled, err, cause)
}
