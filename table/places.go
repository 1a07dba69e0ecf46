package table

import "sync/atomic"

// places counts the taken places of a table. A caller takes a place before it pushes an entry, and
// may find then that another caller has pushed an entry of the same key. So one word holds both the
// places taken and how many are uncertain. A table is full only if none is uncertain.
type places struct {
	word atomic.Int64
	// step, if set by a test, runs between reading and changing the word.
	step func()
}

// The uncertain count is above the total. 2^44 places and half a million callers at a time cannot
// occur.
const (
	uncertain = 1 << 44
	certain   = uncertain - 1
)

// placeTaken is returned by places.take alone: a place was taken.
const placeTaken Status = -1

// take takes an uncertain place, and returns placeTaken, if any of most is free. Otherwise take
// returns Full or Undecided. The count never overshoots, not even for a moment.
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

func (p *places) cancel() { p.word.Add(-1 - uncertain) }

func (p *places) markUncertain() { p.word.Add(uncertain) }

func (p *places) confirm() { p.word.Add(-uncertain) }

// release returns a place. The caller that took an uncertain place settles that count.
func (p *places) release() { p.word.Add(-1) }

func (p *places) taken() int64 { return p.word.Load() & certain }

func (p *places) full(most int64) bool { return p.word.Load() == most }
