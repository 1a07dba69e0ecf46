// Package decide answers calls by a word, with more conditions than a policy's Take and Refund.
package decide

import (
	"math"
	"math/bits"
	"time"

	"github.com/ral-limiter/ral/internal/core/shape"
	"github.com/ral-limiter/ral/policy"
)

// NoDelay is the patience of a call that must start at once if allowed, also under a Queue.
const NoDelay = time.Duration(-1)

// Take puts the answer to a call of n units into decision. Take returns the word to record if the
// call is allowed. patience may be [NoDelay]. A call that would start before notBefore is refused.
func Take(
	limit policy.Policy, word uint64, now policy.Instant, n int64, patience time.Duration, notBefore policy.Instant,
	decision *policy.Decision,
) (next uint64) {
	next, *decision = limit.Take(word, now, n, max(patience, 0))
	switch {
	case notBefore != 0 && decision.Allowed && now+policy.Instant(decision.Wait) < notBefore:
		*decision = policy.Decision{Limit: decision.Limit, RetryAfter: time.Duration(notBefore - now)}
		return word
	case patience != NoDelay:
	case decision.Allowed && decision.Wait > 0:
		retry := decision.Wait
		next, *decision = limit.Take(word, now, 0, 0)
		decision.Allowed, decision.RetryAfter = false, retry
	case !decision.Allowed && decision.RetryAfter < policy.Never-time.Duration(max(now, 0)):
		// After RetryAfter the call could join a queue, but would wait there too.
		_, then := limit.Take(word, now+policy.Instant(decision.RetryAfter), n, 0)
		decision.RetryAfter += then.Wait
	}
	return next
}

// UpTo takes as many of n units as remain, and returns how many. take takes a number of units, or
// none, and puts the answer into decision. The last answer is left there: a refusal of one unit if none
// remain.
func UpTo(n int64, decision *policy.Decision, take func(n int64)) int64 {
	for {
		take(n)
		switch {
		case decision.Allowed:
			return n
		case n <= 1:
			return 0
		}
		n = max(min(n-1, decision.Remaining), 1)
	}
}

// KeepsShare reports whether the last of ChangeLimit's keep is KeepShare (1) and not KeepUsed (0). The
// error is a *policy.FieldError.
func KeepsShare[K ~int](keep []K) (share bool, err error) {
	if len(keep) == 0 {
		return false, nil
	}
	last := keep[len(keep)-1]
	if last != 0 && last != 1 {
		return false, &policy.FieldError{Of: "ChangeLimit", Field: "keep", Value: int(last), Want: "KeepUsed or KeepShare"}
	}
	return last == 1, nil
}

// Anchor returns a limit of the wall clock by the wall time of instant 0, and any other as it is.
func Anchor(limit policy.Policy, zero time.Time) policy.Policy {
	if anchored, ok := limit.(policy.Anchored); ok {
		return anchored.Anchor(zero)
	}
	return limit
}

// Related returns the limit to if words can be carried to it from the limit from. Otherwise ok is false.
func Related(from, to policy.Policy) (relative policy.Relative, ok bool) {
	if relative, ok = to.(policy.Relative); ok {
		_, ok = relative.Carry(from, 0, 0)
	}
	return relative, ok
}

// Carry carries the word to the limit to, as policy.Relative does, with the used units or, if share is
// true, with their share of the limit.
func Carry(from policy.Policy, word uint64, to policy.Policy, now policy.Instant, share bool) (next uint64, ok bool) {
	if share {
		return inProportion(from, word, to, now)
	}
	return to.(policy.Relative).Carry(from, word, now)
}

// inProportion carries the word to the limit to, as policy.Relative does, with the share of the
// limit used that was used of from, rounded up to a unit. A key at its limit stays at it.
func inProportion(from policy.Policy, word uint64, to policy.Policy, now policy.Instant) (next uint64, ok bool) {
	relative := to.(policy.Relative)
	_, decision := from.Take(word, now, 0, 0)
	used, most := decision.Limit-decision.Remaining, to.Limit()
	if decision.Limit <= 0 {
		return relative.Carry(from, word, now)
	}
	hi, lo := bits.Mul64(uint64(used), uint64(most))
	quotient, rest := bits.Div64(hi, lo, uint64(decision.Limit))
	share := int64(quotient)
	if rest > 0 {
		share++
	}
	if refunder, can := from.(policy.Refunder); can && share < used && used < decision.Limit {
		word = refunder.Refund(word, now, used-share)
	}
	next, ok = relative.Carry(from, word, now)
	if refunder, can := to.(policy.Refunder); ok && can && share > used {
		_, decision = to.Take(next, now, 0, 0)
		next = refunder.Refund(next, now, min(decision.Limit-decision.Remaining-share, 0))
	}
	return next, ok
}

const maxDebt = 31 * 24 * time.Hour

// MostCharge returns the most units that a call may charge: as many as pass in 31 days, or as the
// limit admits at once if that is more. For a limit that is no policy.Windowed the bound is 1,000
// times the latter. A charge of an aligned window has no bound, as it ends with the window.
func MostCharge(limit policy.Policy) int64 {
	if shaped, ok := limit.(shape.Shaped); ok && shaped.Shape().Kind == shape.AlignedWindow {
		return math.MaxInt64
	}
	atOnce := max(shape.AtOnce(limit), 0)
	windowed, ok := limit.(policy.Windowed)
	if !ok {
		return min(atOnce, math.MaxInt64/1000) * 1000
	}
	window := uint64(max(windowed.Window(), 1))
	hi, lo := bits.Mul64(uint64(max(limit.Limit(), 0)), uint64(maxDebt))
	if hi >= window {
		return math.MaxInt64
	}
	passes, _ := bits.Div64(hi, lo, window)
	return max(int64(min(passes, math.MaxInt64)), atOnce)
}

// Refund returns the word after n units are given back, or -n charged, and puts the decision then
// into decision. Refund refuses a charge above MostCharge, and any call if refunder is nil. The
// refusal has a Limit, unlike a refusal for another family.
func Refund(
	limit policy.Policy, refunder policy.Refunder, word uint64, now policy.Instant, n int64, decision *policy.Decision,
) (next uint64) {
	if refunder == nil || n < 0 && n < -MostCharge(limit) {
		*decision = policy.Decision{Limit: limit.Limit(), RetryAfter: policy.Never}
		return word
	}
	next = refunder.Refund(word, now, n)
	_, *decision = limit.Take(next, now, 0, 0)
	return next
}
