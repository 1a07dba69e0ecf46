package fleet

import (
	"context"

	"github.com/ral-limiter/ral/fleet/internal/store"
	"github.com/ral-limiter/ral/limits"
	"github.com/ral-limiter/ral/policy"
)

var _ limits.RemoteExplainer[string] = (*Limiter)(nil)

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
	x := limits.Explanation{Binding: -1}
	of, err := l.find(nil, key)
	if err != nil {
		a, err := noAnswerFor(err)
		if err != nil {
			return x, err
		}
		x.Decision, x.Provenance, x.Known = a.Decision, a.Provenance, true
	} else {
		held := l.held(key)
		t, err := l.takeExact(ctx, of, store.TakeAsk{Key: key}, 0)
		switch {
		case err != nil:
			return x, err
		case t.answer.Source() != limits.SourceRedis:
			x = l.explainWithout(of, key, &t)
		case of.logged:
			x = explainLog(of, &t)
		default:
			x = limits.ExplainWord(of.limit.Policy(), t.exact.After, t.exact.At, 1, t.exact.Block.Left)
			x.Known = x.Known || t.exact.After != 0
		}
		t.answer.Allowed = x.Allowed
		x.Provenance = forAdapters(t.answer).Provenance
		if l.leases != nil && t.answer.Source() == limits.SourceRedis {
			l.explainLease(&x, key, held)
		}
	}
	x.Name, x.Limit, x.Waiting = l.config.Name, l.LimitFor(key), l.waiters.forKey(key)
	return x, nil
}

// explainLog explains Redis's answer for a log, without a word.
func explainLog(of *terms, t *taken) limits.Explanation {
	x := limits.Explanation{Binding: -1, Decision: t.answer.Decision}
	x.Known = x.ResetAfter > 0
	if t.exact.Block.Left == 0 { // else Remaining is not the limit's
		x.Of = of.most
		x.Used = x.Of - x.Remaining
	}
	x.Allowed = x.Remaining > 0
	x.Block(t.exact.Block.Left)
	return x
}

// explainLease corrects Redis's explanation by this server's own decision and held units.
func (l *Limiter) explainLease(x *limits.Explanation, key string, held int64) {
	x.Used, x.Of, x.Returns = 0, 0, nil
	switch {
	case x.Blocked > 0:
	case held > 0:
		x.Allowed, x.Remaining, x.RetryAfter = true, min(x.Remaining+held, l.plan.Limit()), 0
		x.Provenance = byLease
	default:
		if refused := l.leases.Refused(key); refused > 0 {
			x.Allowed, x.RetryAfter, x.Provenance = false, max(x.RetryAfter, refused), byLease
		}
	}
}

// explainWithout explains a key by the fallback. t is its answer to a look.
func (l *Limiter) explainWithout(of *terms, key string, t *taken) limits.Explanation {
	x := limits.Explanation{Binding: -1, Known: true, Decision: policy.Decision{Limit: of.most}}
	switch t.answer.Source() {
	case limits.SourceOpen:
		x.Allowed = true
	case limits.SourceShare:
		x.Decision = l.shared(of, of.local.Peek(key, 1), 1, nil).Decision
	}
	x.Block(t.blocked)
	return x
}
