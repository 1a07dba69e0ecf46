package store

import (
	"encoding/binary"
	"fmt"
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
	log    *slidinglog.Log // nil except for a SlidingLog, which has no shape
	limit  int64           // the most that can be taken at once
	prefix string          // of the names of keys
	blocks string          // of the names of blocks
	rule   rule            // of penalties
	take   *script
	noting *script // take that notes calls which may give back; nil if none need it
	one    string  // take's argument for one unit without patience
	lease  *script // nil if it cannot be leased
	back   *script // returns or charges units
	charge *script // charges units of several words
}

// Policy returns the policy of the limit.
func (l *Limit) Policy() policy.Policy { return l.policy }

// Rule returns the rule by which refusals under the limit block a key.
func (l *Limit) Rule() penalty.Rule { return *l.rule.Rule }

// Names returns the names in Redis of the word of a tail's key, and of its block.
func (l *Limit) Names(tail string) (word, block string) { return l.prefix + tail, l.blocks + tail }

// Reads reports whether the limits share their words, and their names in Redis.
func (l *Limit) Reads(other *Limit) bool { return l.prefix == other.prefix }

// Lasts returns how long after the epoch time ends for the limit: words have no room for later.
func (l *Limit) Lasts() time.Duration {
	if l.log != nil {
		return maxPatience // see log.lua
	}
	return time.Duration(l.shape.End)
}

const (
	shortestSliding = time.Millisecond
	mostAligned     = 1 << 52
	mostCounted     = 1<<53 - 1
)

// Limit prepares a policy, or returns a *policy.FieldError. Redis can decide Funnel, Queue, Bursty,
// FixedWindow, fleet.SlidingLog, and SlidingWindow and AlignedWindow of whole microseconds
// (SlidingWindow from a millisecond on).
func (s *Store) Limit(p policy.Policy) (*Limit, error) {
	refuse := func(want string) (*Limit, error) {
		return nil, &policy.FieldError{Of: "fleet.Config", Field: "Policy", Value: p, Want: want}
	}
	if shape.IsNil(p) {
		return refuse("a policy")
	}
	if log, ok := p.(*slidinglog.Log); ok {
		return &Limit{
			policy: p, blocks: s.blocks, rule: s.rule, log: log, limit: log.Limit(), take: s.logTakeScript(), back: s.scripts.relog,
			prefix: s.prefix(fmt.Sprintf("l%d", log.Per)),
		}, nil
	}
	if a, ok := p.(policy.Anchored); ok {
		p = a.Anchor(s.options.Epoch)
	}
	shaped, ok := p.(shape.Shaped)
	if !ok || shaped.Shape().Kind == 0 {
		return refuse("a Funnel, Queue, Bursty, FixedWindow, SlidingWindow or AlignedWindow of package policy, or a fleet.SlidingLog (which keeps the promise of AtMost, at the full rate)")
	}
	l := &Limit{policy: p, blocks: s.blocks, rule: s.rule, shape: shaped.Shape()}
	family := ""
	switch l.shape.Kind {
	case shape.Funnel:
		family = "f"
	case shape.Queue:
		family = "q"
	case shape.Bursty:
		family = "b"
	case shape.FixedWindow:
		family = fmt.Sprintf("w%d-%d", l.shape.Per, l.shape.Bits)
	case shape.SlidingWindow:
		if l.shape.Per < shortestSliding || l.shape.Per%time.Microsecond != 0 {
			return refuse("a SlidingWindow with a period of a millisecond or more, in whole microseconds, the unit of Redis's clock")
		}
		family = fmt.Sprintf("s%d", l.shape.Per)
	case shape.AlignedWindow:
		switch {
		case l.shape.Per%time.Microsecond != 0:
			return refuse("an AlignedWindow with a period of whole microseconds, the unit of Redis's clock")
		case l.shape.Limit > mostAligned:
			return refuse(fmt.Sprintf("an AlignedWindow of at most %d units", int64(mostAligned)))
		}
		family = fmt.Sprintf("a%d", l.shape.Per)
	}
	l.limit = l.shape.Limit
	l.prefix = s.prefix(family)
	l.take = s.takeScript(algorithms[l.shape.Kind])
	l.back = s.backScript(givers[l.shape.Kind], l.notes())
	if l.notes() {
		l.noting = s.takeScript(paceNoting, noteLua)
	}
	l.charge = s.chargeScript(givers[l.shape.Kind])
	l.one = packed(l.figures(1, 0))
	switch l.shape.Kind {
	case shape.Funnel, shape.FixedWindow, shape.SlidingWindow:
		l.lease = s.leaseScript(l.shape.Kind)
	}
	return l, nil
}

// As in package policy.
const (
	tickBits    = 4
	firstTick   = 1 << tickBits                       // a store is empty then
	maxPatience = time.Duration(1) << (62 - tickBits) // 9 years
)

// held limits patience to the range that counts.
func held(patience time.Duration) time.Duration { return min(max(patience, 0), maxPatience) }

// figures are the parameters of the limit's script.
func (l *Limit) figures(n int64, patience time.Duration) []float64 {
	s := &l.shape
	waits := uint64(held(patience))
	end, rest := s.End/1000, s.End%1000
	switch s.Kind {
	case shape.FixedWindow:
		half := math.Ldexp(1, int(s.Bits))
		return []float64{
			float64(n), float64(s.Limit), 2 * half, half, float64(s.Length), float64(s.Last), float64(s.Step),
			float64(end), float64(waits / s.Step), float64(waits % s.Step),
		}
	case shape.SlidingWindow:
		low := min(s.Bits, 23) // keeps a remainder times a billion exact
		return []float64{
			float64(n), float64(s.Limit), math.Ldexp(1, int(s.Bits)), math.Ldexp(1, int(low)), math.Ldexp(1, int(s.Bits-low)),
			float64(s.Per / time.Microsecond), float64(s.Last), float64(end), float64(waits / 1000), float64(waits % 1000),
		}
	}
	if s.Kind == shape.AlignedWindow {
		low := min(s.Bits, 23)
		full := min(uint64(1)<<s.Bits-1, mostCounted)
		return []float64{
			float64(n), float64(s.Limit), float64(full), math.Ldexp(1, int(low)), math.Ldexp(1, int(s.Bits-low)),
			float64(s.Per / time.Microsecond), float64(s.Last), float64(end), float64(waits / 1000), float64(s.Zero / 1000),
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

// pairs splits numbers like the scripts.
func pairs(numbers ...uint64) (all []float64) {
	for _, n := range numbers {
		hi, lo := bits.Div64(0, n, 1_000_000_000)
		all = append(all, float64(hi), float64(lo))
	}
	return all
}

// packed encodes doubles for struct.unpack.
func packed(figures []float64) string {
	b := make([]byte, 0, 8*len(figures))
	for _, f := range figures {
		b = binary.LittleEndian.AppendUint64(b, math.Float64bits(f))
	}
	return string(b)
}
