package cell

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ral-limiter/ral/internal/core/waitline"
	"github.com/ral-limiter/ral/policy"
)

// Wait is Acquire bounded only by its context, for units that are not given back.
func (c *Cell[K]) Wait(ctx context.Context, key K, n int64) error {
	var decision policy.Decision
	if c.takeAtOnce(ctx, key, n, &decision, nil) {
		return nil
	}
	var held Held[K]
	_, basis, err := c.acquire(ctx, key, &request{n: n, patience: noDelay, choice: c.orChosen(nil, key)}, forever, &decision, &held)
	if n != 0 {
		due := c.CountOnly(err == nil, basis)
		due.punish = due.punish && !errors.Is(err, ErrNever)
		c.Finish(key, &decision, due)
	}
	return err
}

// Acquire takes n units for the key, and waits in its line if there is no room, or if other calls
// wait. It answers in decision, and holds the units in held. waited is the time in line. With an error the
// decision is a refusal and nothing is held.
func (c *Cell[K]) Acquire(
	ctx context.Context, key K, n int64, patience time.Duration, decision *policy.Decision, held *Held[K],
) (waited time.Duration, err error) {
	if c.takeAtOnce(ctx, key, n, decision, held) {
		return 0, nil
	}
	waited, _, err = c.AcquireWith(ctx, nil, key, n, patience, decision, held)
	return waited, err
}

// takeAtOnce is acquire, and a count, for a known key with room. Otherwise it returns false.
func (c *Cell[K]) takeAtOnce(ctx context.Context, key K, n int64, decision *policy.Decision, held *Held[K]) bool {
	if ctx.Err() != nil || c.closed.Load() {
		return false
	}
	entry, hash, now := c.locate(key)
	return entry != nil && c.takeKnown(entry, hash, now, n, noDelay, decision, held)
}

func (c *Cell[K]) refusal(limit policy.Policy, key K, n int64, err error) policy.Decision {
	var decision policy.Decision
	q := request{n: n, patience: noDelay, choice: c.orChosen(limit, key)}
	c.refuseBehind(key, &q, &decision)
	if decision.RetryAfter != policy.Never && (errors.Is(err, ErrClosed) || errors.Is(err, ErrUnavailable)) {
		// The time is a guess, as for Take.
		decision = policy.Decision{Limit: decision.Limit, RetryAfter: c.openTimeout}
	}
	return decision
}

// acquire is Acquire for q, which has noDelay, without a count. With an error, decision and held are
// undefined.
func (c *Cell[K]) acquire(
	ctx context.Context, key K, q *request, patience time.Duration, decision *policy.Decision, held *Held[K],
) (waited time.Duration, basis Basis, err error) {
	if ctx.Err() != nil {
		return 0, Basis{reason: ended}, Cancelled(ctx)
	}
	if c.closed.Load() {
		return 0, Basis{reason: shut}, ErrClosed
	}
	if !c.lines.Has(key) {
		// No call waits.
		basis = c.reserve(key, q, decision, held)
	} else {
		basis = c.probe(key, &request{choice: q.choice}, decision)
		decision.Allowed = decision.Allowed && q.n == 0
		if q.n < 0 || q.n > decision.Limit {
			decision.RetryAfter = policy.Never
		}
	}
	if decision.Allowed {
		return 0, basis, nil
	}
	waited, basis, err = c.waitInLine(ctx, key, q, patience, basis, decision, held)
	return waited, basis.endedBy(err), err
}

// endedBy returns the basis of a waiting call that ended with err.
func (b Basis) endedBy(err error) Basis {
	var why missing
	switch {
	case err == nil:
		return b
	case errors.Is(err, ErrDeadline):
		why = late
	case errors.Is(err, ErrCrowded):
		why = crowded
	case errors.Is(err, ErrUnavailable):
		why = unavailable
	case errors.Is(err, ErrCancelled):
		return Basis{reason: ended}
	case errors.Is(err, ErrClosed):
		return Basis{reason: shut}
	}
	if b.reason == 0 {
		b.reason = why
	}
	return b
}

// waitInLine is acquire for a call that decision refused.
func (c *Cell[K]) waitInLine(
	ctx context.Context, key K, request *request, patience time.Duration, refused Basis, decision *policy.Decision, held *Held[K],
) (waited time.Duration, basis Basis, err error) {
	n := request.n
	switch {
	case refused.lost && 0 < n && n <= decision.Limit:
		return 0, refused, ErrUnavailable
	case decision.RetryAfter == policy.Never:
		return 0, refused, never(n, *decision, refused)
	case refused.reason == blocked && n == 0:
		return 0, refused, fmt.Errorf("%w: the key is blocked, %v to wait", ErrDeadline, decision.RetryAfter)
	case decision.RetryAfter > patience && !(c.occupied && patience > 0 && refused.reason != blocked):
		return 0, refused, fmt.Errorf("%w: %v to wait, %v at the most", ErrDeadline, decision.RetryAfter, patience)
	}
	if deadline, ok := ctx.Deadline(); ok && refused.reason == blocked {
		// The line's forecasts go by the limit alone.
		if left := time.Until(deadline); decision.RetryAfter > left {
			return 0, refused, fmt.Errorf("%w (%w): the key is blocked, %v to wait, %v left", ErrDeadline, context.DeadlineExceeded, decision.RetryAfter, left)
		}
	}
	w := &waiter[K]{cell: c, key: key, n: n, choice: request.choice}
	waited, err = c.lines.Wait(ctx, key, w, patience)
	if err == nil {
		*decision, *held = w.taken, w.held
	}
	return waited, w.basis, err
}

func never(n int64, decision policy.Decision, basis Basis) error {
	if basis.reason == misfit {
		return fmt.Errorf("%w: engine.PolicyFor chose a policy of another family for this key", ErrNever)
	}
	return fmt.Errorf("%w: %d of at most %d", ErrNever, n, decision.Limit)
}

// Cancelled returns ErrCancelled with the context's error, and with its cause if different.
func Cancelled(ctx context.Context) error { return waitline.Cancelled(ctx) }
