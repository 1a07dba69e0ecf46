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
