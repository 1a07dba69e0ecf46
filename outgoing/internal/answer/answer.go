// Package answer reads HTTP responses: what a server says of its limits, and whether it refuses the call.
// It knows no key, no clock and no call but the response's. Package outgoing gives its type and its
// functions their public names.
//
// Start reading at [Answer], then [Of] in response.go.
package answer

import (
	"cmp"
	"math"
	"time"

	"github.com/ral-limiter/ral/policy"
)

const (
	// MaxTime is the maximum of engine.Block.
	MaxTime = 4 * 365 * 24 * time.Hour
	// MaxWindow and MaxCount bound the limits that are enforced.
	MaxWindow = 366 * 24 * time.Hour
	MaxCount  = 1_000_000_000
)

// Answer is the server's answer to a call. The zero Answer says only that it was served.
//
// Its only methods are the public ones, as the type is public as outgoing.Answer. Others are functions.
type Answer struct {
	// Refused reports whether the call was refused because it came too early.
	Refused bool
	// RetryAfter is the time after which a refused call may be sent again. At 0 or less it is Reset if
	// nothing remains, and otherwise unknown. With policy.Never the refusal is final: the call can
	// never be served, and no other call waits for it.
	RetryAfter time.Duration
	// NoRetry reports whether the refused call must not be sent again. The key's other calls wait for
	// RetryAfter all the same.
	NoRetry bool

	// Limit calls pass in each Window, if both are positive: the slowest of several limits. A Limit
	// without a Window tells only that no call may cost more: see outgoing.Config.Debts.
	Limit  int64
	Window time.Duration
	// Burst, the smallest Limit of several, bounds the calls sent at once. 0 and less stand for
	// Limit.
	Burst int64
	// ResetsLate reports whether the advertised reset is more than a window from now. Sliding windows
	// always are; fixed windows only by rounding to seconds.
	ResetsLate bool

	// If HasRemaining, Remaining calls would be admitted now, and Reset is the time until the limit is
	// whole again, 0 if unknown. Of several limits these describe the least left.
	HasRemaining bool
	Remaining    int64
	Reset        time.Duration

	// Field is the name of the header field behind RetryAfter or else Reset, for errors. It may be
	// empty.
	Field string

	// Units has what the answer tells of the limits of outgoing.Config.Units, in that order, without a
	// refusal.
	Units []Answer

	// limitField is the field behind Limit and Window.
	limitField string
	// past reports whether the reset has passed.
	past bool

	// spacing is the distance of calls in nanoseconds for several limits even if they slide. At 0 it
	// follows from Limit and Window.
	spacing float64
	// tightest is the limit of Remaining, zero if unknown.
	tightest Quota
	// smallest is the limit of Burst.
	smallest Quota
	// binds is the limit that BindSlowest or BindHidden has chosen.
	binds Quota
	// others is one more than the least that the others of several limits have left, 0 if the answer does
	// not tell it of each.
	others int64
}

// Quota is a limit of a number of calls in each window.
type Quota struct {
	Limit  int64
	Window time.Duration
}

// Terms is what a limit demands of the calls: at most Count in each Window and Burst at once. Spacing is
// their distance in nanoseconds if the limit is counted in two windows.
type Terms struct {
	Count   int64
	Window  time.Duration
	Burst   int64
	Spacing float64
}

// With returns the answer with what a hook tells, such as outgoing.Options.Answer: Refused and NoRetry,
// and RetryAfter unless it is 0. If the hook tells a limit, the hook's limits replace all of the answer's.
func (a Answer) With(hook Answer) Answer {
	if Describes(&hook) || hook.HasRemaining || hook.Units != nil {
		hook.RetryAfter = cmp.Or(hook.RetryAfter, a.RetryAfter)
		return hook
	}
	a.Refused, a.NoRetry = hook.Refused, hook.NoRetry
	if hook.RetryAfter != 0 {
		a.RetryAfter, a.Field = hook.RetryAfter, hook.Field
	}
	return a
}

// MayRetry reports whether the answer refuses its call and a later try may be served.
func (a *Answer) MayRetry() bool { return a.Refused && !a.NoRetry && !IsFinal(a) }

// IsFinal reports whether the call can never be served.
func IsFinal(answered *Answer) bool { return answered.Refused && answered.RetryAfter == policy.Never }

// Describes reports whether the answer tells a limit with its window.
func Describes(answered *Answer) bool { return answered.Limit > 0 && answered.Window > 0 }

// Part returns what the answer tells of a limit: of calls at index 0, and then of the units.
func Part(answer *Answer, index int) (part Answer) {
	switch {
	case index == 0:
		return *answer
	case index <= len(answer.Units):
		return answer.Units[index-1]
	}
	return part
}

// LimitField returns the name of the field behind Limit and Window.
func LimitField(answered *Answer) string { return answered.limitField }

// IsPast reports whether the reset has passed.
func IsPast(answered *Answer) bool { return answered.past }

// CapacityOf returns the cost above which the server admits no call, 0 if the answer tells none.
func CapacityOf(answer *Answer) int64 {
	capacity := answer.Limit
	if answer.Burst > 0 {
		capacity = min(capacity, answer.Burst)
	}
	if capacity <= 0 {
		return 0
	}
	return max(capacity, answer.Remaining)
}

// LeaveReserve takes a fraction out of the limit, if the answer tells it with its window.
func LeaveReserve(answer *Answer, fraction float64) {
	if fraction == 0 || !Describes(answer) || answer.Limit == 1 {
		return
	}
	reserve := min(int64(math.Ceil(float64(answer.Limit)*fraction)), answer.Limit-1)
	answer.spacing /= 1 - fraction
	answer.Limit -= reserve
	answer.Remaining = max(answer.Remaining-reserve, 0)
	if answer.Burst > 0 {
		answer.Burst = min(answer.Burst, answer.Limit)
	}
}

// TermsOf returns what the limits of the answer demand.
func TermsOf(answer *Answer) Terms {
	if quota := answer.binds; quota.Limit > 0 {
		return Terms{quota.Limit, quota.Window, quota.Limit, spacing(quota.Limit, quota.Window)}
	}
	terms := Terms{answer.Limit, answer.Window, answer.Limit, answer.spacing}
	if answer.Burst > 0 {
		terms.Burst = min(terms.Burst, answer.Burst)
	}
	if terms.Spacing == 0 {
		terms.Spacing = spacing(answer.Limit, answer.Window)
	}
	return terms
}

// spacing returns the distance of calls in nanoseconds that a limit counted in two windows admits: it
// sees up to a call more per window than an even pace has.
func spacing(limit int64, window time.Duration) float64 {
	return float64(min(window, MaxWindow)) * 1.01 / max(float64(min(limit, MaxCount))-1, 0.5)
}
