package engine

import (
	"errors"

	"github.com/ral-limiter/ral/cell"
	"github.com/ral-limiter/ral/internal/core/decide"
	"github.com/ral-limiter/ral/limits"
	"github.com/ral-limiter/ral/policy"
)

// Explain returns why a call for the key is admitted or refused now: its limit, use, block and
// waiting calls. Its String says so in sentences. It takes nothing, opens no key, never waits for
// the limit and is not counted. It allocates, and costs some microseconds. For a call that could
// not be recorded, as in a full table or after Close, it explains the answer of Config.WhenFull or
// WhenUnavailable.
func (e *Engine[K]) Explain(key K) limits.Explanation { return e.ExplainWith(nil, key) }

// ExplainWith is Explain for a call under a limit that comes with it: see TakeWith. A limit of another
// family refuses every call. nil is the limit that holds for the key anyway.
func (e *Engine[K]) ExplainWith(limit policy.Policy, key K) limits.Explanation {
	x, _ := e.explain(limit, key, 1)
	return x
}

var (
	unrecordedFull = limits.NewProvenance(limits.SourceUnrecorded, false, errors.New("the table is full, and Config.WhenFull decides"))
	unrecordedLost = limits.NewProvenance(limits.SourceUnrecorded, false, errors.New("the limiter is closed or degraded, or cannot find such a key again, and Config.WhenUnavailable decides"))
)

func (e *Engine[K]) explain(limit policy.Policy, key K, n int64) (x limits.Explanation, s cell.Standing) {
	s = e.cell.Standing(limit, key, n)
	if s.Misfit {
		x = limits.Explanation{Limit: s.Limit, Binding: none}
		x.RetryAfter = policy.Never
		x.Block(s.Blocked)
	} else {
		x = limits.ExplainWord(s.Limit, s.Word, s.Now, n, s.Blocked)
	}
	x.Name, x.Provenance, x.Known = e.name, inProcess, x.Known || s.Known
	x.Line(s.Waiting, s.Turn)
	explainUnrecorded(&x, s, n)
	return x, s
}

func explainUnrecorded(x *limits.Explanation, s cell.Standing, n int64) {
	u := s.Unrecorded
	if u == nil || !x.Allowed || n == 0 {
		return
	}
	x.Provenance = unrecordedLost
	if u.Full {
		x.Provenance = unrecordedFull
	}
	if !u.Allowed {
		x.Allowed, x.Remaining, x.Wait, x.ResetAfter, x.RetryAfter = false, 0, 0, 0, u.RetryAfter
	}
}

// explainBeside is explain for a call on several limits: a limit that would delay it refuses it.
func (e *Engine[K]) explainBeside(key K, n int64) limits.Explanation {
	x, s := e.explain(nil, key, n)
	if s.Misfit || !s.Limit.Delays() {
		return x
	}
	var d policy.Decision
	decide.Take(s.Limit, s.Word, s.Now, n, decide.NoDelay, 0, &d)
	x.Allowed, x.Wait, x.RetryAfter, x.Provenance = d.Allowed, 0, d.RetryAfter, inProcess
	x.Block(s.Blocked)
	x.Line(s.Waiting, s.Turn)
	explainUnrecorded(&x, s, n)
	return x
}

func sharedProvenance(each []limits.Explanation) *limits.Provenance {
	for i := range each {
		if each[i].Source() == limits.SourceUnrecorded {
			return each[i].Provenance
		}
	}
	return inProcess
}

// Explain explains the key under each limit, in the order of Engines, and under all together: see
// Engine.Explain. A limit that would delay the call refuses it. Names are as in metrics:
// Config.Name for the first, then with ".2", ".3" and so on.
func (t *Tiered[K]) Explain(key K) limits.Explanation {
	each := make([]limits.Explanation, len(t.engines))
	for i, e := range t.engines {
		each[i] = e.explainBeside(key, 1)
		each[i].Name = tierName(e.name, i)
	}
	x := limits.Together(each...)
	if len(each) == 0 {
		x.Decision = unlimited
	}
	x.Provenance = sharedProvenance(each)
	return x
}

// ExplainClaims explains the key of each claim, in order, for the claim's units, and which claim
// decides: see Engine.Explain. The zero Claim is refused.
func ExplainClaims(claims ...Claim) limits.Explanation {
	each := make([]limits.Explanation, len(claims))
	for i, c := range claims {
		each[i] = c.claimer().explainKey(c.key, c.n)
	}
	x := limits.Together(each...)
	x.Provenance = sharedProvenance(each)
	return x
}

func (e *Engine[K]) explainKey(key anyKey, n int64) limits.Explanation {
	return e.explainBeside(unpack[K](e.form, key), n)
}
