package rpclimit

import (
	"time"

	"github.com/ral-limiter/ral/engine"
	"github.com/ral-limiter/ral/internal/adapter/admission"
	"github.com/ral-limiter/ral/limits"
)

// Stats is a snapshot of the counters of a Guard, not taken at one instant. Under
// Options.Shadow they count the decisions without their effect.
type Stats struct {
	Admitted      uint64        // calls within their limits
	Exempt        uint64        // calls without a limit
	OverLimit     uint64        // calls refused by a limit that had no room
	NoKey         uint64        // calls refused because they had no key
	Cancelled     uint64        // calls that ended while they waited for their turn, or before
	NeverAdmitted uint64        // calls refused because a limit never admits them
	Misconfigured uint64        // calls refused because of an error of the program: see limits.Misconfigured
	Unavailable   uint64        // calls refused because a limiter could not decide
	Messages      MessageStats  // messages of streams that a limit decided about
	Delayed       uint64        // calls and messages that waited
	DelayTime     time.Duration // the sum of their waits
	Unsettled     uint64        // calls whose Charge may not count: a remote limiter did not say
	Shadow        bool          // whether refusals are only counted

	// Shadowed counts the calls and messages that each limit with Limit.Shadow beside others would
	// have refused. It is nil if there are no such limits.
	Shadowed map[string]uint64
	// ShadowFailed counts the calls and messages that such a limit could not decide or charge.
	ShadowFailed map[string]uint64

	// Limits has each engine's counters by the limit's name.
	Limits map[string]engine.Stats
}

// MessageStats counts messages of streams.
type MessageStats struct {
	Admitted uint64 // within the limits, or exempt from them
	Refused  uint64 // for any reason
}

// Stats returns the counters of the limits and of their engines.
func (g *Guard) Stats() Stats {
	c := &g.calls
	s := Stats{
		Admitted:      c.By(limits.Admitted),
		Exempt:        c.By(limits.Exempt),
		OverLimit:     c.By(limits.OverLimit),
		NoKey:         c.By(limits.NoKey),
		Cancelled:     c.By(limits.Cancelled),
		NeverAdmitted: c.By(limits.NeverAdmitted),
		Misconfigured: c.By(limits.Misconfigured),
		Unavailable:   c.By(limits.Unavailable),
		Unsettled:     c.Unsettled(),
		Shadow:        g.shadow(),
		Limits:        make(map[string]engine.Stats, len(g.limits)),
	}
	for r := limits.Admitted; r <= limits.Unavailable; r++ {
		if n := g.messages.By(r); r.Passes() {
			s.Messages.Admitted += n
		} else {
			s.Messages.Refused += n
		}
	}
	for _, c := range []*admission.Counters{&g.calls, &g.messages} {
		n, all := c.Delayed()
		s.Delayed, s.DelayTime = s.Delayed+n, s.DelayTime+all
	}
	for i := range g.limits {
		of := &g.limits[i]
		name := of.Of().Name
		if stats, ok := of.Stats(); ok {
			s.Limits[name] = stats
		}
		if !g.whole.Tried(i) {
			continue
		}
		if s.Shadowed == nil {
			s.Shadowed, s.ShadowFailed = map[string]uint64{}, map[string]uint64{}
		}
		for _, c := range []*admission.Counters{&g.calls, &g.messages} {
			refused, failed := c.Shadowed(i)
			s.Shadowed[name] += refused
			s.ShadowFailed[name] += failed
		}
	}
	return s
}

func (g *Guard) shadow() bool { return g.whole.Shadow() }
