package policy

import (
	"fmt"
	"math/bits"
	"time"
)

// slidingWindow keeps in a word the number of a window, its count and the count of the window
// before. A call's sliding window is the per instants up to its own. Of the window before it
// covers the instants that the call's own window has not reached.
type slidingWindow struct {
	untraced
	limit int64
	per   time.Duration
	byPer divisor
	// bits is the width of each count. The other bits of a word are the number.
	bits uint
	// last is the highest number that a word can hold.
	last uint64
	end  Instant
}

// SlidingWindow returns the sliding window that is counted in two, as Cloudflare does. Windows
// lie at the multiples of per. Units of the current window count in full. Units of the window
// before count by the share of it that the period ending now still covers, rounded up. Choose it
// if a [FixedWindow] would let too much pass around the end of a window. Units come back little
// by little, in the window after the take.
//
// # The most that it admits
//
// In any window of length t: limit + limit*t/per, as a [Funnel] of that limit.
//
// It assumes that the units of the window before were spread evenly. Compared with a log of all
// timestamps, it counts up to limit-1 units too few if they came at the end, and may admit
// 2*limit-1 in less than per. It counts up to limit too many if they came at the beginning: up to
// two periods, less a nanosecond, may pass until the full limit fits at once again. It never
// refuses a call that a log over twice the period admits. Compared with a ring of ten sub-windows,
// it counts up to nine tenths of the limit too few, and up to limit too many.
//
// # Rounding and refusals
//
// Only the number of units that count is rounded, up. The long-run rate is exact: a caller that
// takes everything and comes back when told takes limit in every period. per is between a
// microsecond and 366 days. limit is at least 1 and at most 4095 if per is a millisecond, 131071
// if a second, 1048575 if a minute and 8388607 if an hour. Other values are refused with a
// *[FieldError].
//
// # Turns and time
//
// A waiting call is counted in the window of its turn. Turns, and clocks that go backwards, are
// otherwise as for an [AlignedWindow]. Time stands still 9 years after the epoch (see [Instant]) at
// the earliest, and patience beyond 9 years counts as 9.
//
// # Giving back
//
// Units come back to the current window, or to the last with a promised turn, never to the one
// before. Units of a take that waits for a later window come back no earlier than that window
// begins. A take can be cancelled whole while its window is one of the two in the word. A debt,
// as high as a count at most, weighs like units taken, through the next window as well.
//
// # One limit after another
//
// All sliding windows are a family. A limit that comes with a call (TakeWith) must have the
// same per. If a limit with the same per takes over for good (SetPolicy), all units count where
// they are. If it is lower, more may count than it allows, and a key is refused until the end of
// the next window at most. Raising it again forgives nothing, unless per changed meanwhile.
//
// If per changes, all that counts at the change counts as taken then, up to the limit. If turns
// are promised, the key is full until the last of them, and all that counts at that instant
// counts from then on. A word knows the last turn to within a window of the longest per since
// that promise: a change may delay the next turn by that much, and never advances it. No series
// of changes hands a promised turn out twice. After a limit was lowered with the same per, units
// above it that were taken in two windows count as promised turns, until the lowered limit would
// have admitted a unit.
func SlidingWindow(limit int64, per time.Duration) (Policy, error) {
	if err := windowFault("SlidingWindow", limit, per, minPer); err != nil {
		return nil, err
	}
	// The number needs this many bits to last; the others are for two counts.
	number := bits.Len64((lastingTime + uint64(per) - 1) / uint64(per))
	count := uint(63-number) / 2
	if most := int64(1)<<count - 1; limit > most {
		return nil, &FieldError{Of: "SlidingWindow", Field: "limit", Value: limit, Want: fmt.Sprintf(
			"at most %d: a word that lasts 9 years at %v a window holds no higher counts%s", most, per, holders(limit, per))}
	}
	// last is below MaxWord.
	last := uint64(1)<<(63-2*count) - 2
	return &slidingWindow{
		limit: limit, per: per, byPer: newDivisor(uint64(per)), bits: count,
		last: last, end: Instant((last+1)*uint64(per) - 1),
	}, nil
}

func (s *slidingWindow) Limit() int64 { return s.limit }

func (s *slidingWindow) Window() time.Duration { return s.per }

func (s *slidingWindow) Delays() bool { return false }

// sliding is an unpacked word.
type sliding struct {
	// number is the number of the current window, which begins at number*per.
	number uint64
	// before is the count of the window before it.
	before uint64
	count  uint64
}

func (s *slidingWindow) full() uint64 { return 1<<s.bits - 1 }

func (s *slidingWindow) split(word uint64) sliding {
	return sliding{
		// No word of this limit has a higher number.
		number: min(word>>(2*s.bits), s.last),
		before: word >> s.bits & s.full(),
		count:  word & s.full(),
	}
}

func (s *slidingWindow) join(w sliding) uint64 {
	return w.number<<(2*s.bits) | w.before<<s.bits | w.count
}

func (s *slidingWindow) begins(number uint64) Instant { return Instant(number * uint64(s.per)) }

// countsAt returns the counts for a call at t, and the nanoseconds of its window that have passed. A t
// before the word's window counts as its beginning.
func (s *slidingWindow) countsAt(word uint64, t Instant) (w sliding, passed uint64) {
	w = s.split(word)
	number := s.byPer.quotient(uint64(t))
	if number < w.number {
		return w, 0
	}
	switch number - w.number {
	case 0:
	case 1:
		w = sliding{number: number, before: w.count}
	default:
		w = sliding{number: number}
	}
	return w, uint64(t) - number*uint64(s.per)
}

// used returns the units that count in w when passed nanoseconds of it have passed.
func (s *slidingWindow) used(w sliding, passed uint64) uint64 {
	if w.before == 0 {
		return w.count
	}
	per := uint64(s.per)
	hi, lo := bits.Mul64(w.before, per-1-passed)
	// per is below 2^62 as well.
	if hi == 0 && lo < 1<<62 {
		return w.count + s.byPer.quotient(lo+per-1)
	}
	// weighed is less than w.before.
	weighed, rest := bits.Div64(hi, lo, per)
	if rest > 0 {
		weighed++
	}
	return w.count + weighed
}

// fitsNow reports whether n more units fit: used is at most limit-n, without the division.
func (s *slidingWindow) fitsNow(w sliding, passed, n uint64) bool {
	if w.count+n > uint64(s.limit) {
		return false
	}
	// room is the room for the units of the window before.
	room := uint64(s.limit) - n - w.count
	if room >= w.before {
		return true
	}
	hi, lo := bits.Mul64(w.before, uint64(s.per)-1-passed)
	most, least := bits.Mul64(room, uint64(s.per))
	return hi < most || hi == most && lo <= least
}

// fits returns the first window, and its nanoseconds passed, with room for n units, not before
// passed in w. n is at most the limit.
func (s *slidingWindow) fits(w sliding, passed, n uint64) (sliding, uint64) {
	if s.fitsNow(w, passed, n) {
		return w, passed
	}
	limit, per := uint64(s.limit), uint64(s.per)
	if w.count+n > limit {
		w, passed = sliding{number: w.number + 1, before: w.count}, 0
	}
	// room is the room for the units of the window before.
	room := limit - n - w.count
	if room >= w.before {
		return w, passed
	}
	// The units before count as at most room while up to covered nanoseconds of their window do.
	hi, lo := bits.Mul64(room, per)
	covered, _ := bits.Div64(hi, lo, w.before)
	return w, max(passed, per-1-min(covered, per-1))
}

// Choke refuses a call with a clock behind the window.
func (s *slidingWindow) Choke(word uint64, now Instant) (uint64, bool) {
	t := clamped(now, s.end)
	w, passed := s.countsAt(word, t)
	if s.begins(w.number) > t || !s.fitsNow(w, passed, 1) {
		return word, false
	}
	w.count++
	return s.join(w), true
}

func (s *slidingWindow) Take(word uint64, now Instant, n int64, patience time.Duration) (next uint64, d Decision) {
	t := clamped(now, s.end)
	w, passed := s.countsAt(word, t)
	next = word
	d.Limit = s.limit
	switch {
	case n < 0 || n > s.limit:
		d.RetryAfter = Never
	case n == 0:
		d.Allowed = true
	default:
		turn, then := s.fits(w, passed, uint64(n))
		if turn.number > s.last {
			// Time stands still before the turn.
			d.RetryAfter = Never
			break
		}
		if start := s.begins(turn.number) + Instant(then); d.admit(time.Duration(start-t), patience) {
			turn.count += uint64(n)
			next, w = s.join(turn), turn
		}
	}
	// passed is the time in this window, since a turn lies in the same window, or ahead.
	if s.begins(w.number) <= t {
		d.Remaining = max(s.limit-int64(s.used(w, passed)), 0)
	}
	d.ResetAfter = time.Duration(max(s.freshAt(w)-t, 0))
	return next, d
}

// FreshAt returns the last nanosecond of the window after the last with units.
func (s *slidingWindow) FreshAt(word uint64) Instant { return s.freshAt(s.split(word)) }

func (s *slidingWindow) freshAt(w sliding) Instant {
	switch {
	case w.count > 0:
		return s.begins(w.number+2) - 1
	case w.before > 0:
		return s.begins(w.number+1) - 1
	default:
		return s.begins(w.number)
	}
}

func (s *slidingWindow) Refund(word uint64, now Instant, n int64) uint64 {
	t := clamped(now, s.end)
	w, _ := s.countsAt(word, t)
	if n < 0 {
		w.count += asUnits(n, s.full()-w.count)
		return s.join(w)
	}
	back := asUnits(n, w.count)
	if back == 0 {
		return word
	}
	w.count -= back
	return s.join(w)
}

// Cancel ignores undone: the units of a count are indistinguishable.
func (s *slidingWindow) Cancel(word, taken uint64, _, now Instant, n, _ int64) uint64 {
	t := clamped(now, s.end)
	if n < 0 || t >= s.FreshAt(word) {
		return word
	}
	w := s.split(word)
	count := &w.count
	switch s.split(taken).number {
	case w.number:
	case w.number - 1:
		count = &w.before
	default:
		return word
	}
	back := asUnits(n, *count)
	if back == 0 {
		return word
	}
	*count -= back
	return s.join(w)
}

func (s *slidingWindow) Reads(other Policy) bool {
	o, ok := other.(*slidingWindow)
	return ok && o.per == s.per
}

// Carry translates a word of another period. A word of the same period stays, unless a higher
// limit would admit calls before turns that the lower limit promised.
func (s *slidingWindow) Carry(from Policy, word uint64, now Instant) (uint64, bool) {
	old, ok := from.(*slidingWindow)
	if !ok {
		return 0, false
	}
	t := clamped(now, old.end)
	if t >= old.FreshAt(word) {
		if s.Reads(old) {
			return word, true
		}
		return 0, true
	}
	w, passed := old.countsAt(word, t)
	turn, ahead := old.lastTurn(w, t)
	if s.Reads(old) {
		if sooner, _ := s.lastTurn(w, t); ahead && sooner < turn {
			return s.join(s.fullUntil(turn, w.count)), true
		}
		return word, true
	}
	if !ahead {
		number := uint64(clamped(now, s.end)) / uint64(s.per)
		return s.join(sliding{number: number, count: min(old.used(w, passed), uint64(s.limit))}), true
	}
	used := old.used(w, uint64(turn-old.begins(w.number)))
	return s.join(s.fullUntil(clamped(turn, s.end), used)), true
}

// lastTurn returns the last turn that may be promised in w, and reports whether it is after t. If
// the limit was lowered since, the real turn may be earlier. In a window that has begun, a turn
// is ahead only if its call waits for units of the window before: more counts now than the limit
// allows. The turn comes when that ends, within this window.
func (s *slidingWindow) lastTurn(w sliding, t Instant) (turn Instant, ahead bool) {
	begins := s.begins(w.number)
	end := uint64(s.per) - 1
	switch {
	case w.before == 0:
		return begins, begins > t
	case w.count > uint64(s.limit):
		return begins + Instant(end), begins+Instant(end) > t
	}
	_, passed := s.fits(w, 0, 0)
	turn = begins + Instant(passed)
	return turn, turn > t
}

// fullUntil returns a state that is full until turn, with used units from then on. It raises the
// count of the window before or, if none is as high, of the turn's own.
func (s *slidingWindow) fullUntil(turn Instant, used uint64) sliding {
	per, limit := uint64(s.per), uint64(s.limit)
	w := sliding{number: uint64(turn) / per, count: min(used, limit)}
	passed := uint64(turn - s.begins(w.number))
	if passed == 0 {
		return w
	}
	// covered is the part of the window before that is covered a nanosecond before the turn.
	covered := per - passed
	hi, lo := bits.Mul64(s.full(), covered)
	most, rest := bits.Div64(hi, lo, per)
	if rest == 0 {
		most--
	}
	room := min(limit-w.count, most)
	w.count = limit - room
	hi, lo = bits.Mul64(room, per)
	w.before, _ = bits.Div64(hi, lo, covered)
	// The count is one more than there is room for.
	w.before++
	return w
}

func (s *slidingWindow) String() string {
	return "sliding " + rateText(s.limit, s.per)
}
