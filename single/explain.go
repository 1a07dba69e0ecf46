package single

import (
	"github.com/ral-limiter/ral/limits"
	"github.com/ral-limiter/ral/policy"
)

// Explain returns why a call is admitted or refused now: usage, its return, and how many
// calls wait. Its String says so in sentences. Explain takes nothing.
func (l *Limiter) Explain() limits.Explanation {
	explanation := limits.Explanation{Binding: -1}
	if terms := l.terms.Load(); terms != nil {
		word := terms.word.Load()
		for ; word == moved; word = terms.word.Load() {
			terms = l.after(terms)
		}
		explanation = limits.ExplainWord(terms.policy, word, l.time.now(), 1, 0)
	} else {
		// The Limiter is zero.
		explanation.RetryAfter = policy.Never
	}
	explanation.Known, explanation.Provenance = true, inProcess
	if lines := l.lines.Load(); lines != nil {
		explanation.Line(lines.Behind(struct{}{}, &waiter{limiter: l, n: 1}))
	}
	return explanation
}
