package httplimit

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/ral-limiter/ral/engine"
	"github.com/ral-limiter/ral/limits"
)

// Stats is a snapshot of a middleware's counters. They are read one after the other while
// requests go on. Under Options.Shadow they count what would have happened.
type Stats struct {
	Admitted      uint64        // requests within their limits
	Exempt        uint64        // passed by Options.Allow, or because no limit applied
	OverLimit     uint64        // refused by a limit that had no room
	Denied        uint64        // refused by Options.Deny
	NoKey         uint64        // refused because they had no key
	Cancelled     uint64        // ended while they waited for their turn
	NeverAdmitted uint64        // refused because a limit never admits them
	Misconfigured uint64        // refused because of an error of the program: see limits.Misconfigured
	Unavailable   uint64        // refused because a limiter could not decide
	Delayed       uint64        // of all these, those that waited
	DelayTime     time.Duration // the sum of how long each of those waited
	Unsettled     uint64        // requests whose Charge may not count: a remote limiter did not say
	Shadow        bool          // whether refusals are only counted

	// Shadowed counts, for each limit with Limit.Shadow beside others, the requests that it
	// would have refused. It is nil if there are none.
	Shadowed map[string]uint64
	// ShadowFailed counts, for each of these limits, the requests for which it could not be
	// decided or charged: a function of it panicked, or its Limiter panicked or returned an
	// error, or its Cost was below 0.
	ShadowFailed map[string]uint64

	// Limits has the counters of each limit's engine, by the limit's name. Limiters of other
	// kinds have counters of their own.
	Limits map[string]engine.Stats
}

// Stats returns the counters of the middleware and of its engines.
func (m *Middleware) Stats() Stats {
	c := &m.counters
	s := Stats{
		Admitted:      c.By(limits.Admitted),
		Exempt:        c.By(limits.Exempt),
		OverLimit:     c.By(limits.OverLimit),
		Denied:        c.By(limits.Denied),
		NoKey:         c.By(limits.NoKey),
		Cancelled:     c.By(limits.Cancelled),
		NeverAdmitted: c.By(limits.NeverAdmitted),
		Misconfigured: c.By(limits.Misconfigured),
		Unavailable:   c.By(limits.Unavailable),
		Unsettled:     c.Unsettled(),
		Shadow:        m.control.Shadow(),
		Limits:        make(map[string]engine.Stats, len(m.limiters)),
	}
	s.Delayed, s.DelayTime = c.Delayed()
	for i, l := range m.limiters {
		name := l.Of().Name
		if of, ok := l.Stats(); ok {
			s.Limits[name] = of
		}
		if m.control.Tried(i) {
			if s.Shadowed == nil {
				s.Shadowed, s.ShadowFailed = map[string]uint64{}, map[string]uint64{}
			}
			s.Shadowed[name], s.ShadowFailed[name] = c.Shadowed(i)
		}
	}
	return s
}

// Var returns the Stats as a variable for expvar.Publish. Its String method returns the
// counters of that moment as JSON.
//
// This package does not import expvar, which registers /debug/vars on
// http.DefaultServeMux in every program that imports it.
func (m *Middleware) Var() fmt.Stringer { return statsVar{m} }

type statsVar struct{ m *Middleware }

func (v statsVar) String() string {
	text, err := json.Marshal(v.m.Stats())
	if err != nil {
		return "null" // unreachable: every field of Stats has a JSON form
	}
	return string(text)
}
