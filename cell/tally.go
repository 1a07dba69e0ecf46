package cell

import (
	"sync/atomic"
	"unsafe"
)

const (
	stripeBits = 6
	// A stripe has two cache lines, as processors fetch them in pairs.
	stripeSize = 128
)

// Tally counts answers. A shared counter costs four times as much as separate counters (15 ns and 4
// ns with two processors). So each goroutine adds to one of many.
type Tally struct {
	stripes [1 << stripeBits]stripe
}

// stripe counts calls that were allowed, refused by their limit, or blocked.
type stripe struct {
	admitted, refused, blocked atomic.Uint64
	// next is the number of the next refusal that may be in the sample: see stripe.draw.
	next   atomic.Uint64
	sample stripeSample
	_      [stripeSize - 64]byte
}

// refuse counts a refusal. mayBe reports whether it may be in the sample.
func (s *stripe) refuse() (number uint64, mayBe bool) {
	// next is read before the refusal gets its number. So a refusal that has a number when next is
	// written has read an earlier next.
	next := s.next.Load()
	number = s.refused.Add(1)
	return number, number >= next
}

// mine returns the stripe of the calling goroutine, guessed by its stack. Wrong guesses cost time.
func (t *Tally) mine() *stripe {
	var here byte
	stack := uint64(uintptr(unsafe.Pointer(&here))) >> 10
	return &t.stripes[stack*0x9E3779B97F4A7C15>>(64-stripeBits)]
}

// CountAdmitted counts a call that the key's word admits.
func (t *Tally) CountAdmitted() { t.mine().admitted.Add(1) }

// CountRefused counts a call that its limit refuses.
func (t *Tally) CountRefused() { t.mine().refused.Add(1) }

// Refused returns how many CountRefused counted. It never decreases.
func (t *Tally) Refused() uint64 {
	_, refused, _ := t.Sum()
	return refused
}

// Sum returns the counts. None ever decreases.
func (t *Tally) Sum() (admitted, refused, blocked uint64) {
	for i := range t.stripes {
		admitted += t.stripes[i].admitted.Load()
		refused += t.stripes[i].refused.Load()
		blocked += t.stripes[i].blocked.Load()
	}
	return admitted, refused, blocked
}
