package policy

type WarmingUpWord struct {
	Due   uint64 // ticks
	Level uint64 // of Levels; each unit uses up PerUnit

	PerUnit, Levels, Unit uint64

	End Instant // where its time stands still
}

func ReadWarmingUp(p Policy, word uint64) WarmingUpWord {
	w := p.(*warmingUp)
	due, level := w.state(word)
	return WarmingUpWord{due, level, w.perUnit, w.levels, w.unit, w.end}
}

var ShiftedUp = shiftedUp

func StoreOf(p Policy) int64 { return p.(*bursty).maxBurst }

func Divide(x, d uint64) uint64 { return newDivisor(d).quotient(x) }

// SlidingUsed returns the units that count in a SlidingWindow when passed nanoseconds have
// passed.
func SlidingUsed(p Policy, before, count, passed uint64) uint64 {
	return p.(*slidingWindow).used(sliding{before: before, count: count}, passed)
}

func SlidingFitsNow(p Policy, before, count, passed, n uint64) bool {
	return p.(*slidingWindow).fitsNow(sliding{before: before, count: count}, passed, n)
}

// WarmingUpTimes divides ticks by those in which a level grows back, rounded down or up. Both are
// times 2^shift.
func WarmingUpTimes(p Policy, ticks uint64, up bool) (q, rest, level uint64, shift uint) {
	w := p.(*warmingUp)
	level, reciprocal := w.levelDown, w.byLevelDown
	if up {
		level, reciprocal = w.levelUp, w.byLevelUp
	}
	q, rest = w.times(ticks, level, reciprocal)
	return q, rest, level, w.levelShift
}

// Figures returns the parameters of a limit, without its anchor.
func Figures(p Policy) any {
	if a, ok := p.(*aligned); ok {
		figures := *a.kept.unanchored
		figures.kept = nil
		return figures
	}
	return p
}
