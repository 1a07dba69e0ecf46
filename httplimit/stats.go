package httplimit

import (
	"encoding/json"
	"fmt"
	"sync/atomic"

	"github.com/ral-limiter/ral/engine"
)

// Stats is a snapshot of a middleware's counters, read one after the other while
// requests go on. Under Options.Shadow they tell what would have been.
type Stats struct {
	Admitted  uint64 // requests within their limits
	Exempt    uint64 // let pass by Options.Allow, or because no limit applied to them
	OverLimit uint64 // refused by a limit
	Denied    uint64 // refused by Options.Deny
	Keyless   uint64 // refused as they had no key
	Cancelled uint64 // ended while they waited for their turn
	Delayed   uint64 // of all these, those that had to wait
	Shadow    bool   // whether nothing is really refused

	Limits map[string]engine.Stats // of each limit's engine, by name
}

type counters struct {
	by      [reasons]atomic.Uint64
	delayed atomic.Uint64
}

func (c *counters) count(v *ruling) {
	c.by[v.Reason].Add(1)
	if v.Waited > 0 {
		c.delayed.Add(1)
	}
}

// Stats returns the middleware's counters and those of its engines.
func (m *Middleware) Stats() Stats {
	c := &m.counters
	s := Stats{
		Admitted:  c.by[Admitted].Load(),
		Exempt:    c.by[Exempt].Load(),
		OverLimit: c.by[OverLimit].Load(),
		Denied:    c.by[Denied].Load(),
		Keyless:   c.by[Keyless].Load(),
		Cancelled: c.by[Cancelled].Load(),
		Delayed:   c.delayed.Load(),
		Shadow:    m.options.Shadow,
		Limits:    make(map[string]engine.Stats, len(m.gates)),
	}
	for _, g := range m.gates {
		s.Limits[g.title()] = g.stats()
	}
	return s
}

// Var returns the Stats as a variable for expvar.Publish. Its String method gives them as
// JSON, as they are when it is called.
//
// This package does not import expvar: who does has /debug/vars on
// http.DefaultServeMux, wanted or not.
func (m *Middleware) Var() fmt.Stringer { return published{m} }

type published struct{ m *Middleware }

func (p published) String() string {
	text, err := json.Marshal(p.m.Stats())
	if err != nil {
		return "null" // there is nothing in Stats that JSON has no form for
	}
	return string(text)
}
