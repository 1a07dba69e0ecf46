package fleet

import (
	"context"
	"errors"
	"time"

	"github.com/ral-limiter/ral/fleet/internal/guard"
	"github.com/ral-limiter/ral/fleet/internal/lease"
	"github.com/ral-limiter/ral/fleet/internal/store"
	"github.com/ral-limiter/ral/limits"
	"github.com/ral-limiter/ral/policy"
)

// guardedBank asks the lease.OnStore of remote.bank for the leases, within a budget and behind the
// breaker.
type guardedBank struct{ *Limiter }

const (
	// An exchange with Redis may take exchangeBudgets times the budget of a call. No call waits
	// for it longer than its own budget: units that come late are there for later
	// calls.
	exchangeBudgets = 4
	// perKeyBudget extends that for each key after the first: several times what a healthy
	// Redis takes for it.
	perKeyBudget = 50 * time.Microsecond
	// returnBudget is the longest that giving back may take. Only Close waits for it.
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

// leaseNode is Lease behind one guard.
func (b guardedBank) leaseNode(ctx context.Context, g *guard.Guard, asks []lease.Ask) []lease.Grant {
	r, err := b.reach()
	var grants []lease.Grant
	if err == nil {
		budget := exchangeBudgets*b.config.Budget + time.Duration(len(asks)-1)*perKeyBudget
		grants, err = guard.DoWithin(ctx, g, budget, func(ctx context.Context) ([]lease.Grant, error) {
			grants := r.bank.Lease(ctx, asks)
			return grants, unanswered(grants)
		})
	}
	if err == nil {
		b.learnGrants(asks, grants)
		return grants
	}
	err = b.noteUnfit(err)
	grants = make([]lease.Grant, len(asks))
	for i := range grants {
		grants[i].Err = err
	}
	return grants
}

// learnGrants has the share remember what Redis said of the keys, and which are blocked. What others hold on
// lease counts as used then.
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

// unanswered returns why none of the asks was answered, nil if one was: a part of a
// cluster may be away, and a key may be held by something else.
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

// held returns the number of units of a key that this server could use without Redis. A
// caller that adds them to what remains there asks for them first, so that none is
// counted twice.
func (l *Limiter) held(key string) int64 {
	if l.leases == nil {
		return 0
	}
	return l.leases.Held(key)
}

// tryLease decides a call in Leased mode if this server can answer by itself. The leases count
// that. Unlike take it keeps nothing to give back, which makes it faster; most calls run only this.
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

// blockedLease is the answer to a call in Leased mode if Redis said within a term that the key
// is blocked. Until then every lease that this server had of it has ended, so that it asks.
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
