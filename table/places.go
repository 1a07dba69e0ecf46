package table

import "sync/atomic"

// places counts who holds one of the places of a table. Callers take them before
// they push an entry, and may find then that somebody else has pushed one of the
// same key. So two counts are kept, in one word that is read at once: the places
// taken, and how many of these it is not certain of yet. Only when there are none
// of the latter is a table that looks full known to be full.
type places struct {
	word atomic.Int64
	// step, if set by a test, is called between reading the count and changing it.
	step func()
}

// The count of uncertain places is above that of all. 2^44 places and half a
// million callers at a time are more than there can be.
const (
	uncertain = 1 << 44
	certain   = uncertain - 1
)

// take takes a place that is uncertain yet, and returns Landed, if one of most is
// free. It never overshoots, not even for a moment, so that the count can be
// believed. Otherwise it returns Full or Undecided.
func (p *places) take(most int64) Status {
	for {
		n := p.word.Load()
		switch {
		case n&certain < most:
			if p.step != nil {
				p.step()
			}
			if p.word.CompareAndSwap(n, n+1+uncertain) {
				return Landed
			}
		case n < uncertain:
			return Full
		default:
			return Undecided
		}
	}
}

// giveBack returns an uncertain place.
func (p *places) giveBack() { p.word.Add(-1 - uncertain) }

// doubt makes a place uncertain, once more if it is already.
func (p *places) doubt() { p.word.Add(uncertain) }

// keep makes an uncertain place certain.
func (p *places) keep() { p.word.Add(-uncertain) }

// free returns a place, uncertain or not: whether it is, whoever took it will tell.
func (p *places) free() { p.word.Add(-1) }

// taken returns how many places are taken.
func (p *places) taken() int64 { return p.word.Load() & certain }

// full tells whether all places are taken for certain.
func (p *places) full(most int64) bool { return p.word.Load() == most }
