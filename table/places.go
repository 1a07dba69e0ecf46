package table

import "sync/atomic"

// places counts the places of a table that are taken. A caller takes a place before
// it pushes an entry, and may find then that another caller has pushed one of the
// same key. So two counts are kept, in one word that is read at once: the places
// taken, and how many of these are still uncertain. A table that looks full is full
// only if none is uncertain.
type places struct {
	word atomic.Int64
	// step, if set by a test, is called between reading the word and changing it.
	step func()
}

// The count of uncertain places is above that of all. 2^44 places and half a
// million callers at a time are more than there can be.
const (
	uncertain = 1 << 44
	certain   = uncertain - 1
)

// placeTaken is the result of places.take that took a place. Open never returns it.
const placeTaken Status = -1

// take takes an uncertain place, and returns placeTaken, if one of most is free. It never
// overshoots, not even for a moment, so that the count can be believed. Otherwise it
// returns Full or Undecided.
func (p *places) take(most int64) Status {
	for {
		n := p.word.Load()
		switch {
		case n&certain < most:
			if p.step != nil {
				p.step()
			}
			if p.word.CompareAndSwap(n, n+1+uncertain) {
				return placeTaken
			}
		case n < uncertain:
			return Full
		default:
			return Undecided
		}
	}
}

// cancel returns an uncertain place.
func (p *places) cancel() { p.word.Add(-1 - uncertain) }

// markUncertain makes a place uncertain, or uncertain once more.
func (p *places) markUncertain() { p.word.Add(uncertain) }

// confirm makes an uncertain place certain.
func (p *places) confirm() { p.word.Add(-uncertain) }

// release returns a place. If it is still uncertain, the caller that took it settles
// that count.
func (p *places) release() { p.word.Add(-1) }

// taken returns the number of places taken.
func (p *places) taken() int64 { return p.word.Load() & certain }

// full reports whether all places are certainly taken.
func (p *places) full(most int64) bool { return p.word.Load() == most }
