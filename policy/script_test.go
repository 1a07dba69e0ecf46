package policy_test

import (
	"fmt"
	"math"
	"math/bits"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/ral-limiter/ral/policy"
)

// script is a fuzzer's bytes read as a limit and a series of actions, relative to the last
// answer. All bytes are a valid script. A number is a byte for its length, 0 to 8, and that many
// bytes, highest first. With rng set, an endless script is made up as it is read.
type script struct {
	data []byte
	rng  *rand.Rand
	// period is a time in which things change, so that rng draws instants about it.
	period time.Duration
}

type action struct {
	what what
	now  policy.Instant
	// n of a cancellation is the number of takes before the last.
	n        int64
	patience time.Duration
}

type what int

const (
	takes what = iota
	refunds
	cancels
)

func (a action) String() string {
	switch a.what {
	case refunds:
		return fmt.Sprintf("Refund(%d) at %d", a.n, a.now)
	case cancels:
		return fmt.Sprintf("Cancel(take %d from the last) at %d", a.n, a.now)
	}
	return fmt.Sprintf("Take(%d) at %d with patience %d", a.n, a.now, a.patience)
}

// An operation is a when, a what and a how, or-ed together. If their names end in N, a number
// follows, in this order.
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
	someN                // take something between 1 and the limit
	all                  // take the limit
	tooMany              // take one more
	most                 // take MaxInt64
	negative             // take something below 0
	rest                 // take what Remaining said
	whatMask = 7 << 3
)
const (
	impatient = iota << 6
	patientN  // for so many nanoseconds
	patient   // for ever
	giving    // not taking, but giving back; the next table says what
	howMask   = 3 << 6
)

// The giving back.
const (
	giveOne    = giving | one      // Refund 1
	cancelLast = giving | look     // Cancel the last take
	giveSomeN  = giving | someN    // Refund something between 1 and the limit
	giveAll    = giving | all      // Refund the limit
	cancelN    = giving | tooMany  // Cancel the take so many before the last
	giveMost   = giving | most     // Refund MaxInt64
	chargeN    = giving | negative // Refund something below 0
	giveLast   = giving | rest     // Refund as many as the last action was about
)

func (s *script) byte() byte {
	if s.rng != nil {
		return byte(s.rng.Uint32())
	}
	if len(s.data) == 0 {
		return 0
	}
	b := s.data[0]
	s.data = s.data[1:]
	return b
}

func (s *script) number() uint64 {
	if s.rng != nil {
		return s.rng.Uint64() >> s.rng.UintN(64)
	}
	var n uint64
	for range min(s.byte(), 8) {
		n = n<<8 | uint64(s.byte())
	}
	return n
}

// between reads a number and brings it into [lo, hi] if it is not there.
func (s *script) between(lo, hi int64) int64 {
	// A width of 0 stands for all values.
	width := uint64(hi-lo) + 1
	if s.rng != nil {
		// Small and large numbers, and any size between.
		var n uint64
		switch s.rng.UintN(8) {
		case 0, 1, 2:
			n = s.rng.Uint64N(5)
		case 3:
			n = width - 1 - s.rng.Uint64N(3)
		default:
			n = s.rng.Uint64() >> (64 - s.rng.UintN(uint(bits.Len64(width-1))+1))
		}
		if width != 0 {
			n %= width
		}
		return lo + int64(n)
	}
	n := s.number()
	if int64(n) >= lo && n <= uint64(hi) {
		return int64(n)
	}
	if width != 0 {
		n %= width
	}
	return lo + int64(n)
}

func (s *script) step() int64 {
	if s.rng != nil && s.period > 0 && s.rng.UintN(16) > 0 {
		return s.rng.Int64N(min(int64(s.period), math.MaxInt64/2)*2) >> s.rng.UintN(6)
	}
	return s.between(0, math.MaxInt64)
}

// next reads an action, given the last and its answer.
func (s *script) next(last action, decision policy.Decision) (action, bool) {
	if len(s.data) == 0 && s.rng == nil {
		return action{}, false
	}
	code := int(s.byte())
	if s.rng != nil {
		// Most random instants lead nowhere, as do requests that always fail.
		if code&whenMask == jumpN && s.rng.UintN(8) > 0 {
			// The action stays at the same instant.
			code &^= whenMask
		}
		if what := code & whatMask; (what == tooMany || what == most || what == negative) && s.rng.UintN(6) > 0 {
			// The action becomes one, look or someN.
			code ^= tooMany
		}
	}
	a := action{now: last.now}
	retry := decision.RetryAfter
	if retry == policy.Never {
		retry = 0
	}
	switch code & whenMask {
	case forwardN:
		a.now = shift(a.now, s.step())
	case backN:
		a.now = shift(a.now, -s.step())
	case toRetry:
		a.now = shift(a.now, int64(retry))
	case beforeRetry:
		a.now = shift(a.now, int64(retry)-1)
	case toReset:
		a.now = shift(a.now, int64(decision.ResetAfter))
	case beforeReset:
		a.now = shift(a.now, int64(decision.ResetAfter)-1)
	case jumpN:
		a.now = policy.Instant(s.number())
	}
	if code&howMask == giving {
		s.giving(&a, code, last, decision)
		return a, true
	}
	switch code & whatMask {
	case one:
		a.n = 1
	case someN:
		a.n = s.between(1, decision.Limit)
	case all:
		a.n = decision.Limit
	case tooMany:
		a.n = decision.Limit
		if a.n < math.MaxInt64 {
			a.n++
		}
	case most:
		a.n = math.MaxInt64
	case negative:
		a.n = -1 - s.between(0, math.MaxInt64)
	case rest:
		a.n = decision.Remaining
	}
	switch code & howMask {
	case patientN:
		if a.patience = time.Duration(s.number()); s.rng != nil && a.patience > 0 {
			a.patience = time.Duration(s.step())
		}
	case patient:
		a.patience = math.MaxInt64
	}
	return a, true
}

func (s *script) giving(a *action, code int, last action, decision policy.Decision) {
	a.what = refunds
	switch code & (whatMask | howMask) {
	case giveOne:
		a.n = 1
	case giveSomeN:
		a.n = s.between(1, decision.Limit)
	case giveAll:
		a.n = decision.Limit
	case giveMost:
		a.n = math.MaxInt64
	case chargeN:
		a.n = -1 - s.between(0, math.MaxInt64)
	case giveLast:
		a.n = last.n
	case cancelLast:
		a.what, a.n = cancels, 0
	case cancelN:
		a.what, a.n = cancels, s.between(0, 7)
	}
}

// addScripts adds seeds of random bytes: all are valid scripts.
func addScripts(f *testing.F) {
	random := rand.NewChaCha8([32]byte{})
	for length := range 40 {
		data := make([]byte, 8*length)
		_, _ = random.Read(data)
		f.Add(data)
	}
}
