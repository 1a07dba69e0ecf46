package engine

import (
	"github.com/ral-limiter/ral/limits"
	"github.com/ral-limiter/ral/policy"
)

// Engines explain keys.
var (
	_ limits.Explainer[string] = (*Engine[string])(nil)
	_ limits.Explainer[string] = (*Tiered[string])(nil)
)

// Explain returns why a call for the key is admitted or refused now: its limit, what it has
// used and when that comes back, for how long it is blocked, and how many calls wait for it.
// Its String says so in sentences. It takes nothing, opens no key, never waits for the limit
// and is not counted. It allocates, and costs some microseconds.
func (e *Engine[K]) Explain(key K) limits.Explanation { return e.explain(key, 1) }

// explain is Explain for a call of n units.
func (e *Engine[K]) explain(key K, n int64) limits.Explanation {
	s := e.cell.Standing(key)
	var x limits.Explanation
	if s.Misfit {
		x = limits.Explanation{Limit: e.LimitFor(key), Binding: none}
		x.RetryAfter = policy.Never
		x.Block(s.Blocked)
	} else {
		x = limits.ExplainWord(s.Limit, s.Word, s.Now, n, s.Blocked)
	}
	x.Name, x.Basis, x.Known, x.Waiting = e.name, inProcess, s.Known, s.Waiting
	return x
}

// Explain explains the key under each limit, in the order of Engines, and under all of them
// together: see Engine.Explain. Each has the name that its metrics have: Config.Name for the
// first, and that with ".2", ".3" and so on for the others.
func (t *Tiered[K]) Explain(key K) limits.Explanation {
	each := make([]limits.Explanation, len(t.engines))
	for i, e := range t.engines {
		each[i] = e.Explain(key)
		each[i].Name = tierName(e.name, i)
	}
	x := limits.Together(each...)
	if len(each) == 0 {
		x.Decision = unlimited
	}
	x.Basis = inProcess
	return x
}

// ExplainClaims explains the key of each claim, in their order, for a call of as many units
// as it asks for, and says which one decides: see Engine.Explain. The zero Claim is refused.
func ExplainClaims(claims ...Claim) limits.Explanation {
	each := make([]limits.Explanation, len(claims))
	for i, c := range claims {
		of := c.of
		if of == nil {
			of = noEngine{}
		}
		each[i] = of.explainKey(c.key, c.n)
	}
	x := limits.Together(each...)
	x.Basis = inProcess
	return x
}

func (e *Engine[K]) explainKey(key anyKey, n int64) limits.Explanation {
	return e.explain(unpack[K](e.form, key), n)
}
