package httplimit

import (
	"net/http"
	"time"

	"github.com/ral-limiter/ral/internal/adapter/admission"
	"github.com/ral-limiter/ral/limits"
	"github.com/ral-limiter/ral/policy"
)

// Reason is the reason for which a request passes or is refused.
type Reason = admission.Reason

const (
	// Admitted: all limits had room.
	Admitted = admission.Admitted
	// Exempt: the client is in Options.Allow, or no limit applies to the request.
	Exempt = admission.Exempt
	// OverLimit: a limit has no room now. Status 429.
	OverLimit = admission.OverLimit
	// Denied: the client is in Options.Deny. Status 403.
	Denied = admission.Denied
	// NoKey: the request has no key for a limit that needs one, or no address although
	// there is Options.Deny. Status 400.
	NoKey = admission.NoKey
	// Cancelled: the request's context ended while it waited for its turn. Status 503.
	Cancelled = admission.Cancelled
	// NeverAdmitted: a limit never admits the request, however long the client waits, as
	// it costs more than the limit allows at once. Status 403, which asks clients not to
	// repeat the request, where 429 invites them to.
	NeverAdmitted = admission.NeverAdmitted
	// Misconfigured: the program is in error. Either Limit.PolicyFor or engine.PolicyFor chose a
	// policy of another family than that of Config.Policy, or one that the limiter does not
	// take, or Options.Cost or Limit.Cost returned less than 0. Status 500. Each limit that is in
	// error is logged once at level Error.
	Misconfigured = admission.Misconfigured
	// Unavailable: a limiter could not decide, and refuses: it cannot reach what keeps the
	// limit, as a fleet of FallbackClosed, or it is closed. Verdict.Provenance has the cause. Status
	// 503, with the problem type temporary-reduced-capacity.
	Unavailable = admission.Unavailable

	reasons = admission.Reasons
)

// Verdict is the decision about a request.
type Verdict struct {
	Reason Reason
	// Limit is the name of the limit that decided: of those that refused, the one with
	// the longest wait; of those that admitted, the one with the least share left. It is
	// "" if no limit decided.
	Limit string
	// Decision is the decision of that limit.
	Decision policy.Decision
	// RetryAfter is the time until all limits would admit the request, if the Reason is
	// OverLimit and no other request takes meanwhile. Clients are told whole seconds,
	// rounded up, unless it is a guess: see limits.Provenance. If one limit in process
	// has refused, limits over a fleet were not asked. It is policy.Never if the limits
	// never will.
	RetryAfter time.Duration
	// Provenance is how that decision was reached: in process, by Redis, on a lease, or by what is
	// configured for an outage. Of several limits that refused it is that of one which promises
	// nothing, if there is one: RetryAfter is a guess then. Its Cause is why a limiter could not
	// ask what keeps its limit, why it returned no answer or did not take the policy that
	// Limit.PolicyFor chose, or limits.ErrBlocked of a fleet's blocked key. It is nil if no limit
	// decided.
	Provenance *limits.Provenance
	// Cost is the number of units that the request asked for of that limit, or of limits
	// without a cost of their own.
	Cost int64
	// Waited is the time for which the request was delayed, or would have been without
	// Shadow.
	Waited time.Duration
	// Shadow reports whether the request passes in any case.
	Shadow bool
	// Shadowed has the names of the limits with Limit.Shadow that would have refused a
	// request that the others admit. It is nil if there are none.
	Shadowed []string
}

// verdictOf returns the verdict that a result is.
func verdictOf(v *result) Verdict {
	return Verdict{
		v.Reason, v.Limit, v.Decision, v.RetryAfter, v.Provenance, v.Cost, v.Waited, v.Shadow, v.Shadowed,
	}
}

// Refused reports whether the request is kept from the handler.
func (v *Verdict) Refused() bool { return !v.Shadow && !v.Reason.Passes() }

// Status returns the status that answers a request for that reason, or 0 if it passes.
func (v *Verdict) Status() int { return status(v.Reason) }

func status(r Reason) int {
	return [reasons]int{
		OverLimit:     http.StatusTooManyRequests,
		Denied:        http.StatusForbidden,
		NoKey:         http.StatusBadRequest,
		Cancelled:     http.StatusServiceUnavailable,
		NeverAdmitted: http.StatusForbidden,
		Misconfigured: http.StatusInternalServerError,
		Unavailable:   http.StatusServiceUnavailable,
	}[r]
}
