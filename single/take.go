package single

import (
	"time"

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
	noDelay = time.Duration(-1)
	// forever is the patience of a call that waits until its context ends.
	forever = policy.Never
)

// receipt is what a take did to the word. The zero receipt recorded nothing.
type receipt struct {
	terms         *terms
	before, after uint64
	at            policy.Instant
	returned      uint64 // terms.returned before the take
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
				*r = receipt{t, word, next, now, returned}
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
		return t.refund(word, now, q.n, d)
	}
	next, *d = t.policy.Take(word, now, q.n, max(q.patience, 0))
	switch {
	case q.notBefore != 0 && d.Allowed && now+policy.Instant(d.Wait) < q.notBefore:
		*d = policy.Decision{Limit: d.Limit, RetryAfter: time.Duration(q.notBefore - now)}
		return word
	case q.patience != noDelay:
	case d.Allowed && d.Wait > 0:
		retry := d.Wait
		next, *d = t.policy.Take(word, now, 0, 0)
		d.Allowed, d.RetryAfter = false, retry
	case !d.Allowed && d.RetryAfter < policy.Never-time.Duration(max(now, 0)):
		// After RetryAfter the call could join a queue, and would have to wait there too.
		_, then := t.policy.Take(word, now+policy.Instant(d.RetryAfter), q.n, 0)
		d.RetryAfter += then.Wait
	}
	return next
}

// refund returns the word after n units are given back, or -n charged, and puts the
// decision then into d. A policy that cannot give back refuses.
func (t *terms) refund(word uint64, now policy.Instant, n int64, d *policy.Decision) (next uint64) {
	if t.refunder == nil {
		*d = policy.Decision{Limit: t.policy.Limit(), RetryAfter: policy.Never}
		return word
	}
	next = t.refunder.Refund(word, now, n)
	_, *d = t.policy.Take(next, now, 0, 0)
	return next
}
