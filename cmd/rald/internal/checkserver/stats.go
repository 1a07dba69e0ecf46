package checkserver

import (
	"net/http"
	"sync/atomic"

	"github.com/ral-limiter/ral/limits"
)

// Stats are the counters of a Door since it was made, and its rules.
type Stats struct {
	Passed      uint64 // requests that limits admitted
	Refused     uint64 // requests that limits refused
	WouldRefuse uint64 // of those that passed, requests that a limit in shadow would have refused
	Unlimited   uint64 // requests without a rule, or with one that is unlimited
	Undecided   uint64 // requests whose path, or whose proxy, is at fault
	Rules       int    // in force
}

// Stats returns the counters of the door. They are read one after the other while requests go
// on.
func (d *Door) Stats() Stats {
	c := &d.counts
	return Stats{
		Passed: c.passed.Load(), Refused: c.refused.Load(), WouldRefuse: c.wouldRefuse.Load(),
		Unlimited: c.unlimited.Load(), Undecided: c.undecided.Load(), Rules: d.table.Load().rules.Len(),
	}
}

// counts are the counters of a door. They go on over Set.
type counts struct{ passed, refused, wouldRefuse, unlimited, undecided atomic.Uint64 }

// count counts a request that has limits.
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
