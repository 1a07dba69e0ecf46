package fleet

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ral-limiter/ral/cell"
	"github.com/ral-limiter/ral/fleet/internal/store"
	"github.com/ral-limiter/ral/policy"
)

// Reservation is what Reserve has taken, with the answer about it. If it is Allowed, act
// after Wait, or call Cancel. Its methods are for one goroutine at a time. A copy must
// not be cancelled as well.
type Reservation struct {
	Answer
	limiter *Limiter
	key     string
	n       int64
	taken   taken
}

// Reserve takes n units for the key if they can be used within patience, and says after
// what Wait. 0 is for at once, but under a policy.Queue for as long as that is. It is
// Take for callers that can come later, or may change their minds: the units are taken
// now, so that no other call in the fleet is promised the same turn. Leased mode has no
// turns to promise: the error is ErrModeUnsupported there.
func (l *Limiter) Reserve(ctx context.Context, key string, n int64, patience time.Duration) (*Reservation, error) {
	if l.leases != nil {
		return nil, ErrModeUnsupported
	}
	t, err := l.take(ctx, key, n, patience)
	if err != nil {
		return nil, err
	}
	return &Reservation{Answer: t.answer, limiter: l, key: key, n: n, taken: t}, nil
}

// Cancel gives back what was reserved, as far as that leaves to later reservations what
// they were promised: see policy.Refunder. What others give back is not counted here,
// so that of a Funnel nothing comes back if another call took since. If the error is
// not nil, ErrOutage for one, the units still count, or Redis was too late to say.
// Calling Cancel again does nothing in any case, nor does it for a refused reservation.
func (r *Reservation) Cancel(ctx context.Context) error {
	t := r.taken
	r.taken = taken{}
	switch {
	case !t.answer.Allowed || r.n == 0:
		return nil
	case t.answer.Source == SourceShare:
		t.local.Cancel()
		return nil
	case t.answer.Source != SourceRedis:
		return nil // nothing was recorded
	}
	_, err := ask(ctx, r.limiter, func(ctx context.Context, remote *remote) (store.Taken, error) {
		return remote.store.Cancel(ctx, remote.limit, r.key, t.exact, r.n)
	})
	if why := (noAnswer{}); errors.As(err, &why) {
		return why.cause
	}
	return err
}

// Wait blocks until n units can be used, and takes them. It returns nil if it did.
// Redis hands out turns to all servers. Calls for as many units are served in the order
// in which they asked.
//
// The error wraps one of ErrNever, ErrDeadline, ErrCancelled, ErrClosed and those of
// Take; nothing was taken then, or it was given back as by Reservation.Cancel. ErrDeadline
// comes at once, when the turn would come after the deadline.
//
// Without Redis it waits for this server's share; under FallbackClosed, for Redis. A call
// whose context has no deadline is promised a turn however far away that is. All later
// calls have to wait for it, also those that do not Wait. In Leased mode there are no
// turns: the call asks again when this server does.
func (l *Limiter) Wait(ctx context.Context, key string, n int64) error {
	for {
		patience := policy.Never
		deadline, ends := ctx.Deadline()
		if ends {
			patience = time.Until(deadline)
		}
		if ctx.Err() != nil {
			return cell.Cancelled(ctx)
		}
		// A call that ends meanwhile still learns what it has to give back.
		t, err := l.take(context.WithoutCancel(ctx), key, n, patience)
		switch {
		case err != nil:
			return err
		case t.answer.Allowed:
			return l.await(ctx, &Reservation{Answer: t.answer, limiter: l, key: key, n: n, taken: t})
		case t.answer.RetryAfter == policy.Never:
			return fmt.Errorf("%w: %d of at most %d", ErrNever, n, l.limit)
		case ends && t.answer.RetryAfter > time.Until(deadline):
			return fmt.Errorf("%w: %w", ErrDeadline, context.DeadlineExceeded)
		}
		if err := l.sleep(ctx, t.answer.RetryAfter); err != nil {
			return err
		}
	}
}

// await waits for the turn of a reservation, or gives it back.
func (l *Limiter) await(ctx context.Context, r *Reservation) error {
	err := l.sleep(ctx, r.Wait)
	if err != nil {
		// What cannot be given back counts.
		_ = r.Cancel(context.WithoutCancel(ctx))
	}
	return err
}

// sleep waits, or returns why it did not.
func (l *Limiter) sleep(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return nil
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return cell.Cancelled(ctx)
	case <-l.ctx.Done():
		return ErrClosed
	}
}
