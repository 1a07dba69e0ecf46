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
// SlidingWindow assumes that the units of the window before were spread evenly. Compared with a log of all
// timestamps, it counts up to limit-1 units too few if they came at the end, and may admit
// 2*limit-1 in less than per. It counts up to limit too many if they came at the beginning: up to
// two periods, less a nanosecond, may pass until the full limit fits at once again. It never
// refuses a call that a log over twice the period admits. Compared with a ring of ten sub-windows,
// it counts up to nine tenths of the limit too few, and up to limit too many.
//
// # Rounding and refusals
//
// Only the number of units that count is rounded, and it is rounded up. The long-run rate is exact: a caller that
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

func (s *slidingWindow) join(window sliding) uint64 {
	return window.number<<(2*s.bits) | window.before<<s.bits | window.count
}

func (s *slidingWindow) begins(number uint64) Instant { return Instant(number * uint64(s.per)) }

// countsAt returns the counts for a call at an instant, and the nanoseconds of its window that have passed.
// An instant before the word's window counts as its beginning.
func (s *slidingWindow) countsAt(word uint64, instant Instant) (window sliding, passed uint64) {
	window = s.split(word)
	number := s.byPer.quotient(uint64(instant))
	if number < window.number {
		return window, 0
	}
	switch number - window.number {
	case 0:
	case 1:
		window = sliding{number: number, before: window.count}
	default:
		window = sliding{number: number}
	}
	return window, uint64(instant) - number*uint64(s.per)
}

// used returns the units that count in a window of which passed nanoseconds have passed.
func (s *slidingWindow) used(window sliding, passed uint64) uint64 {
	if window.before == 0 {
		return window.count
	}
	per := uint64(s.per)
	hi, lo := bits.Mul64(window.before, per-1-passed)
	// The sum does not overflow, since per is below 2^62, too.
	if hi == 0 && lo < 1<<62 {
		return window.count + s.byPer.quotient(lo+per-1)
	}
	// weighed is less than window.before.
	weighed, rest := bits.Div64(hi, lo, per)
	if rest > 0 {
		weighed++
	}
	return window.count + weighed
}

// fitsNow reports whether n more units fit: used is at most limit-n, without the division.
func (s *slidingWindow) fitsNow(window sliding, passed, n uint64) bool {
	if window.count+n > uint64(s.limit) {
		return false
	}
	// room is the room for the units of the window before.
	room := uint64(s.limit) - n - window.count
	if room >= window.before {
		return true
	}
	hi, lo := bits.Mul64(window.before, uint64(s.per)-1-passed)
	most, least := bits.Mul64(room, uint64(s.per))
	return hi < most || hi == most && lo <= least
}

// fits returns the first window with room for n units, and the nanoseconds of that window that have passed
// then. It looks from passed nanoseconds in the given window on. n is at most the limit.
func (s *slidingWindow) fits(window sliding, passed, n uint64) (sliding, uint64) {
	if s.fitsNow(window, passed, n) {
		return window, passed
	}
	limit, per := uint64(s.limit), uint64(s.per)
	if window.count+n > limit {
		window, passed = sliding{number: window.number + 1, before: window.count}, 0
	}
	// room is the room for the units of the window before.
	room := limit - n - window.count
	if room >= window.before {
		return window, passed
	}
	// The units before count as at most room while up to covered nanoseconds of their window do.
	hi, lo := bits.Mul64(room, per)
	covered, _ := bits.Div64(hi, lo, window.before)
	return window, max(passed, per-1-min(covered, per-1))
}

// Choke refuses a call with a clock behind the window.
func (s *slidingWindow) Choke(word uint64, now Instant) (uint64, bool) {
	instant := clamped(now, s.end)
	window, passed := s.countsAt(word, instant)
	if s.begins(window.number) > instant || !s.fitsNow(window, passed, 1) {
		return word, false
	}
	window.count++
	return s.join(window), true
}

func (s *slidingWindow) Take(word uint64, now Instant, n int64, patience time.Duration) (next uint64, decision Decision) {
	instant := clamped(now, s.end)
	window, passed := s.countsAt(word, instant)
	next = word
	decision.Limit = s.limit
	switch {
	case n < 0 || n > s.limit:
		decision.RetryAfter = Never
	case n == 0:
		decision.Allowed = true
	default:
		turn, then := s.fits(window, passed, uint64(n))
		if turn.number > s.last {
			// Time stands still before the turn.
			decision.RetryAfter = Never
			break
		}
		if start := s.begins(turn.number) + Instant(then); decision.admit(time.Duration(start-instant), patience) {
			turn.count += uint64(n)
			next, window = s.join(turn), turn
		}
	}
	// passed is the time in this window, since a turn lies in the same window or in a later one.
	if s.begins(window.number) <= instant {
		decision.Remaining = max(s.limit-int64(s.used(window, passed)), 0)
	}
	decision.ResetAfter = time.Duration(max(s.freshAt(window)-instant, 0))
	return next, decision
}

// FreshAt returns the last nanosecond of the window after the last with units.
func (s *slidingWindow) FreshAt(word uint64) Instant { return s.freshAt(s.split(word)) }

func (s *slidingWindow) freshAt(window sliding) Instant {
	switch {
	case window.count > 0:
		return s.begins(window.number+2) - 1
	case window.before > 0:
		return s.begins(window.number+1) - 1
	default:
		return s.begins(window.number)
	}
}

func (s *slidingWindow) Refund(word uint64, now Instant, n int64) uint64 {
	instant := clamped(now, s.end)
	window, _ := s.countsAt(word, instant)
	if n < 0 {
		window.count += asUnits(n, s.full()-window.count)
		return s.join(window)
	}
	back := asUnits(n, window.count)
	if back == 0 {
		return word
	}
	window.count -= back
	return s.join(window)
}

// Cancel ignores undone: the units of a count are indistinguishable.
func (s *slidingWindow) Cancel(word, taken uint64, _, now Instant, n, _ int64) uint64 {
	instant := clamped(now, s.end)
	if n < 0 || instant >= s.FreshAt(word) {
		return word
	}
	window := s.split(word)
	count := &window.count
	switch s.split(taken).number {
	case window.number:
	case window.number - 1:
		count = &window.before
	default:
		return word
	}
	back := asUnits(n, *count)
	if back == 0 {
		return word
	}
	*count -= back
	return s.join(window)
}

func (s *slidingWindow) Reads(other Policy) bool {
	window, ok := other.(*slidingWindow)
	return ok && window.per == s.per
}

// Carry translates a word of another period. A word of the same period stays, unless a higher
// limit would admit calls before turns that the lower limit promised.
func (s *slidingWindow) Carry(from Policy, word uint64, now Instant) (uint64, bool) {
	old, ok := from.(*slidingWindow)
	if !ok {
		return 0, false
	}
	instant := clamped(now, old.end)
	if instant >= old.FreshAt(word) {
		if s.Reads(old) {
			return word, true
		}
		return 0, true
	}
	window, passed := old.countsAt(word, instant)
	turn, ahead := old.lastTurn(window, instant)
	if s.Reads(old) {
		if sooner, _ := s.lastTurn(window, instant); ahead && sooner < turn {
			return s.join(s.fullUntil(turn, window.count)), true
		}
		return word, true
	}
	if !ahead {
		number := uint64(clamped(now, s.end)) / uint64(s.per)
		return s.join(sliding{number: number, count: min(old.used(window, passed), uint64(s.limit))}), true
	}
	used := old.used(window, uint64(turn-old.begins(window.number)))
	return s.join(s.fullUntil(clamped(turn, s.end), used)), true
}

// lastTurn returns the last turn that may be promised in a window, and reports whether that turn is after
// the instant. If the limit was lowered since, the real turn may be earlier. In a window that has begun, a
// turn is ahead only if its call waits for units of the window before: more counts now than the limit
// allows. The turn comes when that ends, within this window.
func (s *slidingWindow) lastTurn(window sliding, instant Instant) (turn Instant, ahead bool) {
	begins := s.begins(window.number)
	end := uint64(s.per) - 1
	switch {
	case window.before == 0:
		return begins, begins > instant
	case window.count > uint64(s.limit):
		return begins + Instant(end), begins+Instant(end) > instant
	}
	_, passed := s.fits(window, 0, 0)
	turn = begins + Instant(passed)
	return turn, turn > instant
}

// fullUntil returns a state that is full until turn, with used units from then on. It raises the
// count of the window before or, if none is as high, of the turn's own.
func (s *slidingWindow) fullUntil(turn Instant, used uint64) sliding {
	per, limit := uint64(s.per), uint64(s.limit)
	window := sliding{number: uint64(turn) / per, count: min(used, limit)}
	passed := uint64(turn - s.begins(window.number))
	if passed == 0 {
		return window
	}
	// covered is the part of the window before that is covered a nanosecond before the turn.
	covered := per - passed
	hi, lo := bits.Mul64(s.full(), covered)
	most, rest := bits.Div64(hi, lo, per)
	if rest == 0 {
		most--
	}
	room := min(limit-window.count, most)
	window.count = limit - room
	hi, lo = bits.Mul64(room, per)
	window.before, _ = bits.Div64(hi, lo, covered)
	// The count is one more than there is room for.
	window.before++
	return window
}

func (s *slidingWindow) String() string {
	return "sliding " + rateText(s.limit, s.per)
}
