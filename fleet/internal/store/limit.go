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
	// limit is the most that can be taken at once.
	limit int64
	// prefix is the prefix of the names of keys.
	prefix string
	// blocks is the prefix of the names of blocks.
	blocks string
	// rule is the rule of penalties.
	rule rule
	take *script
	// noting is a take that notes calls which may give back. It is nil if none need it.
	noting *script
	// one is take's argument for one unit without patience.
	one string
	// lease is nil if the limit cannot be leased.
	lease *script
	// back returns or charges units.
	back *script
	// charge charges units of several words.
	charge *script
}

// inFlight is what a Limit has if it counts units in use.
type inFlight struct {
	// longest and term are in whole microseconds.
	longest, term time.Duration
	// mark is the name of the mark beside the sets.
	mark string
}

// Policy returns the policy of the limit.
func (l *Limit) Policy() policy.Policy { return l.policy }

// Rule returns the rule by which refusals under the limit block a key.
func (l *Limit) Rule() penalty.Rule { return *l.rule.Rule }

// Names returns the names in Redis of the word of a tail's key, and of its block.
func (l *Limit) Names(tail string) (word, block string) { return l.prefix + tail, l.blocks + tail }

func (l *Limit) blockName(name string) string { return l.blocks + name[len(l.prefix):] }

// Reads reports whether the limits share their words, and their names in Redis.
func (l *Limit) Reads(other *Limit) bool { return l.prefix == other.prefix }

// Lasts returns how long after the epoch time ends for the limit: words have no room for later.
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
	// maxFixedBits holds counts up to a million. fixed.lua divides by twice the highest count, so its
	// numbers are exact up to 22 bits.
	maxFixedBits = 20
	maxCounted   = 1<<53 - 1
)

// As in package policy.
const (
	tickBits = 4
	// A store is empty at firstTick.
	firstTick = 1 << tickBits
	// maxPatience is 9 years.
	maxPatience = time.Duration(1) << (62 - tickBits)
)

// bounded limits patience to the range that counts.
func bounded(patience time.Duration) time.Duration { return min(max(patience, 0), maxPatience) }

// figures are the parameters of the limit's script.
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
		// The bound keeps a remainder times a billion exact.
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

// tick converts an instant like paced policies.
func (l *Limit) tick(at policy.Instant) uint64 {
	return uint64(min(max(at, 0), policy.Instant(l.shape.End))) << tickBits
}

// ticks returns the fill of |n| units, up to MaxWord.
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
