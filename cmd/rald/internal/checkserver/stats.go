package checkserver

import (
	"net/http"
	"sync/atomic"

	"github.com/ral-limiter/ral/limits"
)

// Stats are the counters of a Door since New, and its rules.
type Stats struct {
	Passed      uint64 // requests admitted by limits
	Refused     uint64 // requests refused by limits
	WouldRefuse uint64 // passed requests that a limit in shadow would have refused
	Unlimited   uint64 // requests without a rule, or with an unlimited rule
	Undecided   uint64 // requests with a faulty path or proxy
	Rules       int    // in force
}

// Stats returns the counters, read one by one while requests go on.
func (d *Door) Stats() Stats {
	c := &d.counts
	return Stats{
		Passed: c.passed.Load(), Refused: c.refused.Load(), WouldRefuse: c.wouldRefuse.Load(),
		Unlimited: c.unlimited.Load(), Undecided: c.undecided.Load(), Rules: d.table.Load().rules.Len(),
	}
}

type counts struct{ passed, refused, wouldRefuse, unlimited, undecided atomic.Uint64 } // since New

func (c *counts) count(_ *http.Request, v limits.Verdict) {
	if v.Refused() {
		c.refused.Add(1)
		return
	}
	c.passed.Add(1)
	if len(v.Shadowed) > 0 || v.Shadow && v.Reason != limits.Admitted && v.Reason != limits.Exempt {
		c.wouldRefuse.Add(1)
	}
}
