// Package warn finds the calls that bring a key to a share of its limit, and remembers which keys
// have been warned of. The package knows no key, only hashes.
package warn

import (
	"fmt"
	"math"
	"math/bits"

	"github.com/ral-limiter/ral/internal/core/shape"
	"github.com/ral-limiter/ral/policy"
)

// MaxShares is the number of shares that a limiter can have.
const MaxShares = 8

// Shares are the used shares of a limit at which a key is warned of, in increasing order. The zero
// Shares warn of none.
type Shares []float64

// Check returns a *policy.FieldError unless the shares are valid.
func (s Shares) Check(owner, field string) error {
	before := 0.0
	for i, share := range s {
		// The condition also refuses NaN.
		if !(share > before && share < 1) {
			return &policy.FieldError{
				Of: owner, Field: fmt.Sprintf("%s[%d]", field, i), Value: share,
				Want: "a share above 0 and below 1, such as 0.8, each above the one before",
			}
		}
		before = share
	}
	if len(s) > MaxShares {
		return &policy.FieldError{Of: owner, Field: field, Value: len(s), Want: fmt.Sprintf("at most %d shares", MaxShares)}
	}
	return nil
}

// left returns the largest number of units that remain once the share is used, of most units. That
// number is below most, so that a take is needed to reach it.
func left(share float64, most int64) int64 {
	// The product of 0.07 and 100 is slightly above 7.
	const inexact = 1e-12
	return most - min(max(int64(math.Ceil(share*float64(most)*(1-inexact))), 1), most)
}

// First returns the largest number of units that remain once the first share is used, of most units.
func (s Shares) First(most int64) int64 { return left(s[0], most) }

// Set is a set of shares. Bit i stands for Shares[i].
type Set uint8

// Passed returns the shares that a call passed: more units remained before the call, and not after
// it.
func (s Shares) Passed(most, before, after int64) (passed Set) {
	for i, share := range s {
		if bound := left(share, most); after <= bound && bound < before {
			passed |= 1 << i
		}
	}
	return passed
}

// Levels tell by the word alone whether a take of one unit may pass a share of a limit. Call
// NewLevels to make Levels. Levels never change.
type Levels struct {
	// Bounds has, for each share, the largest number of units that remain once it is used.
	Bounds []int64

	// The used units of a word at an instant are (word - scale*now) & mask, in units of step.
	scale, mask, step uint64
	// lows has the highest use below each share.
	lows []uint64
	// low is lows[0], or 0 with a shift.
	low    uint64
	byWord bool

	// shift is the width of each of two counts in the word, whose sum is at least the used units.
	// shift is 0 if the used units are exact. mask is then of bits that are 0 in low counts.
	shift uint
}

// NewLevels returns the levels of a limit, of most units that can remain.
func NewLevels(shares Shares, limit policy.Policy, most int64) (levels Levels) {
	for _, share := range shares {
		levels.Bounds = append(levels.Bounds, left(share, most))
	}
	levels.mask = math.MaxUint64
	shaped, _ := limit.(shape.Shaped)
	if shaped == nil {
		return levels
	}
	form := shaped.Shape()
	switch form.Kind {
	case shape.Funnel, shape.Queue, shape.Bursty:
		levels.scale, levels.mask, levels.step = 16, math.MaxUint64, form.Interval
	case shape.FixedWindow, shape.AlignedWindow:
		levels.mask, levels.step = 1<<form.Bits-1, 1
	case shape.SlidingWindow:
		levels.shift = form.Bits
	default:
		return levels
	}
	levels.byWord = true
	for _, bound := range levels.Bounds {
		// low is a count.
		low := uint64(most-bound) - 1
		switch form.Kind {
		// floor((Depth - used) / Interval) units remain.
		case shape.Funnel:
			low = form.Depth - uint64(bound+1)*form.Interval
		// One unit more remains.
		case shape.Queue, shape.Bursty:
			low = form.Depth - uint64(bound)*form.Interval
		}
		levels.lows = append(levels.lows, low)
	}
	levels.low = levels.lows[0]
	if levels.shift > 0 {
		full := uint64(1)<<levels.shift - 1
		// Two counts without these bits add up to low at most.
		high := full &^ (1<<(max(bits.Len64(levels.low+1), 2)-2) - 1)
		levels.mask, levels.low = high<<levels.shift|high, 0
	}
	return levels
}

// Below reports whether a key with that word has certainly not used the first share.
func (l *Levels) Below(word uint64, now policy.Instant) bool {
	return (word-uint64(now)*l.scale)&l.mask <= l.low && l.byWord
}

// MayPass reports whether a take of one unit that left the word at now may have passed a share.
// MayPass misses none while time goes on for the limit. Any take may have, if only the limit reads
// its words.
func (l *Levels) MayPass(word uint64, now policy.Instant) bool {
	used := (word - uint64(now)*l.scale) & l.mask
	return used > l.low && l.passes(word, used)
}

func (l *Levels) passes(word, used uint64) bool {
	if !l.byWord {
		return true
	}
	if l.shift > 0 {
		full := uint64(1)<<l.shift - 1
		return word&full+word>>l.shift&full > l.lows[0]
	}
	for _, low := range l.lows {
		// Below low the difference wraps round, and the condition is false.
		if used-low-1 < l.step {
			return true
		}
	}
	return false
}

// MayHavePassed reports whether a take of n units may have passed a share, if so many remain after
// it. The limit must have n units less after a take of n.
func (l *Levels) MayHavePassed(after, n int64) bool {
	for _, bound := range l.Bounds {
		if uint64(bound-after) < uint64(n) {
			return true
		}
	}
	return false
}
