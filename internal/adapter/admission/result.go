package admission

import (
	"time"

	"github.com/ral-limiter/ral/limits"
	"github.com/ral-limiter/ral/policy"
)

const reasons = int(limits.Unavailable) + 1

// Result is a verdict with the facts for the answer to the client.
type Result struct {
	limits.Verdict
	// Binding is the index of the limit that Limit names.
	Binding int
	// Violated has a bit for each limit that refused.
	Violated uint8
	// Quota is the quota of a single limit.
	Quota Quota
	// common is the Cost of limits without their own.
	common int64
}

// keepsTurn reports whether the quota's limit, this server's share of it or an engine's block decided
// the time of a refusal, and not a fleet's block or another fallback.
func (v *Result) keepsTurn(of *Quota) bool {
	return (v.Provenance.Exact() && v.Provenance.Err() == nil || v.Provenance.Guess()) && !of.replaced
}

// told sets the time until a refused request's turn.
func (v *Result) told(after time.Duration) { v.RetryAfter, v.Decision.RetryAfter = after, after }

// boundReset bounds a time that is only an upper bound: that of units in use.
func (v *Result) boundReset(guess time.Duration) {
	v.Decision.ResetAfter = min(v.Decision.ResetAfter, guess)
}

// reasonOf returns the reason of a refusal by the limit of q.
func (q *Quota) reasonOf(answer *limits.Answer) limits.Reason {
	switch {
	case q.ofAnotherFamily(&answer.Decision):
		return limits.Misconfigured
	case answer.RetryAfter == policy.Never:
		return limits.NeverAdmitted
	case answer.Source() == limits.SourceClosed:
		return limits.Unavailable
	}
	return limits.OverLimit
}

// ofAnotherFamily reports whether engine.PolicyFor chose a policy of another family, which the
// engine answers with a limit of 0.
func (q *Quota) ofAnotherFamily(d *policy.Decision) bool {
	return !d.Allowed && d.Limit == 0 && d.RetryAfter == policy.Never && q.Most != 0
}
