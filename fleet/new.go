package fleet

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/ral-limiter/ral/fleet/internal/blocklist"
	"github.com/ral-limiter/ral/fleet/internal/guard"
	"github.com/ral-limiter/ral/fleet/internal/lease"
	"github.com/ral-limiter/ral/fleet/internal/lease/plan"
	"github.com/ral-limiter/ral/fleet/internal/share"
	"github.com/ral-limiter/ral/fleet/internal/store"
	"github.com/ral-limiter/ral/policy"
)

// New checks the configuration and starts a limiter. New waits up to a second for Redis. The error
// is a *policy.FieldError that names the field, or ErrStateFile. If Redis does not answer, the
// limiter starts all the same and tells Config.OnEvent, unless Config.RequireRedis makes New fail.
// Call Close to end the limiter's goroutines.
func New(config Config) (*Limiter, error) {
	config = config.withDefaults()
	if err := config.validate(); err != nil {
		return nil, err
	}
	limiter := &Limiter{
		catalog: catalog{config: config},
		access:  access{budget: config.Budget, wake: make(chan struct{}, 1)},
		known:   blocklist.New(config.MaxKeys, store.Short),
		waiters: waiters{maxPerKey: config.MaxWaiting, max: config.MaxWaitingTotal},
		kept:    make(chan struct{}),
	}
	limiter.warned = newWarnings(config, limiter.nudge)
	if config.Outage == FallbackShare {
		limiter.divisor.Store(int64(config.Servers))
	}
	kept := config.Policy
	limiter.chain = []link{exact{limiter, byRedis}, fallback{limiter}}
	if config.Mode == Leased {
		leasing, err := plan.New(config.Policy, config.Term)
		if err != nil {
			return nil, err
		}
		limiter.leased, kept = &leased{plan: leasing, known: limiter.known, budget: config.Budget}, leasing.Policy
		limiter.chain = []link{limiter.leased, exact{limiter, besideLeases}, fallback{limiter}}
	}
	// The check of the policy does not depend on Redis.
	limiter.maker = store.New(nil, limiter.storeOptions())
	limit, err := limiter.newLimit(kept)
	if err != nil {
		return nil, err
	}
	if isInFlight(config.Policy) {
		limiter.slots = newSlotKeeper(&limiter.access, &limiter.catalog, &limiter.waiters)
		limiter.chain = []link{inFlight{exact{limiter, byRedis}}, slotShare{fallback{limiter}}}
	} else if config.Outage == FallbackShare {
		local, err := share.New(share.Config{
			Policy: config.anchored(config.Policy), Servers: config.Servers, MaxKeys: config.MaxKeys, Full: config.FullShares, Name: store.Short,
		})
		if err != nil {
			return nil, err
		}
		limiter.local = local
	}
	own := newTerms(config.Policy, limit, limiter.local)
	limiter.own.Store(own)
	limiter.byLimit.Store(limit, own)
	limiter.guarded = guard.Config{
		Budget: config.Budget, CallTimeout: max(callTimeout, 2*exchangeBudgets*config.Budget), MaxInFlight: maxInFlight,
		Silence: max(silence, config.Budget), Failures: failures, Pause: pause, MaxPause: maxPause,
		Failed: countsAsFailure, OnChange: limiter.nudge, Trips: &limiter.trips,
	}
	limiter.guard = guard.New(limiter.guarded)
	limiter.batch = guard.NewBatch(limiter.guard, func(ctx context.Context, asks []store.TakeAsk, reply func(int, store.Taken, error)) {
		limiter.remote.Load().store.TakeEach(ctx, asks, reply)
	})
	why := fmt.Errorf("%w: %w", ErrOutage, errConnecting)
	if config.connected() {
		why = fmt.Errorf("%w to %s", why, strings.Join(config.Redis.InitAddress, ", "))
	}
	limiter.trouble.Store(&why)
	limiter.servers.Store(int64(config.Servers))
	limiter.ctx, limiter.stop = context.WithCancel(context.Background())

	if limiter.leased != nil {
		leases, err := lease.New(lease.Config{
			Plan: limiter.leased.plan, Bank: bank{&limiter.access, &limiter.catalog, limiter.leased.plan, limiter.known, limiter.warned}, Name: store.Short, MaxKeys: config.MaxKeys,
			// The bank has a budget of its own.
			Timeout: max(callTimeout, 2*exchangeBudgets*config.Budget),
			Servers: func() int { return max(int(limiter.servers.Load()), 1) },
			Blocked: func(key string) bool { return limiter.known.Left(key, policy.Never) > 0 },
		})
		if err != nil {
			return nil, limiter.abandon(err)
		}
		limiter.leased.leases = leases
	}
	if config.StateFile != "" {
		state, err := openState(config, limiter.local)
		if err != nil {
			if limiter.leased != nil {
				err = errors.Join(err, limiter.leased.leases.Close(limiter.ctx))
			}
			return nil, limiter.abandon(err)
		}
		limiter.state = state
		go state.keep(limiter.ctx, limiter.nudge)
	}
	limiter.conn = connect(&limiter.access, config)
	ready := make(chan struct{})
	go limiter.keep(sync.OnceFunc(func() { close(ready) }))
	timer := time.NewTimer(connectBudget)
	defer timer.Stop()
	select {
	case <-ready:
	case <-timer.C:
	}
	if config.RequireRedis {
		if _, err := limiter.reach(); err != nil {
			return nil, errors.Join(fmt.Errorf("ral: fleet.Config: RequireRedis: %w", err), limiter.Close())
		}
	}
	return limiter, nil
}

// abandon ends a limiter that could not be started, and returns why.
func (l *Limiter) abandon(why error) error {
	l.stop()
	l.guard.Close()
	return why
}

func (l *Limiter) storeOptions() store.Options {
	config := l.config
	options := store.Options{Name: config.Name, Tag: config.Tag, Epoch: config.Epoch, Clock: config.clock, Penalty: penaltyRule(config.Penalty)}
	if isInFlight(config.Policy) {
		// The mark and the sets of all keys must be in one slot of a cluster.
		options.Tag, options.Term = cmp.Or(config.Tag, config.Name), config.Term
	}
	return options
}

// Close ends the limiter's goroutines and waits for them, some seconds at most, or until OnEvent
// returns. Uncharged units are saved to Config.StateFile, if set, and otherwise stay uncharged.
// Calls under way and later get engine.ErrClosed. Close may be called again. Close returns nil
// unless a goroutine did not end in time, or ErrStateFile if saving failed.
func (l *Limiter) Close() error {
	var err error
	l.closing.Do(func() {
		l.closed.Store(true)
		if l.warned != nil {
			l.warned.box.Flush()
		}
		if l.leased != nil {
			ctx, cancel := context.WithTimeout(context.Background(), callTimeout)
			defer cancel()
			err = l.leased.leases.Close(ctx)
		}
		l.stop()
		<-l.kept
		if l.slots != nil {
			l.slots.close()
		}
		l.closeGuards()
		l.conn.leave(&l.access)
		if l.state != nil {
			<-l.state.kept
			// The credit is from the time since the keeper ended.
			l.credit()
			// From now on a take from the share finds the limiter closed and is not answered.
			err = errors.Join(err, l.state.close())
		}
	})
	return err
}
