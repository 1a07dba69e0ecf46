package fleet

import (
	"context"
	"time"

	"github.com/ral-limiter/ral/fleet/internal/share"
	"github.com/ral-limiter/ral/internal/core/warn"
	"github.com/ral-limiter/ral/limits"
	"github.com/ral-limiter/ral/policy"
)

// fallback is the last link. fallback answers every call without Redis, by the share of the call's
// limit or, if the limit has no share, by FallbackOpen or FallbackClosed. The answer's Err is
// the cause of ask.why, with ErrUncounted if a share lacks a server count.
type fallback struct{ *Limiter }

// trusts is for ever: a key stays blocked until the end that Redis said.
func (fallback) trusts() time.Duration { return policy.Never }

func (f fallback) take(_ context.Context, ask ask) (taken, error) {
	if ask.terms.local == nil {
		return f.without(&ask, ask.n), nil
	}
	n := ask.units()
	reservation := ask.terms.local.Take(ask.key, n, ask.patience)
	taken := f.shared(&ask, reservation.Decision, n)
	taken.guess, taken.passed = reservation.RetryAfter == policy.Never, f.passed(&reservation, n)
	if !ask.final {
		receipt := reservation
		taken.receipt = &receipt
	}
	return taken, nil
}

// passed returns the shares of this server's part that a take of n units passed.
func (f fallback) passed(reservation *share.Reservation, n int64) warn.Set {
	if f.warned == nil || n == 0 {
		return 0
	}
	limit, word, at := reservation.Basis()
	return f.warned.passed(limit, word, at, n, &reservation.Decision)
}

// units returns how many units to take of a share: none if the key is blocked.
func (a *ask) units() int64 {
	if a.blocked > 0 && a.n <= a.terms.maxTake {
		return min(a.n, 0)
	}
	return a.n
}

func (f fallback) look(_ context.Context, ask ask) (taken taken, err error) {
	for _, n := range [...]int64{ask.n, 0} {
		if ask.terms.local == nil {
			taken = f.without(&ask, n)
		} else {
			taken = f.shared(&ask, ask.terms.local.Peek(ask.key, n), n)
		}
		if !taken.answer.Allowed || ask.blocked == 0 {
			// Otherwise only the block refuses the call, which takes nothing.
			break
		}
	}
	return taken, nil
}

func (f fallback) giveBack(_ context.Context, ask ask) (taken taken, err error) {
	local := ask.terms.local
	switch {
	case ask.receipt != nil:
		ask.receipt.(*share.Reservation).Keep(ask.kept)
	case local == nil:
		taken = f.without(&ask, 1)
		taken.answer.Allowed, taken.answer.Remaining = false, 0
	case ask.why.mayBeDone:
		taken = f.shared(&ask, local.Peek(ask.key, 0), 0)
		taken.answer.Allowed = false
	default:
		taken = f.shared(&ask, local.Refund(ask.key, ask.n), ask.n)
	}
	return taken, nil
}

// retry is a guess of when Redis may be back.
const retry = maxPause

// without answers a call for n units without a share.
func (f fallback) without(ask *ask, n int64) taken {
	source := limits.SourceOpen
	if f.config.Outage == FallbackClosed {
		source = limits.SourceClosed
	}
	decision := policy.Decision{Limit: ask.terms.maxTake}
	switch {
	case n < 0 || n > decision.Limit:
		decision.RetryAfter = policy.Never
	case source == limits.SourceOpen:
		decision.Allowed, decision.Remaining = true, decision.Limit-n
	case n == 0:
		decision.Allowed = true
	default:
		decision.RetryAfter = retry
	}
	return taken{answer: limits.Answer{Decision: decision, Provenance: limits.NewProvenance(source, false, ask.why.cause)}, guess: true}
}

// shared tells the decision of a share on n units.
func (f fallback) shared(ask *ask, decision policy.Decision, n int64) taken {
	if decision.RetryAfter == policy.Never && n > 0 && n <= ask.terms.maxTake {
		// The units are more than the share ever has, but not more than the limit.
		decision.RetryAfter = retry
	}
	return taken{answer: limits.Answer{Decision: decision, Provenance: limits.NewProvenance(limits.SourceShare, false, f.uncounted(ask.why.cause))}}
}
