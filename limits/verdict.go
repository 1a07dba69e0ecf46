package limits

import (
	"time"

	"github.com/ral-limiter/ral/policy"
)

// Reason is the reason for which a request, or a remote call, passes or is refused by its limits.
// httplimit.Status and rpclimit.Verdict's Code tell how each is answered.
type Reason int

const (
	// Admitted: all limits had room.
	Admitted Reason = iota
	// Exempt: no limit applies to the request, as the options or the lack of a key have it.
	Exempt
	// OverLimit: a limit has no room now.
	OverLimit
	// Denied: the client is in httplimit.Options.Deny.
	Denied
	// NoKey: the request has no key for a limit that needs one, or no address although
	// there is httplimit.Options.Deny.
	NoKey
	// Cancelled: the request's context ended while it waited for its turn.
	Cancelled
	// NeverAdmitted: a limit never admits the request, however long the client waits, as
	// it costs more than the limit allows at once.
	NeverAdmitted
	// Misconfigured: the program is in error. Either PolicyFor of the limit or of its engine
	// chose a policy of another family than that of Config.Policy, or one that the limiter does
	// not take, or a Cost returned less than 0, or a function of the program panicked at a tap.
	// Each limit that is in error is logged once at level Error.
	Misconfigured
	// Unavailable: a limiter could not decide, and refuses: it cannot reach what keeps the
	// limit, as a fleet of FallbackClosed, or it is closed. Verdict.Provenance has the cause.
	Unavailable

	reasons = int(Unavailable) + 1
)

// String returns the reason in lower case.
func (r Reason) String() string {
	if r < 0 || int(r) >= reasons {
		return "unknown"
	}
	return [reasons]string{
		"admitted", "exempt", "over limit", "denied", "keyless", "cancelled", "never admitted", "misconfigured", "unavailable",
	}[r]
}

// Passes reports whether a request with that reason passes.
func (r Reason) Passes() bool { return r == Admitted || r == Exempt }

// WhenNoKey chooses the answer to a request for which a limit finds no key.
type WhenNoKey int

const (
	// Refuse refuses it with the reason NoKey. The default.
	Refuse WhenNoKey = iota
	// Skip does not apply the limit to it. Others may apply.
	Skip
	// Share counts all such requests as one client.
	Share
)

// Verdict is the decision about a request or a remote call under all its limits.
type Verdict struct {
	Reason Reason
	// Limit is the name of the limit that decided: of those that refused, the one with
	// the longest wait; of those that admitted, the one with the least share left. It is
	// "" if no limit decided.
	Limit string
	// Decision is the decision of that limit.
	Decision policy.Decision
	// RetryAfter is the time until all limits would admit the request, if the Reason is
	// OverLimit and no other request takes meanwhile. It is a guess, which clients are not
	// told, unless Provenance is Exact. If one limit in process has refused, limits over a
	// fleet were not asked. It is policy.Never if the limits never will.
	RetryAfter time.Duration
	// Provenance tells how that decision was reached: in process, by Redis, on a lease, or as
	// configured for an outage. If several limits refused and one of them is not exact, it is
	// that one's. Its Err is the reason why a limiter could not ask what keeps its limit, why it
	// returned no answer or did not take the policy that PolicyFor chose, or ErrBlocked of a
	// fleet's blocked key. It is nil if no limit decided.
	Provenance *Provenance
	// Cost is the number of units that the request asked for of that limit, or of limits
	// without a cost of their own.
	Cost int64
	// Waited is the time for which the request was delayed, or would have been without
	// Shadow.
	Waited time.Duration
	// Shadow reports whether the request passes in any case.
	Shadow bool
	// Shadowed has the names of the limits in shadow mode that would have refused a
	// request that the others admit. It is nil if there are none.
	Shadowed []string
}

// Refused reports whether the request is kept from the handler.
func (v *Verdict) Refused() bool { return !v.Shadow && !v.Reason.Passes() }
