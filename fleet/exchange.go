package fleet

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/ral-limiter/ral/engine"
	"github.com/ral-limiter/ral/fleet/internal/guard"
	"github.com/ral-limiter/ral/fleet/internal/store"
)

// about has Redis do something about a key within the budget. The error is a noAnswer,
// engine.ErrClosed or the caller's.
func about[T any](ctx context.Context, l *Limiter, t *terms, key string, do func(context.Context, decider) (T, error)) (value T, err error) {
	if err := store.CheckKey(key); err != nil {
		return value, err
	}
	return askWithin(ctx, l, l.guardOf(t, key), l.config.Budget, do)
}

func askWithin[T any](ctx context.Context, l *Limiter, g *guard.Guard, budget time.Duration, do func(context.Context, decider) (T, error)) (value T, err error) {
	r, err := l.mayAsk(ctx)
	if err != nil {
		return value, err
	}
	value, err = guard.DoWithin(ctx, g, budget, func(ctx context.Context) (T, error) { return do(ctx, r.store) })
	return value, l.classify(ctx, err)
}

// askOnce is askWithin for a change that the fallback makes otherwise. An unsent request never is
// sent. If it was sent and may be done, the error says so: see noAnswer.
func askOnce[T any](ctx context.Context, l *Limiter, g *guard.Guard, budget time.Duration, do func(context.Context, decider) (T, error)) (T, error) {
	// The first swap decides: by the goroutine that sends, or by the call that gives up.
	const sent, dropped = 1, 2
	var fate atomic.Int32
	value, err := askWithin(ctx, l, g, budget, func(ctx context.Context, s decider) (value T, err error) {
		if fate.CompareAndSwap(0, sent) {
			value, err = do(ctx, s)
		}
		return value, err
	})
	if err == nil {
		return value, nil
	}
	unsent := fate.CompareAndSwap(0, dropped)
	if why, passes := err.(noAnswer); passes { //nolint:errorlint // askWithin does not wrap it
		why.mayBeDone = !unsent && !notExecuted(why.cause)
		err = why
	}
	return value, err
}

// askTake is ask for a take. l.batch sends it with others. In a cluster it goes alone, so that it
// cannot wait for a node without its key that is away.
func (l *Limiter) askTake(ctx context.Context, terms *terms, ask store.TakeAsk) (t store.Taken, err error) {
	ask.Limit = terms.limit
	r, err := l.mayAsk(ctx)
	if err != nil {
		return t, err
	}
	if r.clustered() {
		t, err = guard.Do(ctx, l.guardOf(terms, ask.Key), func(ctx context.Context) (store.Taken, error) {
			return r.store.TakeOne(ctx, ask)
		})
	} else {
		t, err = l.batch.Do(ctx, ask)
	}
	return t, l.classify(ctx, err)
}

func (l *Limiter) mayAsk(ctx context.Context) (*remote, error) {
	if l.closed.Load() {
		return nil, engine.ErrClosed
	}
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	r, cause := l.reach()
	if cause != nil {
		return nil, noAnswer{cause: cause}
	}
	return r, nil
}

// classify returns the error of ask: a noAnswer if the fallback is to answer.
func (l *Limiter) classify(ctx context.Context, err error) error {
	switch {
	case err == nil:
		return nil
	case l.closed.Load():
		return engine.ErrClosed
	case ctx.Err() != nil && errors.Is(err, context.Cause(ctx)), isCallerError(err):
		return err
	}
	return noAnswer{cause: l.noteUnfit(err)}
}

// noteUnfit stops calls to a Redis that answered that it is unfit, and returns the cause that
// callers are told. If Redis is known to be in trouble, the answer is no news. The cause must be an
// answer of Redis: reach's error may be of a trouble that has ended since.
func (l *Limiter) noteUnfit(cause error) error {
	cause = asOutage(cause)
	if isUnfit(cause) && l.trouble.CompareAndSwap(nil, &cause) {
		l.nudge()
	}
	return cause
}
