package policy

import (
	"fmt"
	"math/bits"
	"time"
)

const (
	// shortestFixed is the shortest period of a fixed window.
	shortestFixed = time.Millisecond
	// maxFixed is the highest limit of a fixed window with a step of at most 100 µs.
	maxFixed = 1_000_000
	// fixedBits is the number of bits that count up to maxFixed.
	fixedBits = 20
)

// highCounts are the layouts of limits above maxFixed: the bits of a count, and the usual step. A
// period must have partsOfHigh steps or more, so that a window that starts late is not late by much.
var highCounts = [...]struct {
	bits uint
	step time.Duration
}{{24, 1250 * time.Microsecond}, {28, 20 * time.Millisecond}, {32, 500 * time.Millisecond}}

const partsOfHigh = 100

// fixedWindow keeps in a word the end of a window, a bit that it was promised, and its count. The
// end is rounded up to a step from instant 1, so an open window may start up to a step after its
// first call. The bit tells it from a promised window, which no call may enter before its start.
type fixedWindow struct {
	limit int64
	per   time.Duration
	// step is in nanoseconds.
	step   uint64
	byStep divisor
	// bits is the width of the count. The bit of a promise and the end are above it.
	bits uint
	// length is the steps that a window lasts: per, rounded up.
	length uint64
	// last is the latest end that a word can hold.
	last uint64
	end  Instant
}

// FixedWindow returns a counter with a lifetime: a window opens with the first unit taken, lasts
// for per, and admits at most limit units. So does a Redis counter with an expiry set once (INCR
// and EXPIRE), and most quotas of "100 an hour". Choose it if clients are told a count and the time
// at which it starts anew. A burst at the end of a window may be followed by another at the
// beginning of the next; [SlidingWindow] softens that, [AtMost] rules it out.
//
// # The most that it admits
//
// In any window of length t: limit*(1 + t/per), t/per rounded up; twice the limit within per.
//
// # Rounding and refusals
//
// limit is at least 1, per between a millisecond and 366 days. Other values are refused with
// a *[FieldError]. The start of a window is rounded up to a step of at most 100µs. Up to a
// million units a second the step is also at most a 4000th of per. The length is rounded up
// likewise unless per is in whole milliseconds. So a window is never shorter than per, and longer
// by less than a step, or two if its length is rounded.
//
// Limits above a million, such as budgets of tokens, leave less of the word to the start. Their step
// is 1.25ms up to 16,777,215, 20ms up to 268,435,455, and 500ms up to 4,294,967,295, and per must be
// at least 100 steps. If per is not in whole steps and rounding it would cost more than 100 parts per
// million, the step is between that and the half of it.
//
// A caller that comes back after exactly RetryAfter, or waits, opens the next window on a step,
// so the rounding does not add up. In the long run the rate is exact if per is in whole
// milliseconds, or above a million in whole steps, and otherwise lower by at most 100 parts per million.
//
// # Turns and time
//
// A waiting call has its turn when the window ends, in a new window that opens at that instant.
// Until then no call overtakes; when it is full, the next window follows. If the clock goes
// backwards, no call gains units. Time stands still 9 years after the epoch (see [Instant]) at the
// earliest, and patience beyond 9 years counts as 9.
//
// # Giving back
//
// Units come back to the current or promised window, until it has ended. A debt does not outlast
// its window either. An open window stays where it opened, also if all its units come back: only
// its count falls. If the next call opened another window instead, that would end later and could
// refuse calls that the first would have admitted. So a call that is undone may leave a trace: the
// end of its window. If all units of a promised window come back before it opens, the window before
// it counts as full. A take can be cancelled while its window is the latest: all its units come
// back. Once a later window is open or promised, none do.
//
// # One limit after another
//
// All fixed windows are a family. A limit that comes with a call (TakeWith) must have the same per.
// For a per below 524.288ms, limits above a bound (one to two million units a second, by per) are a
// family of their own. So are limits above a million of each of the three steps.
//
// If another limit takes over for good (SetPolicy), units of a window that has not ended count in
// a window of the new length. It opens at the change, or at the start of the old window if that
// is later. It is full if a promised window was given back.
func FixedWindow(limit int64, per time.Duration) (Policy, error) {
	if err := windowFault("FixedWindow", limit, per, shortestFixed); err != nil {
		return nil, err
	}
	count, step, highest := fixedLayout(limit, per)
	if limit > highest {
		return nil, &FieldError{Of: "FixedWindow", Field: "limit", Value: limit, Want: fmt.Sprintf(
			"at most %d: a word that lasts 9 years at %v a window holds no higher count%s", highest, per, holders(limit, per))}
	}
	length := (uint64(per) + step - 1) / step
	// last is below MaxWord.
	last := uint64(1)<<(62-count) - 2
	return &fixedWindow{
		limit: limit, per: per, step: step, byStep: newDivisor(step), bits: count,
		length: length, last: last, end: Instant(1 + (last-length)*step),
	}, nil
}

func (f *fixedWindow) Limit() int64 { return f.limit }

func (f *fixedWindow) Window() time.Duration { return f.per }

func (f *fixedWindow) Delays() bool { return false }

// fixedLayout returns the bits of a count and the nanoseconds of a step, and the highest limit of any
// layout if limit is above that.
func fixedLayout(limit int64, per time.Duration) (count uint, step uint64, highest int64) {
	if limit <= maxFixed {
		// Enough bits for a million units a second, or for every limit up to maxFixed.
		count = min(uint(bits.Len64(uint64(per/time.Microsecond))), fixedBits)
		if bits.Len64(uint64(limit)) > int(count) {
			count = fixedBits
		}
		return count, fixedStep(uint64(per), count), maxFixed
	}
	highest = maxFixed
	for _, high := range highCounts {
		if per < partsOfHigh*high.step {
			break
		}
		count, step, highest = high.bits, uint64(high.step), 1<<high.bits-1
		if limit <= highest {
			break
		}
	}
	if step > 0 && roundsTooFar(uint64(per), step) {
		parts := uint64(per) / (lastingTime >> (62 - count))
		step = (uint64(per) + parts - 1) / parts
	}
	return count, step, highest
}

// roundsTooFar reports whether rounding per up to steps costs more than 100 parts per million.
func roundsTooFar(per, step uint64) bool { return (step-per%step)%step > per/10_000 }

// fixedStep returns the shortest step that divides a millisecond and fits 9 years beside a count
// of that many bits, or the shortest for which rounding per up costs at most 100 parts per
// million.
func fixedStep(per uint64, count uint) uint64 {
	shortest := lastingTime >> (62 - count)
	for _, step := range [...]uint64{64, 80, 100, 125, 160, 200, 250, 320, 400, 500, 625, 800,
		1000, 1250, 1600, 2000, 2500, 3125, 4000, 5000, 6250, 8000,
		10_000, 12_500, 15_625, 20_000, 25_000, 31_250, 40_000, 50_000, 62_500, 100_000} {
		if step >= shortest && step <= 2*shortest && !roundsTooFar(per, step) {
			return step
		}
	}
	step := shortest
	for roundsTooFar(per, step) {
		step++
	}
	return step
}

// fixed is an unpacked word.
type fixed struct {
	// end is in steps since instant 1.
	end      uint64
	promised bool
	count    uint64
}

func (f *fixedWindow) full() uint64 { return 1<<f.bits - 1 }

func (f *fixedWindow) split(word uint64) fixed {
	return fixed{
		// No word of this limit has a higher end.
		end:      min(word>>(f.bits+1), f.last),
		promised: word>>f.bits&1 != 0,
		count:    word & f.full(),
	}
}

func (f *fixedWindow) join(window fixed) uint64 {
	word := window.end<<(f.bits+1) | window.count
	if window.promised {
		word |= 1 << f.bits
	}
	return word
}

func (f *fixedWindow) instant(step uint64) Instant { return Instant(1 + step*f.step) }

// from returns an empty window that starts at the instant, rounded up.
func (f *fixedWindow) from(instant Instant) fixed {
	start := f.byStep.quotient(uint64(max(instant, 1)) - 1 + f.step - 1)
	return fixed{end: min(start+f.length, f.last)}
}

// current returns the word's window or, if that has ended by the instant, a new, empty window.
func (f *fixedWindow) current(word uint64, instant Instant) fixed {
	if window := f.split(word); instant < f.freshAt(window) {
		return window
	}
	return f.from(instant)
}

// starts returns the start of a window, perhaps before the epoch if the window is empty.
func (f *fixedWindow) starts(window fixed) Instant {
	return f.instant(window.end) - Instant(f.length*f.step)
}

// ahead reports whether the window has yet to open.
func (f *fixedWindow) ahead(window fixed, instant Instant) bool {
	return window.promised && instant < f.starts(window)
}

func (f *fixedWindow) Choke(word uint64, now Instant) (uint64, bool) {
	instant := clamped(now, f.end)
	window := f.current(word, instant)
	if window.count >= uint64(f.limit) || f.ahead(window, instant) {
		return word, false
	}
	window.count++
	return f.join(window), true
}

// Take returns as ResetAfter the time until the end of the next take's window, even if that window
// is empty and the clock went back behind its start.
func (f *fixedWindow) Take(word uint64, now Instant, n int64, patience time.Duration) (next uint64, decision Decision) {
	instant := clamped(now, f.end)
	window := f.split(word)
	counts := instant < f.freshAt(window)
	next = word
	decision.Limit, decision.Remaining = f.limit, f.limit
	switch {
	case n < 0 || n > f.limit:
		decision.RetryAfter = Never
	case n == 0:
		decision.Allowed = true
	default:
		turn := window
		if !counts {
			turn = f.from(instant)
		}
		if turn.count+uint64(n) <= uint64(f.limit) {
			turn.count += uint64(n)
		} else if turn = (fixed{end: turn.end + f.length, promised: true, count: uint64(n)}); turn.end > f.last {
			// Time stands still before the turn.
			decision.RetryAfter = Never
			break
		}
		start := instant
		if f.ahead(turn, instant) {
			start = f.starts(turn)
		}
		if decision.admit(time.Duration(start-instant), patience) {
			next, window, counts = f.join(turn), turn, true
		}
	}
	if counts {
		decision.ResetAfter = time.Duration(f.instant(window.end) - instant)
		decision.Remaining = max(f.limit-int64(window.count), 0)
		if f.ahead(window, instant) {
			decision.Remaining = 0
		}
	}
	return next, decision
}

// FreshAt returns the end of the window, also of an empty window.
func (f *fixedWindow) FreshAt(word uint64) Instant { return f.freshAt(f.split(word)) }

func (f *fixedWindow) freshAt(window fixed) Instant {
	if window == (fixed{}) {
		// The key was never used.
		return 0
	}
	return f.instant(window.end)
}

func (f *fixedWindow) Refund(word uint64, now Instant, n int64) uint64 {
	instant := clamped(now, f.end)
	window := f.current(word, instant)
	if n < 0 {
		window.count += asUnits(n, f.full()-window.count)
		return f.join(window)
	}
	return f.lower(word, window, instant, n)
}

// Cancel ignores undone: the units of a count are indistinguishable.
func (f *fixedWindow) Cancel(word, taken uint64, _, now Instant, n, _ int64) uint64 {
	instant := clamped(now, f.end)
	window := f.current(word, instant)
	if took := f.split(taken); n < 0 || took.end != window.end || took.promised != window.promised {
		return word
	}
	return f.lower(word, window, instant, n)
}

// lower gives back up to n units of the word's window, or of a new, empty window.
func (f *fixedWindow) lower(word uint64, window fixed, instant Instant, n int64) uint64 {
	back := asUnits(n, window.count)
	if back == 0 {
		return word
	}
	if window.count -= back; window.count == 0 && f.ahead(window, instant) {
		// The window before was full; the word does not hold for which limit, so it is full for
		// every limit.
		window.end -= min(f.length, window.end)
		window.count = f.full()
	}
	return f.join(window)
}

// Restore returns an empty window if the take opened it.
func (f *fixedWindow) Restore(word, before uint64, now Instant) uint64 {
	window := f.split(word)
	if f.split(before).end == window.end || f.ahead(window, clamped(now, f.end)) {
		return before
	}
	window.count = 0
	return f.join(window)
}

func (f *fixedWindow) Reads(other Policy) bool {
	window, ok := other.(*fixedWindow)
	return ok && window.per == f.per && window.bits == f.bits
}

func (f *fixedWindow) Carry(from Policy, word uint64, now Instant) (uint64, bool) {
	old, ok := from.(*fixedWindow)
	if !ok {
		return 0, false
	}
	if f.Reads(old) {
		return word, true
	}
	instant := clamped(now, old.end)
	if instant >= old.FreshAt(word) {
		return 0, true
	}
	window := old.split(word)
	// The window may have opened after now, less than a step before its rounded start.
	start, ahead := max(clamped(now, f.end), old.starts(window)-Instant(old.step)+1), old.ahead(window, instant)
	if ahead || old.per == f.per {
		// The length stays, so the end does too.
		start = old.starts(window)
	}
	next := f.from(start)
	next.promised, next.count = ahead, min(window.count, f.full())
	return f.join(next), true
}

func (f *fixedWindow) String() string {
	return "window " + rateText(f.limit, f.per)
}
