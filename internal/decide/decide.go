// Package decide answers calls by a word, beyond what a policy's Take and Refund say: it
// refuses calls that must start at once, or not too early. Packages cell and single share
// it. It knows nothing of keys, nor of where a word is kept.
package decide

import (
	"time"

	"github.com/ral-limiter/ral/policy"
)

// NoDelay is the patience of a call that must start at once if it is allowed, also under a
// policy that delays its callers.
const NoDelay = time.Duration(-1)

// Take puts the answer to a call of n units into d, and returns the word to be recorded if
// it is allowed. patience bounds how late the call may have to start; see NoDelay. A call
// that would start before notBefore is refused. 0 sets no such bound.
func Take(
	p policy.Policy, word uint64, now policy.Instant, n int64, patience time.Duration, notBefore policy.Instant,
	d *policy.Decision,
) (next uint64) {
	next, *d = p.Take(word, now, n, max(patience, 0))
	switch {
	case notBefore != 0 && d.Allowed && now+policy.Instant(d.Wait) < notBefore:
		*d = policy.Decision{Limit: d.Limit, RetryAfter: time.Duration(notBefore - now)}
		return word
	case patience != NoDelay:
	case d.Allowed && d.Wait > 0:
		retry := d.Wait
		next, *d = p.Take(word, now, 0, 0)
		d.Allowed, d.RetryAfter = false, retry
	case !d.Allowed && d.RetryAfter < policy.Never-time.Duration(max(now, 0)):
		// After RetryAfter the call could join a queue, and would have to wait there too.
		_, then := p.Take(word, now+policy.Instant(d.RetryAfter), n, 0)
		d.RetryAfter += then.Wait
	}
	return next
}

// Refund returns the word after n units are given back, or -n charged, and puts the
// decision then into d. A policy that cannot give back, whose refunder is nil, refuses. Its
// decision has a Limit, unlike that of a limit of another family.
func Refund(
	p policy.Policy, refunder policy.Refunder, word uint64, now policy.Instant, n int64, d *policy.Decision,
) (next uint64) {
	if refunder == nil {
		*d = policy.Decision{Limit: p.Limit(), RetryAfter: policy.Never}
		return word
	}
	next = refunder.Refund(word, now, n)
	_, *d = p.Take(next, now, 0, 0)
	return next
}
