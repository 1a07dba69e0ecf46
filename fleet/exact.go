package fleet

import (
	"context"
	"time"

	"github.com/ral-limiter/ral/fleet/internal/store"
	"github.com/ral-limiter/ral/limits"
	"github.com/ral-limiter/ral/policy"
)

// exact is the link that has Redis decide each call. It passes a call on if Redis does not answer, or
// was already asked for a lease in vain.
type exact struct {
	*Limiter
	by *limits.Provenance
}

func (exact) trusts() time.Duration { return 0 }

func (e exact) take(ctx context.Context, a ask) (taken, error) {
	if a.why.cause != nil {
		return taken{}, a.why
	}
	got, err := e.askTake(ctx, a.terms, store.TakeAsk{Key: a.key, N: a.n, Patience: a.patience, Returns: a.returns})
	if err != nil {
		return taken{}, err
	}
	t := e.answer(&a, got)
	if !a.final {
		receipt := got
		t.receipt = &receipt
	}
	return t, nil
}

// answer learns from what Redis said about the key, and tells it.
func (e exact) answer(a *ask, got store.Taken) taken {
	a.terms.remember(a.key, got, false)
	e.learnBlock(a.key, &got)
	t := taken{answer: limits.Answer{Decision: got.Decision, Provenance: e.by}}
	t.passed = e.warned.passed(a.terms.limit.Policy(), got.Before, got.At, a.n, &got.Decision)
	if got.Block.Refused {
		t.blocked = got.Block.Left
	}
	return t
}

// look asks Redis for the key's state, and works out the decision on it.
func (e exact) look(ctx context.Context, a ask) (taken, error) {
	n, unspent := a.n, e.unspent(a.key)
	a.n, a.final = 0, false
	t, err := e.take(ctx, a)
	if err != nil {
		return taken{}, err
	}
	if t.blocked == 0 {
		t.answer.Remaining = min(t.answer.Remaining+unspent, t.answer.Limit)
	}
	if n == 0 {
		return t, nil
	}
	got, d := t.receipt.(*store.Taken), t.answer.Decision
	switch {
	case 0 < n && n <= unspent:
		d.Remaining -= n
	case a.terms.wordless && 0 < n && n <= a.terms.maxTake:
		if d.Allowed = n <= d.Remaining; d.Allowed {
			d.Remaining -= n
		} else {
			d.RetryAfter = d.ResetAfter
		}
	case a.terms.wordless:
		d.Allowed, d.RetryAfter = false, policy.Never
	default:
		_, d = a.terms.limit.Policy().Take(got.After, got.At, n, 0)
	}
	// A call that only the block refuses takes nothing.
	if !d.Allowed || t.blocked == 0 {
		t.answer.Decision = d
	}
	return t, nil
}

// giveBack is one exchange with Redis. Redis refunds units, or charges them, once or not at all: if
// its result is unknown, no other link does so.
func (e exact) giveBack(ctx context.Context, a ask) (t taken, err error) {
	switch {
	case a.why.cause != nil:
		return t, a.why
	case a.receipt != nil:
		_, err = about(ctx, &e.access, a.terms, a.key, func(ctx context.Context, s decider) (store.Taken, error) {
			return s.Keep(ctx, a.terms.limit, a.key, *a.receipt.(*store.Taken), a.n, a.kept)
		})
		return t, err
	}
	unspent := e.unspent(a.key)
	got, err := askOnce(ctx, &e.access, e.guardOf(a.terms, a.key), e.config.Budget, func(ctx context.Context, s decider) (store.Taken, error) {
		return s.Refund(ctx, a.terms.limit, a.key, a.n)
	})
	if err != nil {
		return t, err
	}
	a.terms.remember(a.key, got, false)
	e.warned.add(a.terms, a.key, e.warned.passed(a.terms.limit.Policy(), got.Before, got.At, -a.n, &got.Decision), &got.Decision)
	t.answer = limits.Answer{Decision: got.Decision, Provenance: e.by}
	t.answer.Remaining = min(t.answer.Remaining+unspent, t.answer.Limit)
	return t, nil
}

// unspent returns the units of a key that this server could use without Redis. Ask for it before
// Redis, so that no unit counts twice.
func (e exact) unspent(key string) int64 {
	if e.leased == nil {
		return 0
	}
	return e.leased.leases.Held(key)
}
