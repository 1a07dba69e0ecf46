package fleet

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/rueidis"

	"github.com/ral-limiter/ral/cell"
	"github.com/ral-limiter/ral/engine"
	"github.com/ral-limiter/ral/fleet/internal/blocklist"
	"github.com/ral-limiter/ral/fleet/internal/guard"
	"github.com/ral-limiter/ral/fleet/internal/lease"
	"github.com/ral-limiter/ral/fleet/internal/share"
	"github.com/ral-limiter/ral/fleet/internal/store"
	"github.com/ral-limiter/ral/policy"
)

const (
	// callTimeout bounds a request whose caller has gone: long enough to make a connection.
	callTimeout = 2 * time.Second
	// maxInFlight bounds the calls under way, some 10 ms of a Redis that decides 100,000 a second.
	maxInFlight = 1024
	// silence is how long Redis may be silent. A busy scheduler leaves answers unread for less.
	silence = 200 * time.Millisecond
	// A breaker opens at the third failure in a row, and probes first after 50 ms, later every half
	// second. So it closes within a second of the end of an outage.
	failures      = 3
	pause         = 50 * time.Millisecond
	longestPause  = 500 * time.Millisecond
	connectBudget = time.Second // of New
)

// Limiter limits how often each key may act, over all servers with the same Name. New makes it; the
// zero value is of no use. Its methods may be called by any number of goroutines.
//
// Use Choke for yes or no, Take for several units or the time to wait, and Peek to look. Wait and
// Reserve are for calls that may come later, TakeAll for several keys at once.
//
// A key is any string of up to 64 KiB. Redis knows the empty key, keys longer than 128 bytes and
// keys with a closing brace by their SHA-256. The Answer tells of an outage of Redis, which is no
// error. Errors are the caller's: a too long key, a context that ended, a closed limiter.
type Limiter struct {
	config  Config
	own     atomic.Pointer[terms] // of calls that bring no limit
	others  otherTerms            // of those that do
	byLimit sync.Map              // *store.Limit to *terms, of those that have a share
	change  change                // of own
	maker   *store.Store          // of limits; it has no client
	conn    *connection
	remote  atomic.Pointer[remote]
	guard   *guard.Guard          // of a cluster, for all of it
	guarded guard.Config          // of all guards
	nodes   atomic.Pointer[nodes] // of a cluster
	// openingsBefore counts breaker openings of forgotten nodes; forgotten waits for their guards.
	openingsBefore atomic.Uint64
	forgotten      sync.WaitGroup
	batch          *guard.Batch[store.TakeAsk, store.Taken]
	local          *share.Local // of the own terms; nil except for FallbackShare
	state          *stateFile   // nil without Config.StateFile
	chain          []link       // that decide calls
	leased         *leased      // the first of them, or nil except in Leased mode
	known          *blocklist.List
	servers        atomic.Int64 // counted last
	waiters        waiters
	tally          tally
	trips          guard.Trips

	ctx     context.Context // of the keeper
	stop    context.CancelFunc
	wake    chan struct{} // has a slot: the keeper has something to look at
	kept    chan struct{} // closed when the keeper has ended
	closing sync.Once
	closed  atomic.Bool

	trouble  atomic.Pointer[error] // why not to ask Redis although it answers, or nil
	conflict atomic.Pointer[error] // how the limits of this Name's servers differ, if an error
}

// remote is Redis, once there is a client.
type remote struct {
	client rueidis.Client
	store  decider
	bank   *lease.OnStore // nil except in Leased mode
}

// decider is a *store.Store, whose methods it has, or a fake in tests.
type decider interface {
	lease.Store
	TakeOne(ctx context.Context, ask store.TakeAsk) (store.Taken, error)
	TakeEach(ctx context.Context, asks []store.TakeAsk, reply func(i int, t store.Taken, err error))
	TakeAll(ctx context.Context, asks []store.Ask) ([]store.Taken, error)
	Refund(ctx context.Context, l *store.Limit, key string, n int64) (store.Taken, error)
	Keep(ctx context.Context, l *store.Limit, key string, t store.Taken, n, kept int64) (store.Taken, error)
	Delete(ctx context.Context, l *store.Limit, key string) (bool, error)
	Block(ctx context.Context, key string, d time.Duration) (store.Standing, bool, error)
	ChargeEach(ctx context.Context, l *store.Limit, debts []store.Debt) []error
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

// New checks the configuration and starts a limiter. It waits up to a second for Redis. The error
// is a *policy.FieldError that names the field, or ErrStateFile. If Redis does not answer, the
// limiter starts all the same and tells Config.OnEvent, unless Config.RequireRedis makes New fail.
// Call Close to end the limiter's goroutines.
func New(config Config) (*Limiter, error) {
	config = config.withDefaults()
	if err := config.validate(); err != nil {
		return nil, err
	}
	l := &Limiter{
		config: config,
		wake:   make(chan struct{}, 1),
		kept:   make(chan struct{}),

		known:   blocklist.New(config.MaxKeys, store.Short),
		waiters: waiters{mostPerKey: config.MaxWaiting, most: config.MaxWaitingTotal},
	}
	kept := config.Policy
	l.chain = []link{exact{l, byRedis}, fallback{l}}
	if config.Mode == Leased {
		plan, err := lease.NewPlan(config.Policy, config.Term)
		if err != nil {
			return nil, err
		}
		l.leased, kept = &leased{Limiter: l, plan: plan}, plan.Policy
		l.chain = []link{l.leased, exact{l, besideLeases}, fallback{l}}
	}
	// The check of the policy does not depend on Redis.
	l.maker = store.New(nil, l.storeOptions())
	limit, err := l.maker.Limit(kept)
	if err != nil {
		return nil, err
	}
	if err := lasting(config, limit.Lasts()); err != nil {
		return nil, err
	}
	if config.Outage == FallbackShare {
		local, err := share.New(share.Config{
			Policy: config.anchored(config.Policy), Servers: config.Servers, MaxKeys: config.MaxKeys, Full: config.FullShares, Name: store.Short,
		})
		if err != nil {
			return nil, err
		}
		l.local = local
	}
	own := newTerms(config.Policy, limit, l.local)
	l.own.Store(own)
	l.byLimit.Store(limit, own)
	l.guarded = guard.Config{
		Budget: config.Budget, CallTimeout: max(callTimeout, 2*exchangeBudgets*config.Budget), MaxInFlight: maxInFlight,
		Silence: max(silence, config.Budget), Failures: failures, Pause: pause, Longest: longestPause,
		Failed: countsAsFailure, OnChange: l.nudge, Trips: &l.trips,
	}
	l.guard = guard.New(l.guarded)
	l.batch = guard.NewBatch(l.guard, func(ctx context.Context, asks []store.TakeAsk, reply func(int, store.Taken, error)) {
		l.remote.Load().store.TakeEach(ctx, asks, reply)
	})
	why := fmt.Errorf("%w: %w", ErrOutage, errConnecting)
	if config.connected() {
		why = fmt.Errorf("%w to %s", why, strings.Join(config.Redis.InitAddress, ", "))
	}
	l.trouble.Store(&why)
	l.servers.Store(int64(config.Servers))
	l.ctx, l.stop = context.WithCancel(context.Background())

	if l.leased != nil {
		leases, err := lease.New(lease.Config{
			Plan: l.leased.plan, Bank: bank{l}, Name: store.Short, MaxKeys: config.MaxKeys,
			Timeout: max(callTimeout, 2*exchangeBudgets*config.Budget), // the bank has its own
			Servers: func() int { return max(int(l.servers.Load()), 1) },
			Blocked: func(key string) bool { return l.blockedFor(key, policy.Never) > 0 },
		})
		if err != nil {
			l.stop()
			l.guard.Close()
			return nil, err
		}
		l.leased.leases = leases
	}
	if config.StateFile != "" {
		state, err := openState(config, l.local)
		if err != nil {
			if l.leased != nil {
				err = errors.Join(err, l.leased.leases.Close(l.ctx))
			}
			l.stop()
			l.guard.Close()
			return nil, err
		}
		l.state = state
		go state.keep(l.ctx, l.nudge)
	}
	l.conn = connect(l)
	ready := make(chan struct{})
	go l.keep(sync.OnceFunc(func() { close(ready) }))
	timer := time.NewTimer(connectBudget)
	defer timer.Stop()
	select {
	case <-ready:
	case <-timer.C:
	}
	if config.RequireRedis {
		if _, err := l.reach(); err != nil {
			return nil, errors.Join(fmt.Errorf("ral: fleet.Config: RequireRedis: %w", err), l.Close())
		}
	}
	return l, nil
}

func (l *Limiter) storeOptions() store.Options {
	c := l.config
	return store.Options{Name: c.Name, Tag: c.Tag, Epoch: c.Epoch, Clock: c.clock, Penalty: penaltyRule(c.Penalty)}
}

func (l *Limiter) newRemote(client rueidis.Client) *remote {
	r := &remote{client: client}
	if fake := l.conn.fake; fake != nil {
		r.store = fake(l.storeOptions())
	} else {
		r.store = store.New(client, l.storeOptions())
	}
	if l.leased != nil {
		r.bank = lease.NewOnStore(r.store, l.leased.plan, l.own.Load().limit)
	}
	return r
}

// nudge wakes the keeper, without waiting.
func (l *Limiter) nudge() {
	select {
	case l.wake <- struct{}{}:
	default: // it is about to look
	}
}

// Health returns nil while Redis is asked and all servers keep the same limit. Otherwise it returns
// ErrOutage with the cause, and the remedy if Redis told it. If a node of a cluster is away, the
// error names it, and Redis still answers for other nodes. ErrLimits names the limits, and Redis
// still answers. Other errors are ErrStateFile, if units to be charged cannot be saved, and
// engine.ErrClosed.
func (l *Limiter) Health() error {
	if err := l.away(); err != nil {
		return err
	}
	if _, why := l.openNodes(); why != nil {
		return why
	}
	if why := l.conflict.Load(); why != nil {
		return *why
	}
	return l.unsaved()
}

// unsaved returns why units to be charged could not be saved, or nil.
func (l *Limiter) unsaved() error {
	if l.state != nil {
		if why := l.state.failed.Load(); why != nil {
			return *why
		}
	}
	return nil
}

// away returns why Redis is not asked, or nil.
func (l *Limiter) away() error {
	if l.closed.Load() {
		return engine.ErrClosed
	}
	if _, err := l.reach(); err != nil {
		return l.uncounted(err)
	}
	if open, why := l.guard.Open(); open {
		return l.uncounted(asOutage(why))
	}
	if l.leased != nil {
		return l.leased.leases.Health()
	}
	return nil
}

// uncounted adds ErrUncounted to a cause if there is no share.
func (l *Limiter) uncounted(cause error) error {
	if l.local != nil && l.local.Servers() == 0 {
		return fmt.Errorf("%w; %w", cause, ErrUncounted)
	}
	return cause
}

// reach returns Redis, or why it is not to be asked.
func (l *Limiter) reach() (*remote, error) {
	if why := l.trouble.Load(); why != nil {
		return nil, *why
	}
	return l.remote.Load(), nil
}

// Close ends the limiter's goroutines and waits for them, some seconds at most, or until OnEvent
// returns. Uncharged units are saved to Config.StateFile, if set, and otherwise stay uncharged.
// Calls under way and later get engine.ErrClosed. Close may be called again. It returns nil unless
// a goroutine did not end in time, or ErrStateFile if saving failed.
func (l *Limiter) Close() error {
	var err error
	l.closing.Do(func() {
		l.closed.Store(true)
		if l.leased != nil {
			ctx, cancel := context.WithTimeout(context.Background(), callTimeout)
			defer cancel()
			err = l.leased.leases.Close(ctx)
		}
		l.stop()
		<-l.kept
		l.closeGuards()
		l.conn.leave(l)
		if l.state != nil {
			<-l.state.kept
			l.credit() // since the keeper ended
			// From now on a take from the share finds the limiter closed and is not answered.
			err = errors.Join(err, l.state.close())
		}
	})
	return err
}

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
		return engine.ErrClosed
	}
}
