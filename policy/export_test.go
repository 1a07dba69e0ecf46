package policy

type WarmingUpWord struct {
	// Due is in ticks.
	Due uint64
	// Level is a part of Levels. Each unit uses up PerUnit.
	Level uint64

	PerUnit, Levels, Unit uint64

	// End is the instant at which the limit's time stands still.
	End Instant
}

func ReadWarmingUp(p Policy, word uint64) WarmingUpWord {
	w := p.(*warmingUp)
	due, level := w.state(word)
	return WarmingUpWord{due, level, w.perUnit, w.levels, w.unit, w.end}
}

func StoreOf(p Policy) int64 { return p.(*bursty).maxBurst }

func Divide(x, d uint64) uint64 { return newDivisor(d).quotient(x) }

// Figures returns the parameters of a limit, without its anchor.
func Figures(p Policy) any {
	if a, ok := p.(*aligned); ok {
		figures := *a.kept.unanchored
		figures.kept = nil
		return figures
	}
	return p
}
