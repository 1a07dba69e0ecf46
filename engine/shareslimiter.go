package engine

import (
	"context"
	"errors"

	"github.com/ral-limiter/ral/internal/core/decide"
	"github.com/ral-limiter/ral/limits"
	"github.com/ral-limiter/ral/policy"
)

// Admit is Take for adapters: see limits.Limiter. The error is ErrClosed.
func (s *Shares[K]) Admit(_ context.Context, tenant K, n int64) (limits.Answer, error) {
	answer := limits.Answer{Decision: s.Take(tenant, n).Decision, Provenance: inProcess}
	if !answer.Allowed && s.closed.Load() {
		return limits.Answer{}, namedBy(s.config.Config.Name, ErrClosed)
	}
	return answer, nil
}

// Hold is Reserve or, if the call waits, Acquire, for adapters: see limits.Limiter. No limit can come with the
// call. The error is ErrCancelled or ErrClosed. A grant that is settled with more units charges the excess
// whether there is room or not, as Engine.Refund does: the bound of the group is exceeded by as much.
func (s *Shares[K]) Hold(ctx context.Context, call limits.Call[K]) (grant limits.Grant, err error) {
	grant.Provenance = inProcess
	if call.Limit != nil {
		grant.RetryAfter, grant.Provenance = policy.Never, sharesHaveLimits
		return grant, nil
	}
	var shareReservation ShareReservation[K]
	if call.NoWait || call.Patience <= 0 {
		if shareReservation = s.Reserve(call.Key, call.N, call.Patience); !shareReservation.Allowed && s.closed.Load() {
			err = namedBy(s.config.Config.Name, ErrClosed)
		}
	} else {
		shareReservation, err = s.Acquire(ctx, call.Key, call.N, call.Patience)
		shareReservation.Wait = shareReservation.Waited
	}
	grant.Decision = shareReservation.Decision
	switch {
	case grant.Allowed:
		grant.State = limits.GrantState{Settler: shareSettler[K]{s}, Ref: &shareGrant[K]{shareReservation, call.Key, call.N}}
	case errors.Is(err, ErrCrowded):
		grant.Provenance, err = limits.NewProvenance(limits.SourceProcess, true, err), nil
	case errors.Is(err, ErrNever), errors.Is(err, ErrDeadline):
		err = nil
	}
	return grant, err
}

var sharesHaveLimits = limits.NewProvenance(limits.SourceProcess, true, errors.New(
	"ral: shares have the limits of their tenants, and none can come with the call: use SetGuarantee and SetCeiling"))

// Look returns the answer that Hold would give now without waiting, for limits.AskAll. ok is false if calls of the tenant
// wait: only Hold can tell.
func (s *Shares[K]) Look(call limits.Call[K]) (answer limits.Answer, ok bool) {
	if call.Limit != nil || s.closed.Load() || !call.NoWait && s.turns.lines.Has(call.Key) {
		return answer, false
	}
	return limits.Answer{Decision: s.Peek(call.Key, call.N).Decision, Provenance: inProcess}, true
}

// LimitFor returns the tenant's guarantee or, if it has none, the part of the group that is lent.
func (s *Shares[K]) LimitFor(tenant K) policy.Policy {
	if own, _ := s.own.peek(tenant, s.now()); own.limit != nil {
		return own.limit
	}
	return s.lend
}

type shareSettler[K comparable] struct{ *Shares[K] }

type shareGrant[K comparable] struct {
	ShareReservation[K]
	tenant K
	n      int64
}

func (s shareSettler[K]) Settle(_ context.Context, state limits.GrantState, used int64) error {
	grant := state.Ref.(*shareGrant[K])
	if more := used - grant.n; more > 0 && s.longest == 0 {
		call := shareCall[K]{shares: s.Shares, tenant: grant.tenant, n: min(more, decide.MostCharge(s.total)), now: s.now()}
		call.charge(grant.Borrowed)
	}
	if used != limits.AllUsed || s.longest > 0 {
		grant.Keep(used)
	}
	return nil
}

// charge charges the call's units to the tenant and to the group, whether there is room or not.
func (c *shareCall[K]) charge(borrowed bool) {
	c.findOwn()
	account := c.own
	if borrowed {
		c.findCeiling()
		account = c.ceiling
	}
	if account != nil {
		account.charge(account.limit, c.now, c.n)
	}
	c.shares.group.charge(c.shares.whole, c.now, c.n)
}
