package policy_test

import (
	"encoding/binary"
	"math"
	"time"

	"github.com/ral-limiter/ral/policy"
)

// A script is a fuzzer's bytes read as a limit and a row of calls. Every row of
// bytes is a valid script, so that no mutation is wasted, and the calls are
// relative to what was answered last, so that a mutation need not guess the one
// nanosecond at which things change.
//
// A number is a byte for its length, 0 to 8, and that many bytes, highest first.
type script struct{ data []byte }

// call is one step of a script.
type call struct {
	now      policy.Instant
	n        int64
	patience time.Duration
}

// An operation is a when, a what and a patience, or-ed together. Those that end
// in N are followed by a number, in this order.
const (
	stay        = iota // at the same instant
	forwardN           // so many nanoseconds later
	backN              // so many nanoseconds earlier
	toRetry            // later by the last RetryAfter
	beforeRetry        // a nanosecond less
	toReset            // later by the last ResetAfter
	beforeReset        // a nanosecond less
	jumpN              // at any instant at all
	whenMask    = 7
)
const (
	one      = iota << 3 // take 1
	look                 // take 0
	someN                // take something between 1 and capacity
	all                  // take capacity
	tooMany              // take capacity+1
	most                 // take MaxInt64
	negative             // take something below 0
	rest                 // take what Remaining said
	whatMask = 7 << 3
)
const (
	impatient     = iota << 6
	patientN      // for so many nanoseconds
	patient       // for ever
	worse         // for less than no time
	patiencesMask = 3 << 6
)

func (s *script) byte() byte {
	if len(s.data) == 0 {
		return 0
	}
	b := s.data[0]
	s.data = s.data[1:]
	return b
}

func (s *script) number() uint64 {
	var n uint64
	for range min(s.byte(), 8) {
		n = n<<8 | uint64(s.byte())
	}
	return n
}

// between reads a number and brings it into [lo, hi] if it is not there.
func (s *script) between(lo, hi int64) int64 {
	n := s.number()
	if n >= uint64(lo) && n <= uint64(hi) {
		return int64(n)
	}
	return lo + int64(n%uint64(hi-lo+1))
}

// limit reads a funnel of a rate between one a year and ten million a second,
// and of any depth that Funnel takes.
func (s *script) limit() (capacity, count int64, per time.Duration) {
	const fastest = 100 // nanoseconds a unit
	per = time.Duration(s.between(fastest, int64(year)))
	count = s.between(1, int64(per)/fastest)
	capacity = s.between(1, int64(longestDrain)/(int64(per)/count+1))
	return capacity, count, per
}

// next reads a call, given the last one and its answer.
func (s *script) next(last call, d policy.Decision) (call, bool) {
	if len(s.data) == 0 {
		return call{}, false
	}
	code := int(s.byte())
	c := call{now: last.now}
	retry := d.RetryAfter
	if retry == policy.Never {
		retry = 0
	}
	switch code & whenMask {
	case forwardN:
		c.now = shift(c.now, s.between(0, math.MaxInt64))
	case backN:
		c.now = shift(c.now, -s.between(0, math.MaxInt64))
	case toRetry:
		c.now = shift(c.now, int64(retry))
	case beforeRetry:
		c.now = shift(c.now, int64(retry)-1)
	case toReset:
		c.now = shift(c.now, int64(d.ResetAfter))
	case beforeReset:
		c.now = shift(c.now, int64(d.ResetAfter)-1)
	case jumpN:
		c.now = policy.Instant(s.number())
	}
	switch code & whatMask {
	case one:
		c.n = 1
	case someN:
		c.n = s.between(1, d.Limit)
	case all:
		c.n = d.Limit
	case tooMany:
		c.n = d.Limit + 1
	case most:
		c.n = math.MaxInt64
	case negative:
		c.n = -1 - s.between(0, math.MaxInt64)
	case rest:
		c.n = d.Remaining
	}
	switch code & patiencesMask {
	case patientN:
		c.patience = time.Duration(s.between(0, math.MaxInt64))
	case patient:
		c.patience = math.MaxInt64
	case worse:
		c.patience = math.MinInt64
	}
	return c, true
}

// shift adds without wrapping round.
func shift(now policy.Instant, by int64) policy.Instant {
	sum := now + policy.Instant(by)
	switch {
	case by > 0 && sum < now:
		return math.MaxInt64
	case by < 0 && sum > now:
		return math.MinInt64
	}
	return sum
}

// writeScript is the other direction: numbers are written as such, operations
// (of type op) as one byte.
func writeScript(capacity, count int64, per time.Duration, rest ...any) []byte {
	data := appendNumber(nil, uint64(per))
	data = appendNumber(data, uint64(count))
	data = appendNumber(data, uint64(capacity))
	for _, r := range rest {
		switch r := r.(type) {
		case op:
			data = append(data, byte(r))
		case int:
			data = appendNumber(data, uint64(r))
		case time.Duration:
			data = appendNumber(data, uint64(r))
		case policy.Instant:
			data = appendNumber(data, uint64(r))
		default:
			panic("not part of a script")
		}
	}
	return data
}

type op byte

func appendNumber(data []byte, n uint64) []byte {
	var b [8]byte
	binary.BigEndian.PutUint64(b[:], n)
	digits := b[:]
	for len(digits) > 0 && digits[0] == 0 {
		digits = digits[1:]
	}
	return append(append(data, byte(len(digits))), digits...)
}
