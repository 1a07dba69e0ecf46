package fleet

import (
	"context"
	"time"

	"github.com/ral-limiter/ral/fleet/internal/share"
	"github.com/ral-limiter/ral/internal/core/warn"
	"github.com/ral-limiter/ral/limits"
	"github.com/ral-limiter/ral/policy"
)

// fallback is the last link. It answers every call without Redis, by the share of the call's limit or,
// if that has none, by FallbackOpen or FallbackClosed. The answer's Err is a.why.
type fallback struct{ *Limiter }

// trusts is for ever: a key stays blocked until the end that Redis said.
func (fallback) trusts() time.Duration { return policy.Never }

func (f fallback) take(_ context.Context, a ask) (taken, error) {
	if a.terms.local == nil {
		return f.without(&a, a.n), nil
	}
	n := a.units()
	r := a.terms.local.Take(a.key, n, a.patience)
	t := f.shared(&a, r.Decision, n)
	t.guess, t.passed = r.RetryAfter == policy.Never, f.passed(&r, n)
	if !a.final {
		receipt := r
		t.receipt = &receipt
	}
	return t, nil
}

// passed returns the shares of this server's part that a take of n units passed.
func (f fallback) passed(r *share.Reservation, n int64) warn.Set {
	if f.warned == nil || n == 0 {
		return 0
	}
	limit, word, at := r.Basis()
	return f.warned.passed(limit, word, at, n, &r.Decision)
}

// units returns how many units to take of a share: none if the key is blocked.
func (a *ask) units() int64 {
	if a.blocked > 0 && a.n <= a.terms.maxTake {
		return min(a.n, 0)
	}
	return a.n
}

func (f fallback) look(_ context.Context, a ask) (t taken, err error) {
	for _, n := range [...]int64{a.n, 0} {
		if a.terms.local == nil {
			t = f.without(&a, n)
		} else {
			t = f.shared(&a, a.terms.local.Peek(a.key, n), n)
		}
		if !t.answer.Allowed || a.blocked == 0 {
			// Otherwise only the block refuses the call, which takes nothing.
			break
		}
	}
	return t, nil
}

func (f fallback) giveBack(_ context.Context, a ask) (t taken, err error) {
	local := a.terms.local
	switch {
	case a.receipt != nil:
		a.receipt.(*share.Reservation).Keep(a.kept)
	case local == nil:
		t = f.without(&a, 1)
		t.answer.Allowed, t.answer.Remaining = false, 0
	case a.why.mayBeDone:
		t = f.shared(&a, local.Peek(a.key, 0), 0)
		t.answer.Allowed = false
	default:
		t = f.shared(&a, local.Refund(a.key, a.n), a.n)
	}
	return t, nil
}

// retry is a guess of when Redis may be back.
const retry = maxPause

// without answers a call for n units without a share.
func (f fallback) without(a *ask, n int64) taken {
	source := limits.SourceOpen
	if f.config.Outage == FallbackClosed {
		source = limits.SourceClosed
	}
	d := policy.Decision{Limit: a.terms.maxTake}
	switch {
	case n < 0 || n > d.Limit:
		d.RetryAfter = policy.Never
	case source == limits.SourceOpen:
		d.Allowed, d.Remaining = true, d.Limit-n
	case n == 0:
		d.Allowed = true
	default:
		d.RetryAfter = retry
	}
	return taken{answer: limits.Answer{Decision: d, Provenance: limits.NewProvenance(source, false, a.why.cause)}, guess: true}
}

// shared tells the decision of a share on n units.
func (f fallback) shared(a *ask, d policy.Decision, n int64) taken {
	if d.RetryAfter == policy.Never && n > 0 && n <= a.terms.maxTake {
		// The units are more than the share ever has, but not more than the limit.
		d.RetryAfter = retry
	}
	return taken{answer: limits.Answer{Decision: d, Provenance: limits.NewProvenance(limits.SourceShare, false, f.uncounted(a.why.cause))}}
}
