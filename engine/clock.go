package engine

import (
	"errors"
	"time"

	"github.com/ral-limiter/ral/internal/core/clock"
	"github.com/ral-limiter/ral/internal/core/decide"
	"github.com/ral-limiter/ral/policy"
)

type timeSource struct {
	// first is the earliest instant that read returns: 1, or where a saved engine left off.
	first policy.Instant
	// epoch is package time at first.
	epoch time.Time
	// zero is the wall time of instant 0.
	zero time.Time
	// now returns the instant; nil for package time's, which the cell reads itself.
	now func() policy.Instant
	// raw is now by Config.Clock, if any, also before first.
	raw func() policy.Instant
	// counter is the clock that now reads, if any.
	counter *clock.Clock
	// reads is counter, or packageTime, or nil for a Config.Clock.
	reads *clock.Clock
	// base is instant 0 by the counter, or by package time.
	base int64
}

// started is an instant of package time, before every epoch.
var started = time.Now()

// packageTime stands for package time in timeSource.reads.
var packageTime = new(clock.Clock)

// newTimeSource returns the clock of a configuration. The clock begins at the instant first; by the
// counter up to a microsecond off, and not before least. The clock ties instants to wall time once;
// otherwise only saving and loading read that.
func newTimeSource(config Config, first, least policy.Instant) timeSource {
	timeSource := chooseClock(config, first, least)
	begun := timeSource.first
	if timeSource.counter != nil {
		// The counter has advanced since first.
		begun = timeSource.now()
	}
	timeSource.epoch = time.Now()
	timeSource.zero = timeSource.epoch.Round(0).Add(-time.Duration(begun))
	if timeSource.reads = timeSource.counter; timeSource.counter == nil && timeSource.now == nil {
		timeSource.reads = packageTime
	}
	if timeSource.counter == nil {
		timeSource.base = int64(timeSource.epoch.Sub(started)) - int64(timeSource.first)
	}
	return timeSource
}

func (s timeSource) anchored(limit policy.Policy) policy.Policy { return decide.Anchor(limit, s.zero) }

func chooseClock(config Config, first, least policy.Instant) timeSource {
	source := timeSource{first: first}
	if config.Clock != nil {
		source.now, source.raw = beginAt(first, config.Clock)
		return source
	}
	source.counter = config.counter
	if source.counter == nil && !config.PackageTime && config.seam.Scheduler == nil {
		source.counter = clock.Shared()
	}
	if counter := source.counter; counter != nil {
		// No later instant is below first: it is no further behind than this one is ahead. The lead
		// is taken off first, so that restarts do not accumulate it.
		const lead = policy.Instant(clock.Late + clock.Early)
		first = max(first-lead, least)
		base := counter.Now() - int64(lead) - int64(first)
		source.first, source.base = first, base
		source.now = func() policy.Instant { return max(policy.Instant(counter.Now()-base), first) }
	}
	return source
}

// moment is a reading of a clock that engines share in a call. The zero moment has not been read.
type moment struct {
	// clock is timeSource.reads.
	clock *clock.Clock
	ticks int64
}

// read returns the instant of a moment. read reads the clock if the moment is of another, or a
// Config.Clock.
func (s *timeSource) read(moment *moment) policy.Instant {
	if moment.clock != s.reads || moment.clock == nil {
		return s.readAnew(moment)
	}
	return max(policy.Instant(moment.ticks-s.base), s.first)
}

func (s *timeSource) readAnew(moment *moment) policy.Instant {
	switch moment.clock = s.reads; {
	case s.reads == nil:
		return s.now()
	case s.counter == nil:
		moment.ticks = int64(time.Since(started))
	default:
		moment.ticks = s.counter.Now()
	}
	return max(policy.Instant(moment.ticks-s.base), s.first)
}

func (s timeSource) name() string {
	switch {
	case s.counter != nil && s.counter.Counts():
		return "counter"
	case s.counter == nil && s.now != nil:
		return "Config.Clock"
	}
	return "package time"
}

// beginAt returns a clock that begins at the instant first and never returns an earlier instant,
// and the same without that bound.
func beginAt(first policy.Instant, clock func() policy.Instant) (now, raw func() policy.Instant) {
	begun := clock()
	return func() policy.Instant { return max(clock()-begun+first, first) },
		func() policy.Instant { return clock() - begun + first }
}

// lasting is the instant from which time may stand still for a limit: 9 years.
const lasting = policy.Instant(1) << 58

var errClock = errors.New("ral: Config.Clock is before the engine's first instant, or more than 9 years after it: no time passes there. Was it set after New?")

func (s *timeSource) health() error {
	if s.raw == nil {
		return nil
	}
	if now := s.raw(); now < s.first || now > lasting {
		return errClock
	}
	return nil
}
