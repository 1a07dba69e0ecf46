package fleet

import (
	"context"
	"time"

	"github.com/ral-limiter/ral/fleet/internal/store"
	"github.com/ral-limiter/ral/limits"
	"github.com/ral-limiter/ral/policy"
)

// exact is the link that has Redis decide each call. exact passes a call on if Redis does not
// answer, or was already asked for a lease in vain.
type exact struct {
	*Limiter
	by *limits.Provenance
}

func (exact) trusts() time.Duration { return 0 }

func (e exact) take(ctx context.Context, ask ask) (taken, error) {
	if ask.why.cause != nil {
		return taken{}, ask.why
	}
	got, err := e.askTake(ctx, ask.terms, store.TakeAsk{Key: ask.key, N: ask.n, Patience: ask.patience, Returns: ask.returns})
	if err != nil {
		return taken{}, err
	}
	t := e.answer(&ask, got)
	if !ask.final {
		receipt := got
		t.receipt = &receipt
	}
	return t, nil
}

// answer learns from Redis's word about the key, and returns that.
func (e exact) answer(ask *ask, got store.Taken) taken {
	ask.terms.remember(ask.key, got, false)
	e.learnBlock(ask.key, &got)
	t := taken{answer: limits.Answer{Decision: got.Decision, Provenance: e.by}}
	t.passed = e.warned.passed(ask.terms.limit.Policy(), got.Before, got.At, ask.n, &got.Decision)
	if got.Block.Refused {
		t.blocked = got.Block.Left
	}
	return t
}

// look asks Redis for the key's state, and works out the decision on it.
func (e exact) look(ctx context.Context, ask ask) (taken, error) {
	n, unspent := ask.n, e.unspent(ask.key)
	ask.n, ask.final = 0, false
	t, err := e.take(ctx, ask)
	if err != nil {
		return taken{}, err
	}
	if t.blocked == 0 {
		t.answer.Remaining = min(t.answer.Remaining+unspent, t.answer.Limit)
	}
	if n == 0 {
		return t, nil
	}
	got, decision := t.receipt.(*store.Taken), t.answer.Decision
	switch {
	case 0 < n && n <= unspent:
		decision.Remaining -= n
	case ask.terms.wordless && 0 < n && n <= ask.terms.maxTake:
		if decision.Allowed = n <= decision.Remaining; decision.Allowed {
			decision.Remaining -= n
		} else {
			decision.RetryAfter = decision.ResetAfter
		}
	case ask.terms.wordless:
		decision.Allowed, decision.RetryAfter = false, policy.Never
	default:
		_, decision = ask.terms.limit.Policy().Take(got.After, got.At, n, 0)
	}
	// A call that only the block refuses takes nothing.
	if !decision.Allowed || t.blocked == 0 {
		t.answer.Decision = decision
	}
	return t, nil
}

// giveBack is one exchange with Redis. Redis refunds units, or charges them, once or not at all: if
// its result is unknown, no other link does so.
func (e exact) giveBack(ctx context.Context, ask ask) (taken taken, err error) {
	switch {
	case ask.why.cause != nil:
		return taken, ask.why
	case ask.receipt != nil:
		_, err = about(ctx, &e.access, ask.terms, ask.key, func(ctx context.Context, decider decider) (store.Taken, error) {
			return decider.Keep(ctx, ask.terms.limit, ask.key, *ask.receipt.(*store.Taken), ask.n, ask.kept)
		})
		return taken, err
	}
	unspent := e.unspent(ask.key)
	got, err := askOnce(ctx, &e.access, e.guardOf(ask.terms, ask.key), e.config.Budget, func(ctx context.Context, decider decider) (store.Taken, error) {
		return decider.Refund(ctx, ask.terms.limit, ask.key, ask.n)
	})
	if err != nil {
		return taken, err
	}
	ask.terms.remember(ask.key, got, false)
	e.warned.add(ask.terms, ask.key, e.warned.passed(ask.terms.limit.Policy(), got.Before, got.At, -ask.n, &got.Decision), &got.Decision)
	taken.answer = limits.Answer{Decision: got.Decision, Provenance: e.by}
	taken.answer.Remaining = min(taken.answer.Remaining+unspent, taken.answer.Limit)
	return taken, nil
}

// unspent returns the units of a key that this server could use without Redis. The caller must ask
// for it before Redis, so that no unit counts twice.
func (e exact) unspent(key string) int64 {
	if e.leased == nil {
		return 0
	}
	return e.leased.leases.Held(key)
}
