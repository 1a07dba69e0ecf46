package fleet

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/ral-limiter/ral/cell"
	"github.com/ral-limiter/ral/fleet/internal/store"
	"github.com/ral-limiter/ral/internal/core/decide"
	"github.com/ral-limiter/ral/limits"
	"github.com/ral-limiter/ral/policy"
)

// Acquire takes n units as soon as the tenant's guarantee has room for them, or can borrow them, whichever comes
// first, and waits for that at most patience. Nothing is taken ahead.
//
// A tenant's calls on a server are served first come, first served, and only the first asks Redis, again and again, at random
// times after its RetryAfter. Calls of other tenants and of other servers compete with it in no order. While a call waits
// for the group on this server, calls that do not wait do not borrow here. Their guarantees stay open to them.
//
// The error wraps engine.ErrNever, engine.ErrDeadline, engine.ErrCrowded, engine.ErrCancelled, engine.ErrClosed or an
// error of Take. The reservation is then a refusal. engine.ErrDeadline comes at once if the call would be too late although
// no other call took. A call is counted once.
func (s *Shares) Acquire(ctx context.Context, tenant string, n int64, patience time.Duration) (ShareReservation, error) {
	shareReservation, err := s.acquire(ctx, tenant, n, max(patience, 0))
	// Only a call that was decided is counted.
	if shareReservation.Provenance.Source() != limits.SourceNone {
		s.count(n, &shareReservation.ShareAnswer, nil)
	}
	return shareReservation, err
}

func (s *Shares) acquire(ctx context.Context, tenant string, n int64, patience time.Duration) (shareReservation ShareReservation, err error) {
	limiter, waits := s.limiter, int64(0)
	waitForGroup := func(wants int64) { s.waiting.Add(wants - waits); waits = wants }
	defer waitForGroup(0)
	w := waiting{Limiter: limiter, key: ownKey(tenant), n: n, patience: patience, inLine: true}
	err = w.acquire(ctx, func(left time.Duration) (trial, error) {
		// A call that ends meanwhile still learns its units, to give them back.
		shareReservation, err = s.reserve(context.WithoutCancel(ctx), tenant, store.TenantAsk{N: n, Returns: true}, waits > 0)
		if err == nil && shareReservation.Allowed && ctx.Err() != nil {
			// Units that cannot be given back count.
			_ = shareReservation.Cancel(context.WithoutCancel(ctx))
			shareReservation.Allowed, shareReservation.Borrowed, err = false, false, cell.Cancelled(ctx)
		}
		most := limiter.own.Load().maxTake
		return trial{Answer: &shareReservation.Answer, most: max(shareReservation.Limit, most), sleep: func(ctx context.Context, duration time.Duration) error {
			if _, barred := s.ceilingOf(tenant); !barred && n <= most && (shareReservation.taken == nil || !shareReservation.taken.Group.Allowed) {
				waitForGroup(1)
			} else {
				waitForGroup(0)
			}
			return limiter.sleep(ctx, min(duration+rand.N(min(duration, askAgain)+1), left, blockPoll))
		}}, err
	})
	return shareReservation, err
}

var _ limits.Remote = (*Shares)(nil)

// Remote reports that a call may wait for another process: true.
func (s *Shares) Remote() bool { return true }

// Admit is Take for adapters, with the errors of Limiter.Admit.
func (s *Shares) Admit(ctx context.Context, tenant string, n int64) (limits.Answer, error) {
	shareAnswer, err := s.Take(ctx, tenant, n)
	return answerFor(shareAnswer.Answer, err)
}

// Hold is Reserve or, if the call waits, Acquire, for adapters. No limit can come with the call. A grant that
// is settled with more units charges the excess whether there is room or not, as Limiter.Refund does.
func (s *Shares) Hold(ctx context.Context, call limits.Call[string]) (grant limits.Grant, err error) {
	if call.Limit != nil {
		grant.RetryAfter, grant.Provenance = policy.Never, sharesHaveLimits
		return grant, nil
	}
	var shareReservation ShareReservation
	if call.NoWait || call.Patience <= 0 {
		shareReservation, err = s.Reserve(ctx, call.Key, call.N, call.Patience)
	} else {
		begun := time.Now()
		shareReservation, err = s.Acquire(ctx, call.Key, call.N, call.Patience)
		shareReservation.Wait = time.Since(begun)
	}
	if grant.Answer, err = answerFor(shareReservation.Answer, err); grant.Allowed {
		grant.State = limits.GrantState{Settler: shareSettler{}, Ref: &shareReservation}
	}
	return grant, err
}

var sharesHaveLimits = limits.NewProvenance(limits.SourceRedis, true, errors.New(
	"ral: shares have the limits of their tenants, and none can come with the call: use SetGuarantee"))

// LimitFor returns the tenant's guarantee or, if it has none, the part of the group that is lent.
func (s *Shares) LimitFor(tenant string) policy.Policy {
	book := s.book.Load()
	if guarantee, ok := book.tenants[tenant]; ok {
		return guarantee.limit
	}
	if terms, _ := s.guaranteeOf(book, tenant); terms != nil {
		return terms.policy
	}
	return s.limiter.own.Load().policy
}

type shareSettler struct{}

// Settle implements limits.Settler.
func (shareSettler) Settle(ctx context.Context, state limits.GrantState, used int64) error {
	shareReservation := state.Ref.(*ShareReservation)
	if used <= shareReservation.n || shareReservation.taken == nil {
		return shareReservation.Keep(ctx, used)
	}
	shares, ask := shareReservation.shares, shareReservation.taken.ask
	more := min(used-shareReservation.n, decide.MostCharge(shares.config.Total))
	key := ask.Own
	if shareReservation.Borrowed {
		key = ask.Ceiling
	} else if ask.Reserve != nil && ask.Reserve.Grant.Rate != nil {
		// The grant lasts until the tenant owes nothing. If the charge fails it lasts longer.
		if err := shares.extend(ctx, ask, more); err != nil {
			return err
		}
	}
	return errors.Join(shares.charge(ctx, store.TenantKey{Limit: shares.whole, Key: groupKey}, more), shares.charge(ctx, key, more))
}

// charge charges n units to a key, if it has a limit.
func (s *Shares) charge(ctx context.Context, tenantKey store.TenantKey, n int64) error {
	if tenantKey.Limit == nil {
		return nil
	}
	_, err := changeWord(ctx, s, func(ctx context.Context, decider decider) (store.Taken, error) {
		return decider.Refund(ctx, tenantKey.Limit, tenantKey.Key, -n)
	})
	return err
}

// extend has Redis keep the grant of an ask's tenant, whose own funnel is about to be charged with n units.
func (s *Shares) extend(ctx context.Context, ask store.TenantAsk, n int64) error {
	own, reserve := ask.Own.Limit.Policy(), *ask.Reserve
	reserve.More = time.Duration(own.FreshAt(own.(policy.Refunder).Refund(0, 0, -n)))
	ask.N, ask.Patience, ask.Reserve = 0, 0, &reserve
	_, err := changeWord(ctx, s, func(ctx context.Context, decider decider) (store.TenantTaken, error) {
		return decider.TakeTenant(ctx, ask)
	})
	return err
}
