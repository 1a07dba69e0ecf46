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
		catalog: catalog{config: config},
		access:  access{budget: config.Budget, wake: make(chan struct{}, 1)},
		known:   blocklist.New(config.MaxKeys, store.Short),
		waiters: waiters{maxPerKey: config.MaxWaiting, max: config.MaxWaitingTotal},
		kept:    make(chan struct{}),
	}
	l.warned = newWarnings(config, l.nudge)
	if config.Outage == FallbackShare {
		l.divisor.Store(int64(config.Servers))
	}
	kept := config.Policy
	l.chain = []link{exact{l, byRedis}, fallback{l}}
	if config.Mode == Leased {
		leasing, err := plan.New(config.Policy, config.Term)
		if err != nil {
			return nil, err
		}
		l.leased, kept = &leased{plan: leasing, known: l.known, budget: config.Budget}, leasing.Policy
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
	if isInFlight(config.Policy) {
		l.slots = newSlotKeeper(&l.access, &l.catalog, &l.waiters)
		l.chain = []link{inFlight{exact{l, byRedis}}, slotShare{fallback{l}}}
	} else if config.Outage == FallbackShare {
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
		Silence: max(silence, config.Budget), Failures: failures, Pause: pause, MaxPause: maxPause,
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
			Plan: l.leased.plan, Bank: bank{&l.access, &l.catalog, l.known, l.warned}, Name: store.Short, MaxKeys: config.MaxKeys,
			// The bank has a budget of its own.
			Timeout: max(callTimeout, 2*exchangeBudgets*config.Budget),
			Servers: func() int { return max(int(l.servers.Load()), 1) },
			Blocked: func(key string) bool { return l.known.Left(key, policy.Never) > 0 },
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
	l.conn = connect(&l.access, config)
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
	o := store.Options{Name: c.Name, Tag: c.Tag, Epoch: c.Epoch, Clock: c.clock, Penalty: penaltyRule(c.Penalty)}
	if isInFlight(c.Policy) {
		// The mark and the sets of all keys must be in one slot of a cluster.
		o.Tag, o.Term = cmp.Or(c.Tag, c.Name), c.Term
	}
	return o
}

// Close ends the limiter's goroutines and waits for them, some seconds at most, or until OnEvent
// returns. Uncharged units are saved to Config.StateFile, if set, and otherwise stay uncharged.
// Calls under way and later get engine.ErrClosed. Close may be called again. It returns nil unless
// a goroutine did not end in time, or ErrStateFile if saving failed.
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
