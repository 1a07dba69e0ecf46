package engine

import (
	"errors"

	"github.com/ral-limiter/ral/cell"
	"github.com/ral-limiter/ral/internal/core/decide"
	"github.com/ral-limiter/ral/limits"
	"github.com/ral-limiter/ral/policy"
)

// Explain returns why a call for the key is admitted or refused now: its limit, use, block and
// waiting calls. Its String says so in sentences. Explain takes nothing, opens no key, never waits
// for the limit and is not counted. Explain allocates, and costs some microseconds. For a call that
// could not be recorded, as in a full table or after Close, Explain explains the answer of
// Config.WhenFull or WhenUnavailable.
func (e *Engine[K]) Explain(key K) limits.Explanation { return e.ExplainWith(nil, key) }

// ExplainWith is Explain for a call under a limit that comes with it: see TakeWith. A limit of another
// family refuses every call. nil is the limit that holds for the key anyway.
func (e *Engine[K]) ExplainWith(limit policy.Policy, key K) limits.Explanation {
	explanation, _ := e.explain(limit, key, 1)
	return explanation
}

var (
	unrecordedFull = limits.NewProvenance(limits.SourceUnrecorded, false, errors.New("the table is full, and Config.WhenFull decides"))
	unrecordedLost = limits.NewProvenance(limits.SourceUnrecorded, false, errors.New("the limiter is closed or degraded, or cannot find such a key again, and Config.WhenUnavailable decides"))
)

func (e *Engine[K]) explain(limit policy.Policy, key K, n int64) (explanation limits.Explanation, standing cell.Standing) {
	standing = e.cell.Standing(limit, key, n)
	if standing.Misfit {
		explanation = limits.Explanation{Limit: standing.Limit, Binding: none}
		explanation.RetryAfter = policy.Never
		explanation.Block(standing.Blocked)
	} else {
		explanation = limits.ExplainWord(standing.Limit, standing.Word, standing.Now, n, standing.Blocked)
	}
	explanation.Name, explanation.Provenance, explanation.Known = e.name, inProcess, explanation.Known || standing.Known
	explanation.Line(standing.Waiting, standing.Turn)
	explainUnrecorded(&explanation, standing, n)
	return explanation, standing
}

func explainUnrecorded(explanation *limits.Explanation, standing cell.Standing, n int64) {
	unrecorded := standing.Unrecorded
	if unrecorded == nil || !explanation.Allowed || n == 0 {
		return
	}
	explanation.Provenance = unrecordedLost
	if unrecorded.Full {
		explanation.Provenance = unrecordedFull
	}
	if !unrecorded.Allowed {
		explanation.Allowed, explanation.Remaining, explanation.Wait, explanation.ResetAfter, explanation.RetryAfter = false, 0, 0, 0, unrecorded.RetryAfter
	}
}

// explainBeside is explain for a call on several limits: a limit that would delay the call refuses.
func (e *Engine[K]) explainBeside(key K, n int64) limits.Explanation {
	explanation, standing := e.explain(nil, key, n)
	if standing.Misfit || !standing.Limit.Delays() {
		return explanation
	}
	var decision policy.Decision
	decide.Take(standing.Limit, standing.Word, standing.Now, n, decide.NoDelay, 0, &decision)
	explanation.Allowed, explanation.Wait, explanation.RetryAfter, explanation.Provenance = decision.Allowed, 0, decision.RetryAfter, inProcess
	explanation.Block(standing.Blocked)
	explanation.Line(standing.Waiting, standing.Turn)
	explainUnrecorded(&explanation, standing, n)
	return explanation
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
	for i, limiter := range t.engines {
		each[i] = limiter.explainBeside(key, 1)
		each[i].Name = tierName(limiter.name, i)
	}
	explanation := limits.Together(each...)
	if len(each) == 0 {
		explanation.Decision = unlimited
	}
	explanation.Provenance = sharedProvenance(each)
	return explanation
}

// ExplainClaims explains the key of each claim, in order, for the claim's units, and which claim
// decides: see Engine.Explain. The zero Claim is refused.
func ExplainClaims(claims ...Claim) limits.Explanation {
	each := make([]limits.Explanation, len(claims))
	for i, claim := range claims {
		each[i] = claim.claimer().explainKey(claim.key, claim.n)
	}
	explanation := limits.Together(each...)
	explanation.Provenance = sharedProvenance(each)
	return explanation
}

func (e *Engine[K]) explainKey(key anyKey, n int64) limits.Explanation {
	return e.explainBeside(unpack[K](e.form, key), n)
}
