package store

import (
	"math"
	"math/bits"
	"time"

	"github.com/ral-limiter/ral/fleet/internal/slidinglog"
	"github.com/ral-limiter/ral/internal/core/penalty"
	"github.com/ral-limiter/ral/internal/core/shape"
	"github.com/ral-limiter/ral/policy"
)

// Limit is a policy prepared for Redis. It serves all stores with the Options of its maker.
type Limit struct {
	policy policy.Policy
	shape  shape.Shape
	// log is nil except for a SlidingLog, which has no shape.
	log *slidinglog.Log
	// inFlight is nil except for a limit in flight, which has no shape.
	inFlight *inFlight
	// limit is the most units that a call can take.
	limit int64
	// prefix is the prefix of the names of keys.
	prefix string
	// blocks is the prefix of the names of blocks.
	blocks string
	// rule is the rule of penalties.
	rule rule
	// take decides calls.
	take *script
	// noting is like take, and also writes the take to the log beside the word: see note.go. It is nil if the limit
	// needs no such log.
	noting *script
	// one is the argument of take for one unit without patience.
	one string
	// lease is nil if the limit cannot be leased.
	lease *script
	// back gives units of a word back, or charges them.
	back *script
	// charge charges units to several words.
	charge *script
}

// inFlight is the part of a Limit that counts units in use.
type inFlight struct {
	// longest is the longest time that a unit may be in use, and term the time for which it counts without being
	// confirmed. Both are whole microseconds.
	longest, term time.Duration
	// mark is the name of the limit's mark, a key with the time from which units may enter: see lua/inflightmark.lua.
	// Redis has lost its data if there is no mark.
	mark string
}

// Policy returns the policy of the limit.
func (l *Limit) Policy() policy.Policy { return l.policy }

// Rule returns the rule by which refusals under the limit block a key.
func (l *Limit) Rule() penalty.Rule { return *l.rule.Rule }

// Names returns the names in Redis of a key's word, and of its block. tail is the Tail of the key.
func (l *Limit) Names(tail string) (word, block string) { return l.prefix + tail, l.blocks + tail }

func (l *Limit) blockName(name string) string { return l.blocks + name[len(l.prefix):] }

// Reads reports whether the limits share their words, and their names in Redis.
func (l *Limit) Reads(other *Limit) bool { return l.prefix == other.prefix }

// Lasts returns the time from the epoch to the latest instant that the limit's words can hold.
func (l *Limit) Lasts() time.Duration {
	if l.wordless() {
		// log.lua says why.
		return maxPatience
	}
	return time.Duration(l.shape.End)
}

// wordless reports whether the limit keeps a set in Redis in place of words.
func (l *Limit) wordless() bool { return l.log != nil || l.inFlight != nil }

// canTake reports whether n units can ever be taken.
func (l *Limit) canTake(n int64) bool { return n > 0 && n <= l.limit }

const (
	minSliding = time.Millisecond
	maxAligned = 1 << 52
	// maxFixedBits is the number of bits for the count of a FixedWindow, up to a million. fixed.lua divides by twice
	// the highest count, and its numbers are exact up to 22 bits.
	maxFixedBits = 20
	maxCounted   = 1<<53 - 1
)

// These constants are the same as in package policy.
const (
	tickBits = 4
	// firstTick is the tick at which the store of a Bursty is empty.
	firstTick = 1 << tickBits
	// maxPatience is 9 years.
	maxPatience = time.Duration(1) << (62 - tickBits)
)

// bounded limits patience to the range from 0 to maxPatience.
func bounded(patience time.Duration) time.Duration { return min(max(patience, 0), maxPatience) }

// figures returns the parameters of the limit's script take, for a call of n units.
func (l *Limit) figures(n int64, patience time.Duration) []float64 {
	s := &l.shape
	waits := uint64(bounded(patience))
	end, rest := s.End/1000, s.End%1000
	switch s.Kind {
	case shape.FixedWindow:
		half := math.Ldexp(1, int(s.Bits))
		return []float64{
			float64(n), float64(s.Limit), 2 * half, half, float64(s.Length), float64(s.Last), float64(s.Step),
			float64(end), float64(waits / s.Step), float64(waits % s.Step),
		}
	case shape.SlidingWindow, shape.AlignedWindow:
		// The bound of 23 bits keeps a remainder times a billion exact in a double.
		low := min(s.Bits, 23)
		full, last := math.Ldexp(1, int(s.Bits)), waits%1000
		if s.Kind == shape.AlignedWindow {
			full, last = float64(min(uint64(1)<<s.Bits-1, maxCounted)), uint64(s.Zero/1000)
		}
		return []float64{
			float64(n), float64(s.Limit), full, math.Ldexp(1, int(low)), math.Ldexp(1, int(s.Bits-low)),
			float64(s.Per / time.Microsecond), float64(s.Last), float64(end), float64(waits / 1000), float64(last),
		}
	}
	ask := uint64(n) * s.Interval
	reach, from := s.Depth-ask+waits<<tickBits, uint64(0)
	switch s.Kind {
	case shape.Queue:
		// The last unit must fit. Patience only shortens the queue.
		reach = s.Depth - (ask - s.Interval)
		if patience > 0 {
			reach = min(reach, min(uint64(patience), 1<<(63-tickBits))<<tickBits)
		}
	case shape.Bursty:
		// The ask becomes debt. The earliest store is full, at depth.
		reach = s.Depth + waits<<tickBits
		from = firstTick + s.Depth
	}
	return append(pairs(ask, reach, from), float64(end), float64(rest<<tickBits))
}

// tick converts an instant to ticks, as the policies do that keep a pace: Funnel, Queue and Bursty.
func (l *Limit) tick(at policy.Instant) uint64 {
	return uint64(min(max(at, 0), policy.Instant(l.shape.End))) << tickBits
}

// ticks returns the number of ticks in which |n| units drain, at most MaxWord.
func (l *Limit) ticks(n int64) uint64 {
	if n < 0 {
		n = -max(n, -math.MaxInt64)
	}
	hi, lo := bits.Mul64(uint64(n), l.shape.Interval)
	if hi > 0 || lo > policy.MaxWord {
		return policy.MaxWord
	}
	return lo
}
