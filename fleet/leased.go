package fleet

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/ral-limiter/ral/engine"
	"github.com/ral-limiter/ral/fleet/internal/blocklist"
	"github.com/ral-limiter/ral/fleet/internal/guard"
	"github.com/ral-limiter/ral/fleet/internal/lease"
	"github.com/ral-limiter/ral/fleet/internal/lease/plan"
	"github.com/ral-limiter/ral/fleet/internal/store"
	"github.com/ral-limiter/ral/policy"
)

// leased is the first link in Leased mode. leased decides calls by this server's leases, and asks
// Redis for more. leased passes on looks and give-backs, and takes of a key that is not worth a
// lease. Redis decides those takes by the same policy, and charges them before they pass, like a lease's
// units.
type leased struct {
	leases *lease.Leases
	plan   *plan.Plan
	known  *blocklist.List
	budget time.Duration
}

// trusts is a term. After a term this server's leases of a key have ended, and the server asks
// Redis again.
func (l *leased) trusts() time.Duration { return l.plan.Term }

func (l *leased) take(ctx context.Context, ask ask) (taken taken, err error) {
	var ok bool
	switch taken.answer.Provenance = byLease; {
	case ctx.Err() != nil:
		return taken, context.Cause(ctx)
	case ask.blocked > 0:
		taken.answer.Limit = l.plan.Limit()
		if ask.n < 0 || ask.n > taken.answer.Limit {
			taken.answer.RetryAfter = policy.Never
		}
		return taken, nil
	case ask.final:
		taken.answer.Decision, ok = l.leases.Try(ask.key, ask.n)
	default:
		var receipt engine.Reservation[string]
		taken.answer.Decision, receipt, ok = l.leases.Reserve(ask.key, ask.n)
		taken.receipt = &receipt
	}
	if ok {
		return taken, nil
	}
	taken.receipt = nil
	taken.answer.Decision, err = l.leases.Ask(ask.key, ask.n, l.budget, ctx.Done())
	switch {
	case err == nil:
		return taken, nil
	case errors.Is(err, lease.ErrFew):
		return taken, noAnswer{}
	case errors.Is(err, lease.ErrClosed):
		return taken, engine.ErrClosed
	case ctx.Err() != nil:
		return taken, context.Cause(ctx)
	case errors.Is(err, lease.ErrLate):
		err = fmt.Errorf("%w of %v: %w", ErrBudget, l.budget, err)
	}
	return taken, noAnswer{cause: asOutage(err)}
}

// mayTry reports whether Take and Choke may decide by a lease at once, without the chain, which costs
// more and is for the calls that a lease does not decide. Most calls need no more than that.
func (l *leased) mayTry(ctx context.Context, key string) bool {
	return ctx.Err() == nil && l.known.Left(key, l.trusts()) == 0
}

func (*leased) look(context.Context, ask) (taken, error) { return taken{}, noAnswer{} }

// giveBack returns a receipt's units to their lease. Redis counts them.
func (*leased) giveBack(_ context.Context, ask ask) (taken, error) {
	if ask.receipt == nil {
		return taken{}, noAnswer{}
	}
	ask.receipt.(*engine.Reservation[string]).Keep(ask.kept)
	return taken{}, nil
}

// bank asks Redis for the leases, within a budget and behind the breaker.
type bank struct {
	*access
	*catalog
	plan   *plan.Plan
	known  *blocklist.List
	warned *warnings
}

const (
	// An exchange with Redis may take exchangeBudgets times a call's budget. Each call waits only
	// its own: late units are for later calls.
	exchangeBudgets = 4
	// perKeyBudget extends that for each further key: several times a healthy Redis's need.
	perKeyBudget = 50 * time.Microsecond
	// returnBudget bounds giving back. Only Close waits for that.
	returnBudget = 100 * time.Millisecond
)

func (b bank) on(redis *remote) *lease.OnStore {
	return lease.NewOnStore(redis.store, b.plan, b.own.Load().limit)
}

// Lease implements lease.Bank.
func (b bank) Lease(ctx context.Context, asks []lease.Ask) []lease.Grant {
	return byGuard(b.access, b.own.Load(), asks, func(ask lease.Ask) string { return store.Tail(ask.Key) }, func(breaker *guard.Guard, asks []lease.Ask) []lease.Grant {
		return b.leaseNode(ctx, breaker, asks)
	})
}

func (b bank) leaseNode(ctx context.Context, breaker *guard.Guard, asks []lease.Ask) []lease.Grant {
	remote, err := b.reach()
	if err != nil {
		return failedGrants(len(asks), err)
	}
	budget := exchangeBudgets*b.budget + time.Duration(len(asks)-1)*perKeyBudget
	grants, err := guard.DoWithin(ctx, breaker, budget, func(ctx context.Context) ([]lease.Grant, error) {
		grants := b.on(remote).Lease(ctx, asks)
		return grants, unanswered(grants)
	})
	if err != nil {
		return failedGrants(len(asks), b.noteUnfit(err))
	}
	b.learnGrants(asks, grants)
	return grants
}

func failedGrants(count int, err error) []lease.Grant {
	return slices.Repeat([]lease.Grant{{Err: err}}, count)
}

// learnGrants has the share learn Redis's answers, with others' leases as used, and the list
// blocks. learnGrants warns of shares that were leased.
func (b bank) learnGrants(asks []lease.Ask, grants []lease.Grant) {
	own := b.own.Load()
	for i, leaseReply := range grants {
		if leaseReply.Err != nil {
			continue
		}
		b.known.Heard(asks[i].Key, leaseReply.Block.Left, leaseReply.At)
		b.warned.add(own, asks[i].Key, b.warned.passed(own.limit.Policy(), leaseReply.Before, leaseReply.At, leaseReply.Granted, &leaseReply.Decision), &leaseReply.Decision)
		if b.local != nil {
			b.local.Learn(asks[i].Key, leaseReply.After, leaseReply.At)
		}
	}
}

// unanswered returns why no ask was answered, or nil: a part of a cluster may be away, and a key
// may be held by something else.
func unanswered(grants []lease.Grant) error {
	for _, grant := range grants {
		if grant.Err == nil || isKeyOrCallError(grant.Err) {
			return nil
		}
	}
	return grants[0].Err
}

// Return implements lease.Bank.
func (b bank) Return(ctx context.Context, backs []lease.Back) error {
	remote, err := b.reach()
	if err != nil {
		return err
	}
	return errors.Join(byGuard(b.access, b.own.Load(), backs, func(back lease.Back) string { return store.TailOf(back.Name) }, func(breaker *guard.Guard, backs []lease.Back) []error {
		_, err := guard.DoWithin(ctx, breaker, max(b.budget, returnBudget), func(ctx context.Context) (struct{}, error) {
			return struct{}{}, b.on(remote).Return(ctx, backs)
		})
		return []error{err}
	})...)
}
