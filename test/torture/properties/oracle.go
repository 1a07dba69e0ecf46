package properties

import (
	"time"

	"github.com/ral-limiter/ral/policy"
)

// word models a key by the policy's own pure function.
type word struct {
	p    policy.Policy
	word uint64
}

// take answers as Take must, and records it.
func (w *word) take(now policy.Instant, n int64, patience time.Duration) (decision policy.Decision) {
	w.word, decision = w.p.Take(w.word, now, n, patience)
	return decision
}

// refund answers as Refund must, and records it.
func (w *word) refund(now policy.Instant, n int64) policy.Decision {
	w.word = w.p.(policy.Refunder).Refund(w.word, now, n)
	_, decision := w.p.Take(w.word, now, 0, 0)
	return decision
}

// mark returns a function that restores the present state, if no other call changes it.
func (w *word) mark() func() {
	was := w.word
	return func() { w.word = was }
}

// undo is the back of a mark for a take that was made: it may leave a trace.
func (w *word) undo(now policy.Instant, back func()) {
	taken := w.word
	if back(); taken != w.word {
		if restorer, ok := w.p.(policy.Restorer); ok {
			w.word = restorer.Restore(taken, w.word, now)
		}
	}
}

// owes reports whether forgetting the key would change an answer.
func (w *word) owes(now policy.Instant) bool { return w.p.FreshAt(w.word) > now }
func (w *word) forget()                      { w.word = 0 }
