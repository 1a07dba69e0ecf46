package answer

import "time"

// describe adds a limit with its window. Of several limits Limit is the slowest, and Burst the smallest.
func (a *Answer) describe(limit int64, window time.Duration) {
	switch {
	case limit <= 0 || window <= 0:
		return
	case !Describes(a):
		a.Limit, a.Window = limit, window
		return
	case a.Burst == 0:
		a.Burst, a.spacing, a.smallest = a.Limit, spacing(a.Limit, a.Window), Quota{a.Limit, a.Window}
	}
	if limit < a.Burst {
		a.smallest = Quota{limit, window}
	}
	a.Burst, a.spacing = min(a.Burst, limit), max(a.spacing, spacing(limit, window))
	if float64(limit)*float64(a.Window) < float64(a.Limit)*float64(window) {
		a.Limit, a.Window = limit, window
	}
}

// recordRest records what is left of a limit, and reports false if another has less.
func (a *Answer) recordRest(remaining int64, reset time.Duration) bool {
	if a.HasRemaining && (remaining > a.Remaining || remaining == a.Remaining && reset <= a.Reset) {
		return false
	}
	a.HasRemaining, a.Remaining, a.Reset = true, remaining, reset
	return true
}

// slowest returns the limit that is Limit and Window.
func (a *Answer) slowest() Quota { return Quota{a.Limit, a.Window} }

// SmallestOf returns the limit of Burst.
func SmallestOf(answered *Answer) Quota { return answered.smallest }

// TightestOf returns the limit with the least left, and without several limits the only one.
func TightestOf(answer *Answer) Quota {
	if t := answer.tightest; t.Limit > 0 && t.Window > 0 {
		return t
	}
	return answer.slowest()
}

// TellsSeveral reports whether the answer tells several limits, and what one of them has left.
func TellsSeveral(answered *Answer) bool {
	return Describes(answered) && answered.HasRemaining && answered.Burst > 0 && answered.tightest.Limit > 0 && answered.tightest.Window > 0
}

// RestOf returns the units that the slowest of several limits has left, from those before the answer
// to a call of n units. underWay is the number of units of calls whose answers are still to come, in any
// order. The limit has begun anew if it has more than was counted for it.
func RestOf(answer *Answer, before, n, underWay int64) int64 {
	rest := before - n
	switch {
	case answer.tightest == answer.slowest():
		rest = answer.Remaining
	case answer.others > 0:
		rest = answer.others - 1
	case rest < answer.Remaining:
		return answer.Limit
	}
	if before <= 0 || rest > before+underWay {
		return rest
	}
	return min(rest, before-n)
}

// BindSlowest chooses the limit that binds calls that spend the units left, of several: the slowest binds
// only when its rest does. ours is the number of units that the key has left of the smallest limit, and
// rest that of the slowest. The result bounds the calls of a further period.
func BindSlowest(answer *Answer, ours, rest int64) (bound int64) {
	answer.binds = answer.tightest
	switch {
	case answer.tightest != answer.slowest():
		return max(rest-answer.Remaining, 1)
	case answer.others > 0 || answer.Remaining <= ours:
		return answer.Burst
	}
	// The answer does not tell what the smallest limit has left.
	answer.binds, answer.HasRemaining = answer.smallest, false
	return max(rest-ours, 1)
}

// BindHidden puts a limit that the answer does not tell in the place of the limit that it tells.
func BindHidden(answered *Answer, quota Quota) {
	answered.Limit, answered.Window, answered.binds, answered.HasRemaining = quota.Limit, quota.Window, quota, false
}
