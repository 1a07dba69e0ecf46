package httplimit

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/ral-limiter/ral/engine"
	"github.com/ral-limiter/ral/limits"
)

// Stats is a snapshot of a middleware's counters, not taken at one instant.
// Under Options.Shadow they count the decisions without their effect.
type Stats struct {
	// Admitted counts the requests within their limits.
	Admitted uint64
	// Exempt counts the requests passed by Options.Allow, or because no limit applied.
	Exempt uint64
	// OverLimit counts the requests refused by a limit that had no room.
	OverLimit uint64
	// Denied counts the requests refused by Options.Deny.
	Denied uint64
	// NoKey counts the requests refused because they had no key.
	NoKey uint64
	// Cancelled counts the requests that ended before the decision, or during their wait.
	Cancelled uint64
	// NeverAdmitted counts the requests refused because a limit never admits them.
	NeverAdmitted uint64
	// Misconfigured counts the requests refused because of an error of the program: see
	// limits.Misconfigured.
	Misconfigured uint64
	// Unavailable counts the requests refused because a limiter could not decide.
	Unavailable uint64
	// Delayed counts the requests of any result that waited.
	Delayed uint64
	// DelayTime is the sum of their waits.
	DelayTime time.Duration
	// Unsettled counts the requests whose Charge may not count, because a remote limiter did not say.
	Unsettled uint64
	// Shadow reports whether refusals are only counted.
	Shadow bool

	// Shadowed counts the requests that each limit with Limit.Shadow beside others would have
	// refused. It is nil if there are no such limits.
	Shadowed map[string]uint64
	// ShadowFailed counts the requests that such a limit could not decide or charge. Its Limiter
	// returned an error, its Cost was below 0, or a function or the Limiter panicked.
	ShadowFailed map[string]uint64

	// Limits has each engine's counters by the limit's name.
	Limits map[string]engine.Stats
}

// Stats returns the counters of the middleware and of its engines.
func (m *Middleware) Stats() Stats {
	counters := &m.counters
	stats := Stats{
		Admitted:      counters.By(limits.Admitted),
		Exempt:        counters.By(limits.Exempt),
		OverLimit:     counters.By(limits.OverLimit),
		Denied:        counters.By(limits.Denied),
		NoKey:         counters.By(limits.NoKey),
		Cancelled:     counters.By(limits.Cancelled),
		NeverAdmitted: counters.By(limits.NeverAdmitted),
		Misconfigured: counters.By(limits.Misconfigured),
		Unavailable:   counters.By(limits.Unavailable),
		Unsettled:     counters.Unsettled(),
		Shadow:        m.control.Shadow(),
		Limits:        make(map[string]engine.Stats, len(m.limiters)),
	}
	stats.Delayed, stats.DelayTime = counters.Delayed()
	stats.Shadowed, stats.ShadowFailed = m.control.Shadowed(counters)
	for _, checked := range m.limiters {
		if of, ok := checked.Stats(); ok {
			stats.Limits[checked.Of().Name] = of
		}
	}
	return stats
}

// Var returns the Stats as a variable for expvar.Publish: its String method returns the current
// counters as JSON. This package does not import expvar, which registers /debug/vars on
// http.DefaultServeMux.
func (m *Middleware) Var() fmt.Stringer { return statsVar{m} }

type statsVar struct{ m *Middleware }

func (v statsVar) String() string {
	text, err := json.Marshal(v.m.Stats())
	if err != nil {
		// The line is not reached, as every field of Stats has a JSON form.
		return "null"
	}
	return string(text)
}
