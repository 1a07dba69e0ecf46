package rpclimit

import (
	"time"

	"github.com/ral-limiter/ral/engine"
	"github.com/ral-limiter/ral/internal/adapter/admission"
	"github.com/ral-limiter/ral/limits"
)

// Stats is a snapshot of the counters of a Guard, not taken at one instant. Under
// Options.Shadow the counters count the decisions without their effect.
type Stats struct {
	// Admitted counts the calls within their limits.
	Admitted uint64
	// Exempt counts the calls without a limit.
	Exempt uint64
	// OverLimit counts the calls refused by a limit that had no room.
	OverLimit uint64
	// NoKey counts the calls refused because they had no key.
	NoKey uint64
	// Cancelled counts the calls that ended during the wait for their turn, or before.
	Cancelled uint64
	// NeverAdmitted counts the calls refused that a limit never admits.
	NeverAdmitted uint64
	// Misconfigured counts the calls refused because of an error of the program: see limits.Misconfigured.
	Misconfigured uint64
	// Unavailable counts the calls refused because a limiter could not decide.
	Unavailable uint64
	// Messages counts the messages of streams that a limit decided about.
	Messages MessageStats
	// Delayed counts the calls and messages that waited.
	Delayed uint64
	// DelayTime is the sum of their waits.
	DelayTime time.Duration
	// Unsettled counts the calls whose Charge may not count, because a remote limiter did not say.
	Unsettled uint64
	// Shadow reports whether refusals are only counted.
	Shadow bool

	// Shadowed counts the calls and messages that each limit with Limit.Shadow beside others would
	// have refused. Shadowed is nil if there are no such limits.
	Shadowed map[string]uint64
	// ShadowFailed counts the calls and messages that such a limit could not decide or charge.
	ShadowFailed map[string]uint64

	// Limits has each engine's counters by the limit's name.
	Limits map[string]engine.Stats
}

// MessageStats counts messages of streams.
type MessageStats struct {
	// Admitted counts the messages that are within the limits, or exempt.
	Admitted uint64
	// Refused counts the messages refused for any reason.
	Refused uint64
}

// Stats returns the counters of the limits and of their engines.
func (g *Guard) Stats() Stats {
	counters := &g.calls
	s := Stats{
		Admitted:      counters.By(limits.Admitted),
		Exempt:        counters.By(limits.Exempt),
		OverLimit:     counters.By(limits.OverLimit),
		NoKey:         counters.By(limits.NoKey),
		Cancelled:     counters.By(limits.Cancelled),
		NeverAdmitted: counters.By(limits.NeverAdmitted),
		Misconfigured: counters.By(limits.Misconfigured),
		Unavailable:   counters.By(limits.Unavailable),
		Unsettled:     counters.Unsettled(),
		Shadow:        g.shadow(),
		Limits:        make(map[string]engine.Stats, len(g.limits)),
	}
	for reason := limits.Admitted; reason <= limits.Unavailable; reason++ {
		if n := g.messages.By(reason); reason.Passes() {
			s.Messages.Admitted += n
		} else {
			s.Messages.Refused += n
		}
	}
	for _, counters := range []*admission.Counters{&g.calls, &g.messages} {
		n, all := counters.Delayed()
		s.Delayed, s.DelayTime = s.Delayed+n, s.DelayTime+all
	}
	s.Shadowed, s.ShadowFailed = g.whole.Shadowed(&g.calls, &g.messages)
	for i := range g.limits {
		if stats, ok := g.limits[i].Stats(); ok {
			s.Limits[g.limits[i].Of().Name] = stats
		}
	}
	return s
}

func (g *Guard) shadow() bool { return g.whole.Shadow() }
