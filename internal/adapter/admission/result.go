package admission

import (
	"github.com/ral-limiter/ral/limits"
	"github.com/ral-limiter/ral/policy"
)

// reasons is the number of reasons.
const reasons = int(limits.Unavailable) + 1

// Result is a verdict with the facts that the answer to the client is made of.
type Result struct {
	limits.Verdict
	Binding  int   // the index of the limit that Limit names
	Violated uint8 // a bit for each limit that refused
	Quota    Quota // of a single limit
	common   int64 // the Cost of limits that have none of their own
}

// reasonOf returns the reason of a refusal by the limit that q was made from.
func (q *Quota) reasonOf(a *limits.Answer) limits.Reason {
	switch {
	case q.ofAnotherFamily(&a.Decision):
		return limits.Misconfigured
	case a.RetryAfter == policy.Never:
		return limits.NeverAdmitted
	case a.Source() == limits.SourceClosed:
		return limits.Unavailable
	}
	return limits.OverLimit
}

// ofAnotherFamily reports whether the engine refused because engine.PolicyFor chose a
// policy of another family for the key. It answers with a limit of 0 then, whatever the
// policy's own is.
func (q *Quota) ofAnotherFamily(d *policy.Decision) bool {
	return !d.Allowed && d.Limit == 0 && d.RetryAfter == policy.Never && q.Most != 0
}
