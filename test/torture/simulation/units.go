package simulation

// units are units of a key in use, by their call and by the calls that extend and release them. The model
// knows no word and no part: only between which instants each unit counts.
type units struct {
	n int64
	// They count for certain before the first instant, and perhaps before the second.
	certain, possible int64
	// taken is the step after which they count for certain, and gone the step after which they do not count; 0 if
	// there is none yet.
	taken, gone int
	// reset is set when a reset begins. A release counts as too late unless it is for certain after a reset.
	reset bool
	// changed is set if the longest time changed since the take.
	changed bool
}

func (u *units) end(step int) {
	if u.certain, u.possible = 0, 0; u.gone == 0 {
		u.gone = step
	}
}
