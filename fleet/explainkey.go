package fleet

import (
	"context"

	"github.com/ral-limiter/ral/fleet/internal/store"
	"github.com/ral-limiter/ral/internal/core/shape"
	"github.com/ral-limiter/ral/limits"
	"github.com/ral-limiter/ral/policy"
)

// Explain returns why a call for the key is admitted or refused now. The Explanation has the key's
// limit, its used units on all servers and their return, its block, and this server's waiting
// calls. Its String says so in sentences. Like Peek it asks Redis, takes nothing and is not
// counted.
//
// The Explanation leaves out unknown figures:
//
//   - While ErrEmptied is the reason that no unit in flight is admitted, Used and Of are left out.
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

// ExplainWith is Explain for a call under a limit that comes with the call: see TakeWith. nil is
// the limit that holds for the key anyway.
func (l *Limiter) ExplainWith(ctx context.Context, limit policy.Policy, key string) (limits.Explanation, error) {
	explanation := limits.Explanation{Binding: -1}
	terms, err := l.find(limit, key)
	if err != nil {
		answer, err := noAnswerFor(err)
		if err != nil {
			return explanation, err
		}
		explanation.Decision, explanation.Provenance, explanation.Known = answer.Decision, answer.Provenance, true
	} else {
		var unspent int64
		if l.leased != nil {
			unspent = l.leased.leases.Held(key)
		}
		taken, err := l.look(ctx, ask{terms: terms, key: key})
		if err != nil {
			return explanation, err
		}
		got, exact := taken.receipt.(*store.Taken)
		switch {
		case !exact:
			explanation = l.explainWithout(terms, key, &taken)
		case terms.wordless:
			explanation = explainLog(terms, &taken)
			if got.Emptied {
				// How many units are in use is not known yet.
				explanation.Used, explanation.Of, explanation.RetryAfter = 0, 0, max(explanation.RetryAfter, explanation.ResetAfter)
				taken.answer.Provenance = byEmptied
			}
		default:
			explanation = limits.ExplainWord(terms.limit.Policy(), got.After, got.At, 1, taken.blocked)
			explanation.Known = explanation.Known || got.After != 0
		}
		taken.answer.Allowed = explanation.Allowed
		explanation.Provenance = forAdapters(taken.answer).Provenance
		if l.leased != nil && exact {
			l.leased.explain(&explanation, key, unspent)
		}
	}
	if shape.IsNil(limit) {
		limit = l.LimitFor(key)
	}
	explanation.Name, explanation.Limit, explanation.Waiting = l.config.Name, limit, l.waiters.forKey(key)
	return explanation, nil
}

// explainLog explains Redis's answer for a log, without a word.
func explainLog(terms *terms, taken *taken) limits.Explanation {
	explanation := limits.Explanation{Binding: -1, Decision: taken.answer.Decision}
	explanation.Known = explanation.ResetAfter > 0
	// Otherwise Remaining is not the limit's.
	if taken.blocked == 0 {
		explanation.Of = terms.maxTake
		explanation.Used = explanation.Of - explanation.Remaining
	}
	explanation.Allowed = explanation.Remaining > 0
	explanation.Block(taken.blocked)
	return explanation
}

// explain corrects Redis's explanation by this server's own decision and unspent units.
func (l *leased) explain(explanation *limits.Explanation, key string, unspent int64) {
	explanation.Used, explanation.Of, explanation.Returns = 0, 0, nil
	switch {
	case explanation.Blocked > 0:
	case unspent > 0:
		explanation.Allowed, explanation.Remaining, explanation.RetryAfter = true, min(explanation.Remaining+unspent, l.plan.Limit()), 0
		explanation.Provenance = byLease
	default:
		if refused := l.leases.Refused(key); refused > 0 {
			explanation.Allowed, explanation.RetryAfter, explanation.Provenance = false, max(explanation.RetryAfter, refused), byLease
		}
	}
}

// explainWithout explains a key by the fallback. taken is its answer to a look.
func (l *Limiter) explainWithout(terms *terms, key string, taken *taken) limits.Explanation {
	explanation := limits.Explanation{Binding: -1, Known: true, Decision: policy.Decision{Limit: terms.maxTake}}
	switch taken.answer.Source() {
	case limits.SourceOpen:
		explanation.Allowed = true
	case limits.SourceShare:
		explanation.Decision = fallback{l}.shared(&ask{terms: terms}, terms.local.Peek(key, 1), 1).answer.Decision
	}
	explanation.Block(taken.blocked)
	return explanation
}
