package fleet

import (
	"context"

	"github.com/ral-limiter/ral/engine"
	"github.com/ral-limiter/ral/limits"
	"github.com/ral-limiter/ral/policy"
)

// take has the links take the units, and counts the answer.
func (l *Limiter) take(ctx context.Context, ask ask) (taken, error) {
	if ask.n == 0 {
		return l.look(ctx, ask)
	}
	if l.slots != nil {
		ask.id = l.slots.newID(ask.n)
	}
	taken, err := l.decide(ctx, ask, link.take)
	if err == nil && (taken.by != l.leased || taken.blocked > 0) {
		// The leases count their own calls.
		l.tally.count(ask.n, &taken.answer)
	}
	if taken.answer.Allowed {
		l.warned.add(ask.terms, ask.key, taken.passed, &taken.answer.Decision)
	}
	return taken, err
}

// look has the links tell what take would answer.
func (l *Limiter) look(ctx context.Context, ask ask) (taken, error) {
	return l.decide(ctx, ask, link.look)
}

// decide asks the links in order. decide looks up the key's block before it asks a link, and applies the
// block to the link's answer. After a refusal by a lease decide looks up the block again, because Redis
// may have told of the block only when it answered for the lease.
func (l *Limiter) decide(ctx context.Context, ask ask, verb func(link, context.Context, ask) (taken, error)) (taken, error) {
	for _, next := range l.chain {
		ask.blocked = l.known.Left(ask.key, next.trusts())
		t, err := verb(next, ctx, ask)
		why, passes := err.(noAnswer) //nolint:errorlint // links do not wrap it
		switch {
		case passes:
			ask.why = why
			continue
		case err != nil:
			return taken{}, err
		case l.closed.Load():
			return taken{}, engine.ErrClosed
		}
		t.by, t.blocked = next, max(t.blocked, ask.blocked)
		if t.blocked == 0 && !t.answer.Allowed && t.answer.Source() == limits.SourceLease {
			t.blocked = l.known.Left(ask.key, policy.Never)
		}
		refuseBlocked(&t.answer, t.blocked)
		return t, nil
	}
	// This line is not reached, since a fallback answers every call.
	return taken{}, ask.why.cause
}

// giveBack has the links give back units of any calls. Units of a receipt go to its own link.
func (l *Limiter) giveBack(ctx context.Context, ask ask) (limits.Answer, error) {
	for _, next := range l.chain {
		taken, err := next.giveBack(ctx, ask)
		why, passes := err.(noAnswer) //nolint:errorlint // links do not wrap it
		switch {
		case passes:
			ask.why = why
		case err == nil && l.closed.Load():
			return limits.Answer{}, engine.ErrClosed
		default:
			return taken.answer, err
		}
	}
	return limits.Answer{}, ask.why.cause
}
