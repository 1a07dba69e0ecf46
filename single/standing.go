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

// standing returns the present standing, without terms if zero, and an instant before it was read.
func (l *Limiter) standing() (standing, policy.Instant) {
	now := l.time.now()
	t := l.terms.Load()
	if t == nil {
		return standing{}, now
	}
	for {
		word := t.word.Load()
		if word != moved {
			return standing{t, word}, now
		}
		t = l.after(t)
	}
}

func (l *Limiter) refusal(n int64) policy.Decision {
	d := l.probe(n, noDelay)
	if d.Allowed {
		// The look takes nothing.
		d = l.probe(0, noDelay)
		// Other calls are before it.
		d.RetryAfter = 1
		if l.terms.Load().inUse != nil {
			d.RetryAfter = max(d.ResetAfter, 1)
		}
	}
	d.Allowed = false
	return d
}

func (l *Limiter) probe(n int64, patience time.Duration) (d policy.Decision) {
	if s, now := l.standing(); s.terms == nil {
		d.RetryAfter = policy.Never
	} else {
		q := request{n: n, patience: patience}
		q.decide(s.terms, s.word, now, &d)
	}
	return d
}

func (l *Limiter) hasWaiters() bool {
	lines := l.lines.Load()
	return lines != nil && lines.Has(struct{}{})
}
