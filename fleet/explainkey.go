package fleet

import (
	"context"

	"github.com/ral-limiter/ral/fleet/internal/store"
	"github.com/ral-limiter/ral/internal/core/shape"
	"github.com/ral-limiter/ral/limits"
	"github.com/ral-limiter/ral/policy"
)

// Explain returns why a call for the key is admitted or refused now. It tells the key's limit, its
// used units on all servers and their return, its block, and this server's waiting calls. Its
// String says so in sentences. Like Peek it asks Redis, takes nothing and is not counted.
//
// The Explanation leaves out unknown figures:
//
//   - Under a SlidingLog, Returns is empty, and RetryAfter of a key at its limit is 0.
//   - In Leased mode Redis counts units on lease as used: Used, Of and Returns are left out. This
//     server, which may hold units, says whether a call is allowed.
//   - While Redis is away, Used, Of and Returns are left out, and Config.Outage says whether a call
//     is allowed. See Explanation.Source, and Err for the reason.
//
// The errors are Take's; a PolicyFor limit of another family is explained as refusing all.
func (l *Limiter) Explain(ctx context.Context, key string) (limits.Explanation, error) {
	return l.ExplainWith(ctx, nil, key)
}

// ExplainWith is Explain for a call under a limit that comes with it: see TakeWith. nil is the limit
// that holds for the key anyway.
func (l *Limiter) ExplainWith(ctx context.Context, limit policy.Policy, key string) (limits.Explanation, error) {
	x := limits.Explanation{Binding: -1}
	terms, err := l.find(limit, key)
	if err != nil {
		a, err := noAnswerFor(err)
		if err != nil {
			return x, err
		}
		x.Decision, x.Provenance, x.Known = a.Decision, a.Provenance, true
	} else {
		var unspent int64
		if l.leased != nil {
			unspent = l.leased.leases.Held(key)
		}
		t, err := l.look(ctx, ask{terms: terms, key: key})
		if err != nil {
			return x, err
		}
		got, exact := t.receipt.(*store.Taken)
		switch {
		case !exact:
			x = l.explainWithout(terms, key, &t)
		case terms.wordless:
			x = explainLog(terms, &t)
		default:
			x = limits.ExplainWord(terms.limit.Policy(), got.After, got.At, 1, t.blocked)
			x.Known = x.Known || got.After != 0
		}
		t.answer.Allowed = x.Allowed
		x.Provenance = forAdapters(t.answer).Provenance
		if l.leased != nil && exact {
			l.leased.explain(&x, key, unspent)
		}
	}
	if shape.IsNil(limit) {
		limit = l.LimitFor(key)
	}
	x.Name, x.Limit, x.Waiting = l.config.Name, limit, l.waiters.forKey(key)
	return x, nil
}

// explainLog explains Redis's answer for a log, without a word.
func explainLog(terms *terms, t *taken) limits.Explanation {
	x := limits.Explanation{Binding: -1, Decision: t.answer.Decision}
	x.Known = x.ResetAfter > 0
	// Otherwise Remaining is not the limit's.
	if t.blocked == 0 {
		x.Of = terms.maxTake
		x.Used = x.Of - x.Remaining
	}
	x.Allowed = x.Remaining > 0
	x.Block(t.blocked)
	return x
}

// explain corrects Redis's explanation by this server's own decision and unspent units.
func (l *leased) explain(x *limits.Explanation, key string, unspent int64) {
	x.Used, x.Of, x.Returns = 0, 0, nil
	switch {
	case x.Blocked > 0:
	case unspent > 0:
		x.Allowed, x.Remaining, x.RetryAfter = true, min(x.Remaining+unspent, l.plan.Limit()), 0
		x.Provenance = byLease
	default:
		if refused := l.leases.Refused(key); refused > 0 {
			x.Allowed, x.RetryAfter, x.Provenance = false, max(x.RetryAfter, refused), byLease
		}
	}
}

// explainWithout explains a key by the fallback. t is its answer to a look.
func (l *Limiter) explainWithout(terms *terms, key string, t *taken) limits.Explanation {
	x := limits.Explanation{Binding: -1, Known: true, Decision: policy.Decision{Limit: terms.maxTake}}
	switch t.answer.Source() {
	case limits.SourceOpen:
		x.Allowed = true
	case limits.SourceShare:
		x.Decision = fallback{l}.shared(&ask{terms: terms}, terms.local.Peek(key, 1), 1).answer.Decision
	}
	x.Block(t.blocked)
	return x
}
