package single

import (
	"time"

	"github.com/ral-limiter/ral/internal/core/decide"
	"github.com/ral-limiter/ral/policy"
)

// request is what one call asks for.
type request struct {
	n int64
	// patience bounds how late an allowed call may have to start. noDelay refuses every
	// call that would have to start later, also under a policy that delays its callers.
	patience time.Duration
	// notBefore refuses a call that would start before that instant. 0 sets no bound.
	notBefore policy.Instant
	// charge records -n units, although the limit may not allow them.
	charge bool
}

const (
	// noDelay is the patience of a call that must start at once if it is allowed.
	noDelay = decide.NoDelay
	// forever is the patience of a call that waits until its context ends.
	forever = policy.Never
)

// receipt is what a take did to the word. The zero receipt recorded nothing.
type receipt struct {
	terms         *terms
	before, after uint64
	at            policy.Instant
	returned      uint64 // terms.returned before the take
	id            uint64 // in terms.log
}

// take answers q in d, and records what is allowed. It is the one loop in which the word
// rises, except Choke's, which is this one for one unit. r, if not nil, is the receipt
// for what was recorded.
func (l *Limiter) take(q *request, d *policy.Decision, r *receipt) {
	t := l.terms.Load()
	if t == nil {
		*d = policy.Decision{RetryAfter: policy.Never}
		return
	}
	now := l.time.now()
	for {
		returned := t.returned.Load()
		word := t.word.Load()
		if word == moved {
			t = l.after(t)
			continue
		}
		next := q.decide(t, word, now, d)
		switch {
		case q.n == 0 || !d.Allowed || q.charge && next == word:
			return
		case next > policy.MaxWord:
			// A policy that breaks its contract must not break the Limiter.
			*d = policy.Decision{Limit: d.Limit, RetryAfter: policy.Never}
			return
		}
		// A swap that succeeds hands the units to this call. Nothing else has to agree.
		if t.word.CompareAndSwap(word, next) {
			if r != nil {
				*r = receipt{terms: t, before: word, after: next, at: now, returned: returned}
			}
			return
		}
		// Another call was faster. Decide again, at the same instant.
	}
}

// decide puts the answer under the terms into d, and returns the word to be recorded if
// it is allowed.
func (q *request) decide(t *terms, word uint64, now policy.Instant, d *policy.Decision) (next uint64) {
	if q.charge {
		return decide.Refund(t.policy, t.refunder, word, now, q.n, d)
	}
	return decide.Take(t.policy, word, now, q.n, q.patience, q.notBefore, d)
}
