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

// answerKey is the key of an answer's http.Header in the request's context.
type answerKey struct{}

// count counts a decision, and tells it in a field for access logs, like nginx's $limit_req_status.
func (c *counts) count(r *http.Request, v limits.Verdict) {
	status := "passed"
	switch {
	case v.Refused():
		status = "limited"
		c.refused.Add(1)
	case len(v.Shadowed) > 0 || v.Shadow && v.Reason != limits.Admitted && v.Reason != limits.Exempt:
		status = "shadow"
		c.wouldRefuse.Add(1)
		fallthrough
	default:
		c.passed.Add(1)
	}
	r.Context().Value(answerKey{}).(http.Header).Set("X-RateLimit-Status", status)
}
