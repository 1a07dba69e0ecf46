package fleet

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/ral-limiter/ral/fleet/internal/guard"
	"github.com/ral-limiter/ral/fleet/internal/lease"
	"github.com/ral-limiter/ral/fleet/internal/store"
	"github.com/ral-limiter/ral/limits"
	"github.com/ral-limiter/ral/policy"
)

// guardedBank asks remote.bank for the leases, within a budget and behind the breaker.
type guardedBank struct{ *Limiter }

const (
	// An exchange with Redis may take exchangeBudgets times a call's budget. Each call waits only
	// its own: late units are for later calls.
	exchangeBudgets = 4
	// perKeyBudget extends that for each further key: several times a healthy Redis's need.
	perKeyBudget = 50 * time.Microsecond
	// returnBudget bounds giving back. Only Close waits for it.
	returnBudget = 100 * time.Millisecond
)

// Lease implements lease.Bank.
func (b guardedBank) Lease(ctx context.Context, asks []lease.Ask) []lease.Grant {
	grants := make([]lease.Grant, len(asks))
	b.byGuard(b.own.Load(), len(asks), func(i int) string { return store.Tail(asks[i].Key) }, func(g *guard.Guard, at []int) {
		place(grants, b.leaseNode(ctx, g, pick(asks, at)), at)
	})
	return grants
}

func (b guardedBank) leaseNode(ctx context.Context, g *guard.Guard, asks []lease.Ask) []lease.Grant {
	r, err := b.reach()
	if err != nil {
		return failedGrants(len(asks), err)
	}
	budget := exchangeBudgets*b.config.Budget + time.Duration(len(asks)-1)*perKeyBudget
	grants, err := guard.DoWithin(ctx, g, budget, func(ctx context.Context) ([]lease.Grant, error) {
		grants := r.bank.Lease(ctx, asks)
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
// blocks.
func (b guardedBank) learnGrants(asks []lease.Ask, grants []lease.Grant) {
	for i, g := range grants {
		if g.Err != nil {
			continue
		}
		b.known.Heard(asks[i].Key, g.Blocked, g.At)
		if b.local != nil {
			b.local.Learn(asks[i].Key, g.Word, g.At)
		}
	}
}

// unanswered returns why no ask was answered, or nil: a part of a cluster may be away, and a key
// may be held by something else.
func unanswered(grants []lease.Grant) error {
	for _, g := range grants {
		if g.Err == nil || isKeyOrCallError(g.Err) {
			return nil
		}
	}
	return grants[0].Err
}

// Return implements lease.Bank.
func (b guardedBank) Return(ctx context.Context, backs []lease.Back) error {
	r, err := b.reach()
	if err != nil {
		return err
	}
	errs := make([]error, len(backs))
	b.byGuard(b.own.Load(), len(backs), func(i int) string { return store.TailOf(backs[i].Name) }, func(g *guard.Guard, at []int) {
		_, err := guard.DoWithin(ctx, g, max(b.config.Budget, returnBudget), func(ctx context.Context) (struct{}, error) {
			return struct{}{}, r.bank.Return(ctx, pick(backs, at))
		})
		place(errs, []error{err}, at[:min(len(at), 1)]) // the first of them has it
	})
	return errors.Join(errs...)
}

// held returns the units of a key that this server could use without Redis. Ask for it before
// Redis, so that no unit counts twice.
func (l *Limiter) held(key string) int64 {
	if l.leases == nil {
		return 0
	}
	return l.leases.Held(key)
}

// tryLease decides a call in Leased mode if this server can; the leases count it. It is faster than
// take, as it keeps nothing to give back. Most calls run only this.
func (l *Limiter) tryLease(ctx context.Context, key string, n int64) (a limits.Answer, ok bool) {
	if ctx.Err() != nil {
		return limits.Answer{}, false
	}
	if a, blocked := l.blockedLease(key, n); blocked {
		return a, true
	}
	if a.Decision, ok = l.leases.Try(key, n); ok {
		a.Provenance = byLease
	}
	return a, ok
}

// blockedLease refuses a call in Leased mode if Redis said within a term that the key is blocked.
// After a term this server's leases of it have ended, and it asks.
func (l *Limiter) blockedLease(key string, n int64) (a limits.Answer, blocked bool) {
	if l.known.Empty() { // on most servers
		return a, false
	}
	left := l.blockedFor(key, l.plan.Term)
	if left == 0 {
		return a, false
	}
	a = limits.Answer{Decision: policy.Decision{Limit: l.plan.Limit()}, Provenance: byLease}
	if n < 0 || n > a.Limit {
		a.RetryAfter = policy.Never
	}
	refuseBlocked(&a, left)
	l.tally.count(n, &a)
	return a, true
}
