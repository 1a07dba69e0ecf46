package policy

// WarmingUpWord is an unpacked word of a WarmingUp, for tests.
type WarmingUpWord struct {
	Due   uint64 // ticks
	Level uint64 // of Levels; each unit uses up PerUnit

	PerUnit, Levels, Unit uint64

	End Instant // where its time stands still
}

// ReadWarmingUp reads a word as the policy p does.
func ReadWarmingUp(p Policy, word uint64) WarmingUpWord {
	w := p.(*warmingUp)
	due, level := w.state(word)
	return WarmingUpWord{due, level, w.perUnit, w.levels, w.unit, w.end}
}

// ShiftedUp is a*b divided by 2^shift, rounded up.
var ShiftedUp = shiftedUp

// StoreOf returns how many units a Bursty stores.
func StoreOf(p Policy) int64 { return p.(*bursty).maxBurst }

// Divide returns x/d, by a divisor made for d.
func Divide(x, d uint64) uint64 { return newDivisor(d).quotient(x) }

// SlidingUsed returns how many units count in a window of a SlidingWindow, from its
// count and that of the window before, when so much of it has passed.
func SlidingUsed(p Policy, before, count, passed uint64) uint64 {
	return p.(*slidingWindow).used(sliding{before: before, count: count}, passed)
}

// SlidingFitsNow reports whether n more units fit there.
func SlidingFitsNow(p Policy, before, count, passed, n uint64) bool {
	return p.(*slidingWindow).fitsNow(sliding{before: before, count: count}, passed, n)
}

// WarmingUpTimes divides ticks by those in which a level of a WarmingUp grows back. Both
// the ticks and the divisor are times 2^shift; the divisor is rounded down or up.
func WarmingUpTimes(p Policy, ticks uint64, up bool) (q, rest, level uint64, shift uint) {
	w := p.(*warmingUp)
	level, reciprocal := w.levelDown, w.byLevelDown
	if up {
		level, reciprocal = w.levelUp, w.byLevelUp
	}
	q, rest = w.times(ticks, level, reciprocal)
	return q, rest, level, w.levelShift
}

// Figures returns what the answers of a limit follow from: of one that is anchored, as if
// it were not.
func Figures(p Policy) any {
	if a, ok := p.(*aligned); ok {
		figures := *a.kept.unanchored
		figures.kept = nil
		return figures
	}
	return p
}
