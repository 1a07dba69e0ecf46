package policy

import (
	"fmt"
	"math/bits"
	"time"
)

// inFlight keeps in a word the units in use, by the parts in which they were taken. A count that is
// full stands for any number: see isFull.
//
// Above its layout a word has a bit that Vacate sets, so that a word from before never comes back.
type inFlight struct {
	partition
	maxTime time.Duration
}

// vacated is a bit of a word, and of slots.marks.
const vacated = 1 << layoutBits

// InFlight returns a limit of n units in use at once. A unit is in use from a take until its release,
// or until the time longest has passed. So a unit that no call gives back, as after a crash, ends by
// itself, without a timer, list or sweep. Choose longest above the duration of every call: a call
// that lasts longer is no longer counted.
//
// Reserve and Acquire of package engine take units that Release gives back. A verb without a handle,
// such as Choke, takes units that end after longest.
//
// # The most that it admits
//
// At any instant, at most n of the units taken within the last longest are in use.
//
// InFlight divides longest into k parts, and counts units by parts. A unit that is not released ends
// no later than a part after longest. A part is longest/k, rounded up to 8 ns. k is 8, 4, 2 or 1: the
// largest for which k+1 counts above n fit a word. [Parts] returns it. For a minute it is 8 for n up
// to 6, 4 up to 126, 2 up to 4094, and 1 above.
//
// # Rounding and refusals
//
// n is at least 1, longest between a millisecond and 366 days. A larger n is refused if two counts
// above it do not fit a word: the highest is 1022 for a millisecond, 262142 for a minute, 2097150 for
// an hour. The error is a *[FieldError].
//
// # Turns and time
//
// No call has a turn ahead, whatever its patience, since units may come back at any time. RetryAfter
// is the time until enough parts have ended. It is an upper bound: a release makes room sooner. Time
// stands still 9 years after the epoch.
//
// In package engine a call of Acquire or Wait waits in the line of its key without a forecast: until a
// release or the end of a part makes room, or until its patience or its context ends. While a call waits,
// calls that do not wait are refused, so a call for several units gets them.
//
// # Giving back
//
// A release takes units out of the part in which they were taken, and does nothing once that part
// has left. InFlight is no [Refunder] but an [Occupier]: without a handle nothing tells the part, and
// units are never charged.
//
// # One limit after another
//
// All limits with the same longest are a family for calls (TakeWith). Units in use count on under a
// lower limit, so a key may have more in use than a new limit allows, until they are released. If
// longest changes for good (SetPolicy), all units in use count as taken at that instant. If no word
// of the new limit holds their number, the key has no room until that part ends.
func InFlight(n int64, longest time.Duration) (Policy, error) {
	switch {
	case n < 1:
		return nil, &FieldError{Of: "InFlight", Field: "n", Value: n, Want: "1 or more"}
	case longest < minPeriod || longest > maxWindow:
		return nil, &FieldError{Of: "InFlight", Field: "longest", Value: longest, Want: "between " + minPeriod.String() + " and 366 days"}
	}
	flight := &inFlight{maxTime: longest}
	// A part is a whole number of the parts of each finer layout.
	const finest = time.Duration(1) << (len(partLayouts) - 1)
	flight.divide(n, (longest+finest-1)/finest*finest, uint64(n)+1, layoutBits+1)
	// The bound lets coarsen find a part of the same time.
	for i := 1; i < len(flight.layouts); i++ {
		flight.layouts[i].last = min(flight.layouts[i].last, 2*flight.layouts[i-1].last+1)
	}
	if flight.own == nil {
		return nil, &FieldError{Of: "InFlight", Field: "n", Value: n, Want: fmt.Sprintf(
			"at most %d: a word that lasts 9 years holds no higher counts of two parts of %v", flight.layouts[0].full()-1, longest)}
	}
	return flight, nil
}

// Occupier is an optional interface of a Policy whose units are in use until they are released.
// [InFlight] implements it. A take's units are found by the word that the take left, called taken
// below, under the same policy or another of its family.
type Occupier interface {
	// Release returns the word after n units of a take are released. ok is false if the units no
	// longer count, or if that is uncertain. Then next is word.
	//
	// now must be read after word. It matters only if a limit with other parts has rewritten the word
	// since the take. So a caller may first pass math.MaxInt64, and if ok is false call again with
	// the present instant.
	Release(word, taken uint64, now Instant, n int64) (next uint64, ok bool)

	// Extend returns the word after n units of a take are moved into the present part, as if they had
	// been taken now. For later calls, next is then the word that the take left. ok is false as for
	// Release.
	Extend(word, taken uint64, now Instant, n int64) (next uint64, ok bool)

	// Vacate returns the word after all units are released, whatever their takes. No word from before
	// the first Vacate of a key comes back after it, and the takes from before have no units in it.
	// word is not 0.
	Vacate(word uint64, now Instant) (next uint64)
}

func (f *inFlight) Choke(word uint64, now Instant) (uint64, bool) {
	parts := f.slotsAt(word, clamped(now, endOfParts))
	if parts.used() >= uint64(f.limit) {
		return word, false
	}
	return f.enter(parts, 1).join(), true
}

// Take ignores patience.
func (f *inFlight) Take(word uint64, now Instant, n int64, patience time.Duration) (next uint64, decision Decision) {
	next, decision.Allowed, decision.Limit, decision.Remaining, decision.Wait, decision.RetryAfter, decision.ResetAfter = f.Decide(word, now, n, patience)
	return next, decision
}

// Decide is Take with the fields of the Decision in registers, for package table.
func (f *inFlight) Decide(word uint64, now Instant, n int64, _ time.Duration) (
	next uint64, allowed bool, limit, remaining int64, wait, retryAfter, resetAfter time.Duration,
) {
	instant := clamped(now, endOfParts)
	parts := f.slotsAt(word, instant)
	used := parts.used()
	next = word
	switch {
	case n < 0 || n > f.limit:
		retryAfter = Never
	case n == 0:
		allowed = true
	case used+uint64(n) <= uint64(f.limit):
		allowed = true
		parts = f.enter(parts, uint64(n))
		next, used = parts.join(), used+uint64(n)
	default:
		retryAfter = parts.roomAfter(instant, used+uint64(n)-uint64(f.limit))
	}
	return next, allowed, f.limit, max(f.limit-int64(used), 0), 0, retryAfter, time.Duration(max(parts.freshAt()-instant, 0))
}

// roomAfter returns the time from the instant until so many units of those in use have ended, at the latest.
func (s slots) roomAfter(instant Instant, units uint64) time.Duration {
	end, ended := s.number, uint64(0)
	for before := s.counts - 1; ended < units; before-- {
		ended += s.count(before)
		end++
	}
	if s.begins(end) > endOfParts {
		// Time stands still before that part ends.
		return Never
	}
	return time.Duration(s.begins(end) - instant)
}

// enter counts n more units in the current part. If its count has no room, the word gets the layout
// with the most parts among those that have room.
func (f *inFlight) enter(parts slots, n uint64) slots {
	if parts.count(0)+n < parts.full() {
		parts.packed += n
		return parts
	}
	return f.enterFull(parts, n)
}

// enterFull is enter for a part whose count has no room.
func (f *inFlight) enterFull(parts slots, n uint64) slots {
	for layout := parts.layout; ; layout = &f.layouts[layout.code-1] {
		next := parts
		if layout != parts.layout {
			next = parts.coarsen(layout)
		}
		next.packed += min(n, next.full()-next.count(0))
		if layout.code == 0 || !next.isFull(0) {
			return next
		}
	}
}

// coarsen returns the same counts by parts that are longer. No unit ends earlier by that. The counts
// of two parts of a finer layout fit a part of the next.
func (s slots) coarsen(layout *layout) slots {
	shift := s.finerThan(layout)
	next := slots{layout: layout, number: min(s.number>>shift, layout.last), marks: s.marks}
	for before := range s.counts {
		if n := s.count(before); n > 0 {
			ago := int(next.number - (s.number-min(uint64(before), s.number))>>shift)
			next.packed += min(n, next.full()-next.count(ago)) << (uint(ago) * next.bits)
		}
	}
	return next
}

// finerThan returns the binary logarithm of the number of parts of l in a part of coarser.
func (l *layout) finerThan(coarser *layout) uint {
	return uint(bits.TrailingZeros(uint(l.counts-1)) - bits.TrailingZeros(uint(coarser.counts-1)))
}

// isFull reports whether a count stands for its number of units or any higher number. Such a count is
// above any limit, and only a change of longest leaves one, in the coarsest layout. No unit is taken out
// of such a count, so the count leaves with its part.
func (s slots) isFull(before int) bool { return s.count(before) == s.full() }

func (f *inFlight) Release(word, taken uint64, now Instant, n int64) (uint64, bool) {
	layout := &f.layouts[word&codeMask]
	low := layout.low & 63
	if count := word >> low & layout.full(); (word^taken)>>low>>(layout.width&63) == 0 && (word^taken)&(1<<low-1) == 0 &&
		count != layout.full() && uint64(n) <= count {
		// The units are in the current part, as in most calls.
		return word - uint64(n)<<low, true
	}
	parts := f.split(word)
	before, ok := f.partOf(parts, taken, now)
	if !ok || !parts.remove(before, n) {
		return word, false
	}
	return parts.join(), true
}

func (f *inFlight) Extend(word, taken uint64, now Instant, n int64) (uint64, bool) {
	parts := f.slotsAt(word, clamped(now, endOfParts))
	before, ok := f.partOf(parts, taken, now)
	if !ok || !parts.remove(before, n) {
		return word, false
	}
	return f.enter(parts, uint64(n)).join(), true
}

// remove takes n units out of the before-th part back. It returns false, and takes none, if the part
// has fewer.
func (s *slots) remove(before int, n int64) bool {
	if n < 0 || s.isFull(before) || s.count(before) < uint64(n) {
		return false
	}
	s.packed -= uint64(n) << (uint(before) * s.bits)
	return true
}

// partOf returns how many parts before the current one the units of a take are counted. ok is false
// if they no longer count.
func (f *inFlight) partOf(parts slots, taken uint64, now Instant) (before int, ok bool) {
	took := f.split(taken)
	number := took.number
	if took.layout != parts.layout {
		// Units that had ended before the word was rewritten are not in it. Units that have not ended
		// by now are.
		if parts.code > took.code || now >= took.begins(number+uint64(took.counts)) {
			return 0, false
		}
		number >>= took.finerThan(parts.layout)
	}
	// ago wraps to a huge number if the take lies ahead.
	ago := parts.number - number
	return int(ago), ago < uint64(parts.counts) && parts.marks == took.marks
}

func (f *inFlight) Vacate(word uint64, now Instant) uint64 {
	parts := f.slotsAt(word, clamped(now, endOfParts))
	parts.packed, parts.marks = 0, vacated
	return parts.join()
}

// InUse returns the number of units that count, and bounds of the time since the oldest was taken or extended,
// or since a change of longest. Package limits calls it.
func (f *inFlight) InUse(word uint64, now Instant) (n int64, from, to time.Duration) {
	instant := clamped(now, endOfParts)
	parts := f.slotsAt(word, instant)
	for before := parts.counts - 1; before >= 0; before-- {
		if parts.count(before) > 0 {
			ago := time.Duration(instant - parts.begins(parts.number-min(uint64(before), parts.number)))
			return int64(parts.used()), max(ago-parts.length, 0), max(ago, 0)
		}
	}
	return 0, 0, 0
}

// Alone returns the word of a key that has one unit, in the part of the latest take. Package rewrites calls it.
func (f *inFlight) Alone(word uint64) uint64 {
	parts := f.split(word)
	parts.packed = 1
	return parts.join()
}

// LayoutMask returns the bits of a word that name its layout. Package table calls it. If no call has changed the word
// that a take left, and the word before has the same layout, all other units in use are released as well from the
// word before.
func (f *inFlight) LayoutMask() uint64 { return codeMask }

func (f *inFlight) Reads(other Policy) bool {
	flight, ok := other.(*inFlight)
	return ok && flight.per == f.per
}

func (f *inFlight) Carry(from Policy, word uint64, now Instant) (uint64, bool) {
	old, ok := from.(*inFlight)
	if !ok {
		return 0, false
	}
	if f.Reads(old) {
		return word, true
	}
	instant := clamped(now, endOfParts)
	parts := old.slotsAt(word, instant)
	used := parts.used()
	if used == 0 {
		return 0, true
	}
	for before := range parts.counts {
		if parts.isFull(before) {
			used = f.layouts[0].full()
		}
	}
	// The clock of the latest take may have been ahead.
	number := f.own.numberAt(max(instant, parts.begins(parts.number)))
	return f.enter(slots{layout: f.own, number: min(number, f.own.last)}, used).join(), true
}

func (f *inFlight) String() string {
	return fmt.Sprintf("in flight %d, %s at most", f.limit, timeText(f.maxTime))
}
