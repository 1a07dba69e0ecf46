package single

import (
	"time"

	"github.com/ral-limiter/ral/internal/core/clock"
	"github.com/ral-limiter/ral/internal/core/decide"
	"github.com/ral-limiter/ral/policy"
)

// Option is a setting of New.
type Option func(*options) error

type options struct {
	maxWaiting  int
	clock       func() policy.Instant
	packageTime bool
}

const defaultMaxWaiting = 1024

// MaxWaiting bounds how many calls may wait in line. More get ErrCrowded. The default is 1024, the
// least 1. Joining the line takes time for each call in it; being refused mostly does not.
func MaxWaiting(n int) Option {
	return func(options *options) error {
		if n < 1 {
			return &policy.FieldError{Of: "single.MaxWaiting", Field: "n", Value: n, Want: "1 or more"}
		}
		options.maxWaiting = n
		return nil
	}
}

// Clock sets the Limiter's clock, as engine.Config.Clock does: nanoseconds from any beginning. The
// time that it returns in New becomes instant 1, so set the clock before. While it returns an
// earlier time, or one more than 9 years later, time may stand still: usage stays. If the clock
// goes backwards no call gains units. Any goroutine may call now at any time, once for a decision.
// The default is package time's monotonic clock, read from the processor's counter where that can
// be trusted: see PackageTime.
func Clock(now func() policy.Instant) Option {
	return func(options *options) error {
		if now == nil {
			return &policy.FieldError{Of: "single.Clock", Field: "now", Value: "nil", Want: "a function"}
		}
		options.clock = now
		return nil
	}
}

// PackageTime makes every decision read package time's clock, not the processor's counter, which
// may be off by up to a microsecond: see engine.Config.PackageTime. PackageTime is the default in a
// bubble of testing/synctest. Clock takes precedence.
func PackageTime() Option {
	return func(options *options) error {
		options.packageTime = true
		return nil
	}
}

type timeSource struct {
	// counter is nil if the Limiter does not use the processor's counter.
	counter *clock.Clock
	// base is instant 0 by the counter.
	base int64
	// clock is nil without option Clock.
	clock func() policy.Instant
	// begun is clock's first value.
	begun policy.Instant
	// epoch is package time at instant 1.
	epoch time.Time
	// zero is the wall time of instant 0, for limits tied to wall time.
	zero time.Time
}

func newTimeSource(options options) (timeSource timeSource) {
	switch {
	case options.clock != nil:
		timeSource.clock, timeSource.begun = options.clock, options.clock()
	case !options.packageTime:
		if timeSource.counter = clock.Shared(); timeSource.counter != nil {
			timeSource.base = timeSource.counter.Now() - 1
		}
	}
	timeSource.epoch = time.Now()
	timeSource.zero = timeSource.epoch.Round(0).Add(-1)
	return timeSource
}

func (s *timeSource) now() policy.Instant {
	if s.counter != nil {
		return max(policy.Instant(s.counter.Now()-s.base), 1)
	}
	if s.clock != nil {
		return max(s.clock()-s.begun+1, 1)
	}
	return policy.Instant(time.Since(s.epoch)) + 1
}

func (s *timeSource) anchored(limit policy.Policy) policy.Policy { return decide.Anchor(limit, s.zero) }
