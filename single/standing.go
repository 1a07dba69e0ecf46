package single

import (
	"time"

	"github.com/ral-limiter/ral/policy"
)

// standing is a word and its terms. Lines compare standings.
type standing struct {
	terms *terms
	word  uint64
}

// standing returns the present standing, without terms if zero, and an instant before the standing
// was read.
func (l *Limiter) standing() (standing, policy.Instant) {
	now := l.time.now()
	terms := l.terms.Load()
	if terms == nil {
		return standing{}, now
	}
	for {
		word := terms.word.Load()
		if word != moved {
			return standing{terms, word}, now
		}
		terms = l.after(terms)
	}
}

func (l *Limiter) refusal(n int64) policy.Decision {
	decision := l.probe(n, noDelay)
	if decision.Allowed {
		// The look takes nothing.
		decision = l.probe(0, noDelay)
		// Other calls are before this call.
		decision.RetryAfter = 1
		if l.terms.Load().inUse != nil {
			decision.RetryAfter = max(decision.ResetAfter, 1)
		}
	}
	decision.Allowed = false
	return decision
}

func (l *Limiter) probe(n int64, patience time.Duration) (decision policy.Decision) {
	if standing, now := l.standing(); standing.terms == nil {
		decision.RetryAfter = policy.Never
	} else {
		q := request{n: n, patience: patience}
		q.decide(standing.terms, standing.word, now, &decision)
	}
	return decision
}

func (l *Limiter) hasWaiters() bool {
	lines := l.lines.Load()
	return lines != nil && lines.Has(struct{}{})
}
