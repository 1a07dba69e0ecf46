package fleet

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/rueidis"

	"github.com/ral-limiter/ral/engine"
	"github.com/ral-limiter/ral/fleet/internal/guard"
	"github.com/ral-limiter/ral/fleet/internal/lease"
	"github.com/ral-limiter/ral/fleet/internal/store"
)

const (
	// callTimeout bounds a request whose caller has gone: long enough to make a connection.
	callTimeout = 2 * time.Second
	// maxInFlight bounds the calls under way, some 10 ms of a Redis that decides 100,000 a second.
	maxInFlight = 1024
	// silence is how long Redis may be silent. A busy scheduler leaves answers unread for less.
	silence = 200 * time.Millisecond
	// A breaker opens at the third failure in a row, and probes first after 50 ms, later every half
	// second. So a breaker closes within a second of the end of an outage.
	failures = 3
	pause    = 50 * time.Millisecond
	maxPause = 500 * time.Millisecond
	// connectBudget is New's.
	connectBudget = time.Second
)

// access is the way to Redis: a connection, and guards for the calls on it.
type access struct {
	// budget is Config.Budget.
	budget time.Duration
	conn   *connection
	remote atomic.Pointer[remote]
	// trouble is the reason not to ask Redis although Redis answers, or nil.
	trouble atomic.Pointer[error]
	closed  atomic.Bool
	// wake has a slot: the keeper has something to look at.
	wake chan struct{}

	// guard is that of the whole cluster.
	guard *guard.Guard
	// guarded is the configuration of all guards.
	guarded guard.Config
	// nodes are a cluster's.
	nodes atomic.Pointer[nodes]
	batch *guard.Batch[store.TakeAsk, store.Taken]
	trips guard.Trips
	// openingsBefore counts breaker openings of forgotten nodes; forgotten waits for their guards.
	openingsBefore atomic.Uint64
	forgotten      sync.WaitGroup
}

// remote is Redis, once there is a client.
type remote struct {
	client rueidis.Client
	store  decider
}

// decider is a *store.Store, whose methods it has. It is an interface so that tests decide without a Redis.
type decider interface {
	lease.Store
	TakeOne(ctx context.Context, ask store.TakeAsk) (store.Taken, error)
	TakeEach(ctx context.Context, asks []store.TakeAsk, reply func(i int, t store.Taken, err error))
	TakeAll(ctx context.Context, asks []store.Ask) ([]store.Taken, error)
	TakeTenant(ctx context.Context, a store.TenantAsk) (store.TenantTaken, error)
	Refund(ctx context.Context, l *store.Limit, key string, n int64) (store.Taken, error)
	Keep(ctx context.Context, l *store.Limit, key string, t store.Taken, n, kept int64) (store.Taken, error)
	Delete(ctx context.Context, l *store.Limit, key string) (bool, error)
	Block(ctx context.Context, key string, d time.Duration) (store.Standing, error)
	ChargeEach(ctx context.Context, l *store.Limit, debts []store.Debt) []error
	Confirm(ctx context.Context, l *store.Limit, slots []store.Confirm) (store.Confirmed, error)
	Release(ctx context.Context, l *store.Limit, key, id string, n int64) (int64, error)
	Heartbeat(ctx context.Context, b store.Beat) (store.Roll, error)
	Leave(ctx context.Context, id string) error
	Check(ctx context.Context, wait time.Duration) error
	Slots(ctx context.Context) ([]store.SlotRange, error)
	Probe(ctx context.Context, name string) error
}

// clustered reports whether Redis is a cluster.
func (r *remote) clustered() bool {
	return r.client != nil && r.client.Mode() == rueidis.ClientModeCluster
}

// nudge wakes the keeper, without waiting.
func (a *access) nudge() { wake(a.wake) }

// wake wakes the goroutine that reads from a channel with one slot. If the slot is taken, the
// goroutine is about to look.
func wake(slot chan<- struct{}) {
	select {
	case slot <- struct{}{}:
	default:
	}
}

// reach returns Redis, or the reason not to ask it.
func (a *access) reach() (*remote, error) {
	if why := a.trouble.Load(); why != nil {
		return nil, *why
	}
	return a.remote.Load(), nil
}

// about has Redis do something about a key within the budget. The error is a noAnswer,
// engine.ErrClosed or the caller's.
func about[T any](ctx context.Context, access *access, terms *terms, key string, do func(context.Context, decider) (T, error)) (value T, err error) {
	if err := store.CheckKey(key); err != nil {
		return value, err
	}
	return askWithin(ctx, access, access.guardOf(terms, key), access.budget, do)
}

func askWithin[T any](ctx context.Context, access *access, breaker *guard.Guard, budget time.Duration, do func(context.Context, decider) (T, error)) (value T, err error) {
	remote, err := access.mayAsk(ctx)
	if err != nil {
		return value, err
	}
	value, err = guard.DoWithin(ctx, breaker, budget, func(ctx context.Context) (T, error) { return do(ctx, remote.store) })
	return value, access.classify(ctx, err)
}

// askOnce is askWithin for a change that the fallback makes otherwise. An unsent request is never
// sent later. If the request was sent and may be done, the error says so: see noAnswer.
func askOnce[T any](ctx context.Context, access *access, breaker *guard.Guard, budget time.Duration, do func(context.Context, decider) (T, error)) (T, error) {
	// The first swap decides: by the goroutine that sends, or by the call that gives up.
	const sent, dropped = 1, 2
	var fate atomic.Int32
	value, err := askWithin(ctx, access, breaker, budget, func(ctx context.Context, decider decider) (value T, err error) {
		if fate.CompareAndSwap(0, sent) {
			value, err = do(ctx, decider)
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

// askTake asks Redis for a take. a.batch sends it with others. In a cluster the take goes alone, so
// that it cannot wait for an absent node without its key.
func (a *access) askTake(ctx context.Context, terms *terms, ask store.TakeAsk) (taken store.Taken, err error) {
	ask.Limit = terms.limit
	remote, err := a.mayAsk(ctx)
	if err != nil {
		return taken, err
	}
	if remote.clustered() {
		taken, err = guard.Do(ctx, a.guardOf(terms, ask.Key), func(ctx context.Context) (store.Taken, error) {
			return remote.store.TakeOne(ctx, ask)
		})
	} else {
		taken, err = a.batch.Do(ctx, ask)
	}
	return taken, a.classify(ctx, err)
}

func (a *access) mayAsk(ctx context.Context) (*remote, error) {
	if a.closed.Load() {
		return nil, engine.ErrClosed
	}
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	remote, cause := a.reach()
	if cause != nil {
		return nil, noAnswer{cause: cause}
	}
	return remote, nil
}

// classify returns the error for the caller of a request to Redis: a noAnswer if the fallback is to
// answer.
func (a *access) classify(ctx context.Context, err error) error {
	switch {
	case err == nil:
		return nil
	case a.closed.Load():
		return engine.ErrClosed
	case ctx.Err() != nil && errors.Is(err, context.Cause(ctx)), isCallerError(err):
		return err
	}
	return noAnswer{cause: a.noteUnfit(err)}
}

// noteUnfit stops calls to a Redis that said it is unfit, and returns the cause that
// callers are told. If Redis is known to be in trouble, the answer is no news. The cause must be an
// answer of Redis: reach's error may be of a trouble that has ended since.
func (a *access) noteUnfit(cause error) error {
	cause = asOutage(cause)
	if isUnfit(cause) && a.trouble.CompareAndSwap(nil, &cause) {
		a.nudge()
	}
	return cause
}
