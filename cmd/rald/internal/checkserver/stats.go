package checkserver

import (
	"net/http"
	"sync/atomic"

	"github.com/ral-limiter/ral/limits"
)

// Stats are the counters of a Door since New.
type Stats struct {
	// Passed counts the requests admitted by limits.
	Passed atomic.Uint64
	// Refused counts the requests refused by limits.
	Refused atomic.Uint64
	// WouldRefuse counts the passed requests that a limit in shadow would have refused.
	WouldRefuse atomic.Uint64
	// Unlimited counts the requests without a rule, or with an unlimited rule.
	Unlimited atomic.Uint64
	// Undecided counts the requests with a faulty path or proxy.
	Undecided atomic.Uint64
}

// Stats returns the counters, which requests go on to increase.
func (d *Door) Stats() *Stats { return &d.stats }

// Rules returns the rules in force.
func (d *Door) Rules() *Rules { return d.table.Load().rules }

// answerKey is the key of an answer's http.Header in the request's context.
type answerKey struct{}

// count counts a decision, and tells it in a field for access logs, like nginx's $limit_req_status.
func (c *Stats) count(request *http.Request, verdict limits.Verdict) {
	status := "passed"
	switch {
	case verdict.Refused():
		status = "limited"
		c.Refused.Add(1)
	case len(verdict.Shadowed) > 0 || verdict.Shadow && verdict.Reason != limits.Admitted && verdict.Reason != limits.Exempt:
		status = "shadow"
		c.WouldRefuse.Add(1)
		fallthrough
	default:
		c.Passed.Add(1)
	}
	request.Context().Value(answerKey{}).(http.Header).Set("X-RateLimit-Status", status)
}
