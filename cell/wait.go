package cell

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ral-limiter/ral/internal/waitline"
	"github.com/ral-limiter/ral/policy"
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
	d, _ := c.Probe(key, n)
	switch {
	case d.RetryAfter == policy.Never:
	case errors.Is(err, ErrClosed) || errors.Is(err, ErrUnavailable):
		d = policy.Decision{Limit: d.Limit, RetryAfter: c.openTimeout} // a guess, as for Take
	case d.Allowed:
		d, _ = c.Probe(key, 0) // it has taken nothing
		d.RetryAfter = 1       // others are before it
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
	if !c.lines.Has(key) {
		r, basis = c.reserve(key, &q) // no call waits
	} else {
		r.Decision, basis = c.probe(key, &request{limit: q.limit})
		r.Allowed = r.Allowed && n == 0
		if n < 0 || n > r.Limit {
			r.RetryAfter = policy.Never
		}
	}
	switch {
	case r.Allowed:
		return r, basis, nil
	case basis.lost && 0 < n && n <= r.Limit:
		return r, basis, ErrUnavailable
	case r.RetryAfter == policy.Never:
		return r, basis, never(n, r.Decision, basis)
	case r.RetryAfter > patience:
		return r, basis, fmt.Errorf("%w: %v to wait, %v at the most", ErrDeadline, r.RetryAfter, patience)
	}
	w := &waiter[K]{cell: c, key: key, n: n, limit: q.limit}
	waited, err := c.lines.Wait(ctx, key, w, patience)
	if err == nil {
		r = w.taken
	}
	r.Waited = waited
	return r, w.basis, err
}

// never returns ErrNever for a call of n units that d refuses.
func never(n int64, d policy.Decision, b Basis) error {
	if b.missing == misfit {
		return fmt.Errorf("%w: engine.PolicyFor chose a policy of another family for this key", ErrNever)
	}
	return fmt.Errorf("%w: %d of at most %d", ErrNever, n, d.Limit)
}

// Cancelled returns ErrCancelled with the context's error, and with its cause if that is
// another.
func Cancelled(ctx context.Context) error { return waitline.Cancelled(ctx) }
