package single

import (
	"time"

	"github.com/ral-limiter/ral/internal/core/clock"
	"github.com/ral-limiter/ral/policy"
)

// Option is a setting of New, for what the defaults do not fit.
type Option func(*options) error

type options struct {
	maxWaiting  int
	clock       func() policy.Instant
	packageTime bool
}

const defaultMaxWaiting = 1024

// MaxWaiting bounds how many calls may wait in line. Further ones get ErrCrowded. The
// default is 1024, the least 1. Joining the line takes time for each call in it. Being
// refused mostly does not.
func MaxWaiting(n int) Option {
	return func(o *options) error {
		if n < 1 {
			return &policy.FieldError{Of: "single.MaxWaiting", Field: "n", Value: n, Want: "1 or more"}
		}
		o.maxWaiting = n
		return nil
	}
}

// Clock has the Limiter decide by now, as engine.Config.Clock does: the nanoseconds from
// any beginning. The time that it returns in New becomes instant 1, so set it before: at an
// earlier time, and years later, no time passes, and what was used stays used. If it goes backwards
// no call gains units. Any goroutine may call it, at any time, once for a decision. The
// default is package time's monotonic clock, read from the processor's counter where that
// can be trusted: see PackageTime.
func Clock(now func() policy.Instant) Option {
	return func(o *options) error {
		if now == nil {
			return &policy.FieldError{Of: "single.Clock", Field: "now", Value: "nil", Want: "a function"}
		}
		o.clock = now
		return nil
	}
}

// PackageTime makes the Limiter read package time's clock for every decision, and not the
// processor's counter, by which an instant may be off by up to a microsecond: see
// engine.Config.PackageTime. In a bubble of testing/synctest, package time is the default.
// Clock takes precedence.
func PackageTime() Option {
	return func(o *options) error {
		o.packageTime = true
		return nil
	}
}

// timeSource is the clock by which a Limiter decides. Its first instant is 1.
type timeSource struct {
	counter *clock.Clock          // nil if it is not used
	base    int64                 // instant 0 by the counter
	clock   func() policy.Instant // nil if there is no Clock
	begun   policy.Instant        // what that returned at first
	epoch   time.Time             // package time at instant 1
	zero    time.Time             // the wall time of instant 0, for limits that need it
}

func newTimeSource(o options) (s timeSource) {
	switch {
	case o.clock != nil:
		s.clock, s.begun = o.clock, o.clock()
	case !o.packageTime:
		if s.counter = clock.Shared(); s.counter != nil {
			s.base = s.counter.Now() - 1
		}
	}
	s.epoch = time.Now()
	s.zero = s.epoch.Round(0).Add(-1)
	return s
}

// now returns the present instant.
func (s *timeSource) now() policy.Instant {
	if s.counter != nil {
		return max(policy.Instant(s.counter.Now()-s.base), 1)
	}
	if s.clock != nil {
		return max(s.clock()-s.begun+1, 1)
	}
	return policy.Instant(time.Since(s.epoch)) + 1
}

// anchored returns a limit for the instants of this clock.
func (s *timeSource) anchored(p policy.Policy) policy.Policy {
	if a, ok := p.(policy.Anchored); ok {
		return a.Anchor(s.zero)
	}
	return p
}
