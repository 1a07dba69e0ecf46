package admission

import (
	"time"

	"github.com/ral-limiter/ral/limits"
	"github.com/ral-limiter/ral/policy"
)

// Reason is the reason for which a request passes or is refused. Packages in front export it
// under the same name.
type Reason int

// See the constants of httplimit.
const (
	Admitted Reason = iota
	Exempt
	OverLimit
	Denied
	NoKey
	Cancelled
	NeverAdmitted
	Misconfigured
	Unavailable

	Reasons = int(Unavailable) + 1
)

// String returns the reason in lower case.
func (r Reason) String() string {
	if r < 0 || int(r) >= Reasons {
		return "unknown"
	}
	return [Reasons]string{
		"admitted", "exempt", "over limit", "denied", "keyless", "cancelled", "never admitted", "misconfigured", "unavailable",
	}[r]
}

// Passes reports whether a request with that reason passes.
func (r Reason) Passes() bool { return r == Admitted || r == Exempt }

// Result is the decision about a request: see httplimit.Verdict for the fields of that name.
type Result struct {
	Reason     Reason
	Limit      string
	Decision   policy.Decision
	RetryAfter time.Duration
	Provenance *limits.Provenance
	Cost       int64
	Waited     time.Duration
	Shadow     bool
	Shadowed   []string

	Binding  int   // the index of the limit that Limit names
	Violated uint8 // a bit for each limit that refused
	Quota    Quota // of a single limit
	common   int64 // the Cost of limits that have none of their own
}

// Refused reports whether the request is kept from the handler.
func (v *Result) Refused() bool { return !v.Shadow && !v.Reason.Passes() }

// reasonOf returns the reason of a refusal by the limit that q was made from.
func (q *Quota) reasonOf(a *limits.Answer) Reason {
	switch {
	case q.ofAnotherFamily(&a.Decision):
		return Misconfigured
	case a.RetryAfter == policy.Never:
		return NeverAdmitted
	case a.Source() == limits.SourceClosed:
		return Unavailable
	}
	return OverLimit
}

// ofAnotherFamily reports whether the engine refused because engine.PolicyFor chose a
// policy of another family for the key. It answers with a limit of 0 then, whatever the
// policy's own is.
func (q *Quota) ofAnotherFamily(d *policy.Decision) bool {
	return !d.Allowed && d.Limit == 0 && d.RetryAfter == policy.Never && q.Most != 0
}
