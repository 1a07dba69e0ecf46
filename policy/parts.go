package policy

import (
	"math/bits"
	"time"
)

// partLayouts are the possible numbers of parts of a period. The lowest two bits of a word are an
// index. A policy may have marks above them.
var partLayouts = [...]int{1, 2, 4, 8}

const (
	layoutBits = 2
	codeMask   = 1<<layoutBits - 1
	// minPeriod is the shortest period. A part of a shorter period would be rounded up by much.
	minPeriod = time.Millisecond
)

// endOfParts is the instant at which time stands still: 9 years after the epoch.
const endOfParts = Instant(lastingTime)

// partition divides a period into parts. A word of such a limit has a count of units for the current
// part and for each earlier part that still counts.
type partition struct {
	limit int64
	per   time.Duration
	// layouts are the ways to divide per. They do not depend on the limit.
	layouts [len(partLayouts)]layout
	// own is the layout of a key's first word. It is nil if no layout holds the limit.
	own *layout
}

// layout divides time and a word: from the lowest bits, code, the counts of the current and of
// earlier parts that count, and the number of the current part.
type layout struct {
	code uint64
	// low is the number of bits below the counts.
	low uint
	// counts is the number of parts in a period, and another part.
	counts int
	// length is the time of a part.
	length time.Duration
	// bits is the width of a count.
	bits uint
	// width is the width of all counts.
	width uint
	// last is the highest number of a part that a word can hold.
	last uint64

	byLength, byBits divisor
}

// divide sets the limit's layouts, which leave low bits for the index and the policy's marks. The limit's
// own layout has the most parts among the layouts that hold a count of maxCount.
func (p *partition) divide(limit int64, per time.Duration, maxCount uint64, low uint) {
	p.limit, p.per = limit, per
	for code, parts := range partLayouts {
		layout := newLayout(uint64(code), uint64(parts), uint64(per), low)
		// The counts shrink from one layout to the next.
		if p.layouts[code] = layout; maxCount <= layout.full() {
			p.own = &p.layouts[code]
		}
	}
}

func newLayout(code, parts, per uint64, low uint) layout {
	length := (per + parts - 1) / parts
	// The number needs this many bits to last; the others are for the counts.
	number := bits.Len64(lastingTime/length + 2)
	count := (63 - low - uint(number)) / uint(parts+1)
	width := uint(parts+1) * count
	// last is below MaxWord.
	last := uint64(1)<<(63-low-width) - 2
	return layout{
		code: code, low: low, counts: int(parts) + 1, length: time.Duration(length), bits: count, width: width,
		// An instant can hold the end of this part.
		last: min(last, 4*lastingTime/length),

		byLength: newDivisor(length), byBits: newDivisor(uint64(count)),
	}
}

// slots is an unpacked word.
type slots struct {
	*layout
	number uint64
	packed uint64
	// marks are the bits of the policy.
	marks uint64
}

func (l *layout) full() uint64 { return 1<<l.bits - 1 }

func (l *layout) begins(number uint64) Instant { return Instant(number * uint64(l.length)) }

func (l *layout) numberAt(instant Instant) uint64 { return l.byLength.quotient(uint64(instant)) }

func (p *partition) split(word uint64) slots {
	layout := &p.layouts[word&codeMask]
	packed := word >> (layout.low & 63)
	return slots{
		layout: layout, number: min(packed>>layout.width, layout.last), packed: packed & (1<<layout.width - 1),
		marks: word & (1<<(layout.low&63) - 1) &^ codeMask,
	}
}

func (s slots) join() uint64 {
	return (s.number<<s.width|s.packed)<<(s.low&63) | s.marks | s.code
}

// slotsAt returns the counts for a call at an instant. One before the word's part counts as its beginning.
// If nothing counts, the layout is this limit's own.
func (p *partition) slotsAt(word uint64, instant Instant) slots {
	parts := p.split(word)
	number := parts.numberAt(instant)
	if number < parts.number || number == parts.number && parts.packed != 0 {
		return parts
	}
	if parts = parts.advanceTo(number); parts.packed == 0 && parts.layout != p.own {
		parts.layout, parts.number = p.own, p.own.numberAt(instant)
	}
	return parts
}

// advanceTo makes a later part current, and drops the counts that leave.
func (s slots) advanceTo(number uint64) slots {
	passed := number - s.number
	s.number = number
	if passed >= uint64(s.counts) {
		s.packed = 0
		return s
	}
	s.packed = s.packed << (uint(passed) * s.bits) & (1<<s.width - 1)
	return s
}

// count returns the count of the before-th part back.
func (s slots) count(before int) uint64 { return s.packed >> (uint(before) * s.bits) & s.full() }

// used returns the number of units that count.
func (s slots) used() uint64 {
	var sum uint64
	packed, width, full := s.packed, s.bits, s.full()
	// Mostly there is one count, of the current part.
	for packed != 0 {
		sum += packed & full
		packed >>= width & 63
	}
	return sum
}

// freshAt returns the instant at which the latest part with a count above 0 leaves.
func (s slots) freshAt() Instant {
	if s.packed == 0 {
		return s.begins(s.number)
	}
	before := s.byBits.quotient(uint64(bits.TrailingZeros64(s.packed)))
	return s.begins(s.number + uint64(s.counts) - before)
}

// takeBackFrom gives back up to n units of the before-th part back, and returns how many.
func (s *slots) takeBackFrom(before int, n uint64) uint64 {
	back := min(n, s.count(before))
	s.packed -= back << (uint(before) * s.bits)
	return back
}

func (p *partition) FreshAt(word uint64) Instant { return p.split(word).freshAt() }

func (p *partition) Limit() int64 { return p.limit }

func (p *partition) Delays() bool { return false }

func (p *partition) Window() time.Duration { return p.per }
