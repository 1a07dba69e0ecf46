package limits

import (
	"time"

	"github.com/ral-limiter/ral/policy"
)

// Reason says why a request or remote call passes or is refused: see httplimit.Status and
// rpclimit.Verdict.Code.
type Reason int

const (
	// Admitted: all limits had room.
	Admitted Reason = iota
	// Exempt: no limit applies, by the options or for lack of a key.
	Exempt
	// OverLimit: a limit has no room now.
	OverLimit
	// Denied: the client is in httplimit.Options.Deny.
	Denied
	// NoKey: the request lacks the key of a limit, or the address that httplimit.Options.Deny needs.
	NoKey
	// Cancelled: the request's context ended before the decision, or during the wait.
	Cancelled
	// NeverAdmitted: the request costs more than a limit ever allows at once.
	NeverAdmitted
	// Misconfigured: the program is in error. A PolicyFor, of the limit or of the engine, may have
	// returned a policy of another family than Config.Policy, or one that the limiter does not take. Or
	// a Cost returned less than 0, or a function panicked at a gRPC tap. Each such limit is logged once
	// at level Error.
	Misconfigured
	// Unavailable: a limiter cannot decide, and refuses. It is closed, or it cannot reach Redis or
	// another keeper of its limit, as a fleet with FallbackClosed. Verdict.Provenance has the cause.
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
	// Refuse refuses the request with the reason NoKey. It is the default.
	Refuse WhenNoKey = iota
	// Skip does not apply the limit to the request. Other limits may apply.
	Skip
	// Share counts all such requests as the same client.
	Share
)

// Verdict is the decision about a request or a remote call under all its limits.
type Verdict struct {
	Reason Reason
	// Limit is the name of the limit that decided, or "". If limits refuse, that is the refusing limit
	// with the longest wait, and otherwise the limit with the least share left.
	Limit string
	// Decision is the decision of that limit.
	Decision policy.Decision
	// RetryAfter is the time until all limits would admit the request, if the Reason is OverLimit
	// and no other request takes meanwhile. Under Spread it is the time until the turn of the request. RetryAfter is policy.Never
	// if some limit never will. After a refusal in process, limits over a fleet were not asked.
	// Unless Provenance is Exact, RetryAfter is a guess, and must not be told to clients.
	RetryAfter time.Duration
	// Provenance tells how the decision was reached. It is nil if no limit decided. If several limits
	// refused and one of them is not exact, Provenance is that limit's.
	Provenance *Provenance
	// Cost is the number of units asked of the limit that decided, or of the limits without a cost of their own.
	Cost int64
	// Waited is the delay of the request, or the delay that it would have had without Shadow.
	Waited time.Duration
	// Shadow reports whether the request passes in any case.
	Shadow bool
	// Shadowed names the limits in shadow mode that would refuse a request that the others admit.
	Shadowed []string
}

// Refused reports whether the request is kept from the handler.
func (v *Verdict) Refused() bool { return !v.Shadow && !v.Reason.Passes() }
