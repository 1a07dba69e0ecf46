package single

import (
	"github.com/ral-limiter/ral/limits"
	"github.com/ral-limiter/ral/policy"
)

// Explain returns why a call is admitted or refused now: usage, when it comes back, and how many
// calls wait. Its String says so in sentences. It takes nothing.
func (l *Limiter) Explain() limits.Explanation {
	x := limits.Explanation{Binding: -1}
	if t := l.terms.Load(); t != nil {
		word := t.word.Load()
		for ; word == moved; word = t.word.Load() {
			t = l.after(t)
		}
		x = limits.ExplainWord(t.policy, word, l.time.now(), 1, 0)
	} else {
		// The Limiter is zero.
		x.RetryAfter = policy.Never
	}
	x.Known, x.Provenance = true, inProcess
	if lines := l.lines.Load(); lines != nil {
		x.Line(lines.Behind(struct{}{}, &waiter{limiter: l, n: 1}))
	}
	return x
}
