package engine

import (
	"github.com/ral-limiter/ral/internal/clock"
	"github.com/ral-limiter/ral/policy"
)

// timeSource is the clock by which an engine decides.
type timeSource struct {
	// now returns the instant. nil is package time's, which the cell reads itself.
	now     func() policy.Instant
	counter *clock.Clock // that now reads, if any
}

// newTimeSource returns the clock that a configuration asks for.
func newTimeSource(config Config) timeSource {
	if config.Clock != nil {
		return timeSource{now: fromOne(config.Clock)}
	}
	counter := config.counter
	if counter == nil && !config.PackageTime && config.seam.Scheduler == nil {
		counter = clock.Shared()
	}
	if counter == nil {
		return timeSource{}
	}
	// No later instant is below 1: it is no further behind than this one is ahead.
	base := counter.Now() - int64(clock.Late+clock.Early) - 1
	return timeSource{
		now:     func() policy.Instant { return max(policy.Instant(counter.Now()-base), 1) },
		counter: counter,
	}
}

// name returns what Stats calls the clock.
func (s timeSource) name() string {
	switch {
	case s.counter != nil && s.counter.Counts():
		return "counter"
	case s.counter == nil && s.now != nil:
		return "Config.Clock"
	}
	return "package time"
}

// fromOne returns a clock that begins at instant 1 and never returns an earlier one.
func fromOne(clock func() policy.Instant) func() policy.Instant {
	first := clock()
	return func() policy.Instant { return max(clock()-first+1, 1) }
}
