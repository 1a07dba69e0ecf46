package policy

import (
	"fmt"
	"math"
	"math/bits"
	"time"
)

// Policies that drain evenly count in ticks, sixteenths of a nanosecond. Rounding an interval up
// to a tick costs at most 63 parts per million at a million units a second, where nanoseconds
// would cost 1000. One bit more would halve the 18 years of a word.
const (
	tickBits = 4

	// maxDepth bounds the ticks in which a full bucket drains: 17 of a word's 18 years.
	maxDepth = 1<<63 - 1<<59
	// maxPatience bounds the distance of a turn: 9 years.
	maxPatience = time.Duration(1) << (62 - tickBits)

	// coarsest bounds a rate's rounding: 1 in 1000, which holds up to 16 million a second.
	coarsest = 1000
)

// minPer is the shortest period of any limit. A shorter one is most likely a number whose unit of time
// was forgotten, and its limit would refuse almost nothing: a per of 10 is 10ns.
const minPer = time.Microsecond

// pace is an even flow: count units every per.
type pace struct {
	// interval is the ticks from a unit to the next, rounded up.
	interval   uint64
	byInterval divisor
	count      int64
	per        time.Duration
}

// newPace returns the pace of the policy that a function constructs, or a *FieldError. slowest bounds the
// ticks of a unit, and is at most maxDepth.
func newPace(function string, count int64, per time.Duration, slowest uint64) (pace, error) {
	bad := func(field string, value any, want string) (pace, error) {
		return pace{}, &FieldError{Of: function, Field: field, Value: value, Want: want}
	}
	switch {
	case count < 1:
		return bad("count", count, "1 or more")
	case per < minPer:
		return bad("per", per, minPer.String()+" or more")
	}
	// interval = per/count in ticks, rounded up. The product has up to 67 bits. The bound slowest
	// also keeps hi below count.
	hi, lo := bits.Mul64(uint64(per), 1<<tickBits)
	if longest := slowest >> tickBits; uint64(per-1)/longest >= uint64(count) {
		const year = uint64(365 * 24 * time.Hour)
		return bad("per", per, fmt.Sprintf("at most %v at a count of %d: a unit must not take more than %d years",
			time.Duration(longest*uint64(count)), count, longest/year))
	}
	interval, rest := bits.Div64(hi, lo, uint64(count))
	if rest > 0 {
		interval++
		// excess is the number of ticks too many in count intervals.
		excess := uint64(count) - rest
		if over, product := bits.Mul64(excess, coarsest); over > hi || over == hi && product > lo {
			return bad("count", count, fmt.Sprintf(
				"a rate of at most 16 million a second, or one whose interval is a whole number of sixteenths of a nanosecond (%d per %v would be kept as one unit every %gns)",
				count, per, float64(interval)/(1<<tickBits)))
		}
	}
	return pace{interval: interval, byInterval: newDivisor(interval), count: count, per: per}, nil
}

// depth returns the ticks in which units drain, or a *FieldError about field if they overflow.
func (p pace) depth(function, field string, units int64) (uint64, error) {
	hi, depth := bits.Mul64(uint64(units), p.interval)
	if hi != 0 || depth > maxDepth {
		return 0, &FieldError{Of: function, Field: field, Value: units, Want: fmt.Sprintf(
			"at most %d: a full bucket must drain within 17 years, and %d per %v drains no more", maxDepth/p.interval, p.count, p.per)}
	}
	return depth, nil
}

// rescale converts the ticks of units at another pace into their ticks at this pace, rounded up. It returns
// most if that is less.
func (p pace) rescale(from pace, ticks, most uint64) uint64 {
	hi, lo := bits.Mul64(ticks, p.interval)
	if hi >= from.interval {
		return most
	}
	scaled, rest := bits.Div64(hi, lo, from.interval)
	if scaled >= most {
		return most
	}
	if rest > 0 {
		scaled++
	}
	return scaled
}

// end returns the last instant at which a bucket of that depth can be filled and fit a word.
func end(depth uint64) Instant { return Instant((MaxWord - depth) >> tickBits) }

// ticks converts an instant, clamped to 0 to end, to ticks.
func ticks(now, end Instant) uint64 {
	return uint64(min(max(now, 0), end)) << tickBits
}

func patienceTicks(patience time.Duration) uint64 {
	return uint64(min(max(patience, 0), maxPatience)) << tickBits
}

// nanosUp converts ticks to nanoseconds, rounded up, without overflow.
func nanosUp(ticks uint64) time.Duration {
	const mask = 1<<tickBits - 1
	return time.Duration(ticks>>tickBits + (ticks&mask+mask)>>tickBits)
}

// timesUp returns n*interval, or most if that is less. n must not be negative.
func timesUp(n int64, interval, most uint64) uint64 {
	hi, lo := bits.Mul64(uint64(n), interval)
	if hi != 0 || lo > most {
		return most
	}
	return lo
}

// retryAt returns the time from a tick to the tick start, or Never if time stands still before.
func retryAt(start, tick uint64, end Instant) time.Duration {
	if start > uint64(end)<<tickBits {
		return Never
	}
	return nanosUp(start - tick)
}

// lowest returns the lowest tick at which n units of a take can end. The take was made at the tick start
// and left the word taken. Other calls have given back gone ticks since.
func (p pace) lowest(taken, gone, start uint64, n int64) uint64 {
	if n <= 0 {
		return 0
	}
	alone := start + timesUp(n, p.interval, MaxWord-start)
	return max(taken-min(gone, taken), min(alone, taken))
}

// refund returns the tick at which everything will have drained, earlier by n units, but not before the
// present tick. n < 0 makes that tick later, as far as a word can hold.
func (p pace) refund(word, tick uint64, n int64) uint64 {
	if n < 0 {
		drained := max(word, tick)
		return drained + timesUp(-max(n, -math.MaxInt64), p.interval, MaxWord-drained)
	}
	if word <= tick {
		// The key owes nothing.
		return word
	}
	return word - timesUp(n, p.interval, word-tick)
}

// window returns the time in which so many units drain at the requested rate.
func (p pace) window(units int64) time.Duration {
	hi, lo := bits.Mul64(uint64(units), uint64(p.per))
	if hi >= uint64(p.count) {
		return math.MaxInt64
	}
	window, rest := bits.Div64(hi, lo, uint64(p.count))
	if rest > 0 {
		window++
	}
	return time.Duration(min(window, math.MaxInt64))
}
