package fleet

import (
	"context"
	"time"

	"github.com/ral-limiter/ral/engine"
	"github.com/ral-limiter/ral/limits"
	"github.com/ral-limiter/ral/policy"
)

// link is a way to decide calls. A limiter asks its links in their order (leased, exact, fallback)
// until one answers. The error noAnswer passes the call on to the next link; any other error ends it.
type link interface {
	// trusts returns how old Redis's last word about the key's block may be for this link to go by.
	trusts() time.Duration
	// take takes a.n units, which are not 0.
	take(ctx context.Context, a ask) (taken, error)
	// look answers as take would, and takes nothing. For 0 units it answers with the key's state.
	look(ctx context.Context, a ask) (taken, error)
	// giveBack gives units back: all of a.receipt's except a.kept or, without a receipt, any a.n.
	// It charges -a.n units if a.n is below 0.
	giveBack(ctx context.Context, a ask) (taken, error)
}

// ask is a call for units of a key.
type ask struct {
	terms    *terms
	key      string
	n        int64
	patience time.Duration
	returns  bool // see store.TakeAsk
	final    bool // the caller gives nothing back, so that no receipt is needed
	receipt  any  // of the take that giveBack undoes
	kept     int64

	blocked time.Duration // for how long the key is, as heard from Redis; then a link takes nothing
	why     noAnswer      // of the link before
}

// taken is a link's answer to a call.
type taken struct {
	answer  limits.Answer
	by      link
	receipt any // that the link's giveBack undoes the take by, or nil
	// guess reports that RetryAfter is a guess, not a limit's decision.
	guess   bool
	blocked time.Duration // for how long the key is, if it is refused for that
}

// take has the links take the units, and counts the answer.
func (l *Limiter) take(ctx context.Context, a ask) (taken, error) {
	if a.n == 0 {
		return l.look(ctx, a)
	}
	t, err := l.decide(ctx, a, link.take)
	if err == nil && (t.by != l.leased || t.blocked > 0) {
		l.tally.count(a.n, &t.answer) // the leases count their own
	}
	return t, err
}

// look has the links tell what take would answer.
func (l *Limiter) look(ctx context.Context, a ask) (taken, error) {
	return l.decide(ctx, a, link.look)
}

// decide asks the links. Here a block is asked when a call enters a link, and applied when the answer
// leaves: in a lease's refusal only the answer to the lease may have told of the block.
func (l *Limiter) decide(ctx context.Context, a ask, verb func(link, context.Context, ask) (taken, error)) (taken, error) {
	for _, next := range l.chain {
		a.blocked = l.blockedFor(a.key, next.trusts())
		t, err := verb(next, ctx, a)
		why, passes := err.(noAnswer) //nolint:errorlint // links do not wrap it
		switch {
		case passes:
			a.why = why
			continue
		case err != nil:
			return taken{}, err
		case l.closed.Load():
			return taken{}, engine.ErrClosed
		}
		t.by, t.blocked = next, max(t.blocked, a.blocked)
		if t.blocked == 0 && !t.answer.Allowed && t.answer.Source() == limits.SourceLease {
			t.blocked = l.blockedFor(a.key, policy.Never)
		}
		refuseBlocked(&t.answer, t.blocked)
		return t, nil
	}
	return taken{}, a.why.cause // this is not reached, since a fallback answers every call
}

// giveBack has the links give back units of any calls. Units of a receipt go to its own link.
func (l *Limiter) giveBack(ctx context.Context, a ask) (limits.Answer, error) {
	for _, next := range l.chain {
		t, err := next.giveBack(ctx, a)
		why, passes := err.(noAnswer) //nolint:errorlint // links do not wrap it
		switch {
		case passes:
			a.why = why
		case err == nil && l.closed.Load():
			return limits.Answer{}, engine.ErrClosed
		default:
			return t.answer, err
		}
	}
	return limits.Answer{}, a.why.cause
}

// blockedFor returns how much longer the key is blocked, as heard from Redis less than within ago,
// or 0.
func (l *Limiter) blockedFor(key string, within time.Duration) time.Duration {
	if within == 0 || l.known.Empty() { // as on most servers
		return 0
	}
	if left, ago := l.known.Left(key); ago < within {
		return left
	}
	return 0
}
