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
	// Quota is the quota of the limit, if TakeOne decided under a single limit.
	Quota Quota
	// common is the cost under limits that have no Cost of their own.
	common int64
}

// keepsTurn reports whether a refused request may be told a turn. It may if the quota's limit, this server's
// share of the limit, or an engine's block decided the time of the refusal. It may not if a fleet's block or
// another fallback did, or if the limit was replaced meanwhile.
func (v *Result) keepsTurn(of *Quota) bool {
	return (v.Provenance.Exact() && v.Provenance.Err() == nil || v.Provenance.Guess()) && !of.replaced
}

// setRetryAfter sets the time after which a refused request is told to come back.
func (v *Result) setRetryAfter(after time.Duration) {
	v.RetryAfter, v.Decision.RetryAfter = after, after
}

// boundReset bounds ResetAfter by guess, under a limit of units in use. Such a limit knows only an upper bound.
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
func (q *Quota) ofAnotherFamily(decision *policy.Decision) bool {
	return !decision.Allowed && decision.Limit == 0 && decision.RetryAfter == policy.Never && q.Most != 0
}
