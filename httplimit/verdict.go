package httplimit

import (
	"net/http"
	"time"

	"github.com/ral-limiter/ral/policy"
)

// Reason is why a request passes or does not.
type Reason int

const (
	// Admitted: all limits had room.
	Admitted Reason = iota
	// Exempt: it comes from Options.Allow, or no limit applied to it.
	Exempt
	// OverLimit: a limit had no room. Status 429.
	OverLimit
	// Denied: it comes from Options.Deny. Status 403.
	Denied
	// Keyless: it has no key for a limit that needs one, or no address where there is
	// Options.Deny. Status 400.
	Keyless
	// Cancelled: its context ended while it waited for its turn. Status 503.
	Cancelled

	reasons = int(Cancelled) + 1
)

// String returns the reason in lower case.
func (r Reason) String() string {
	if r < 0 || int(r) >= reasons {
		return "unknown"
	}
	return [reasons]string{"admitted", "exempt", "over limit", "denied", "keyless", "cancelled"}[r]
}

// Verdict is what was decided about a request.
type Verdict struct {
	Reason Reason
	// Limit is the name of the limit that decided: of those that refused the one that
	// has to be waited for longest, of those that admitted the one with the least share
	// left. "" if none did.
	Limit string
	// Decision is that limit's.
	Decision policy.Decision
	// RetryAfter is when all limits would admit the request, if it is OverLimit and
	// nobody else takes; policy.Never if they never will. Clients are told it in whole
	// seconds, rounded up.
	RetryAfter time.Duration
	// Cost is what the request was asked to take.
	Cost int64
	// Waited is how long it was delayed, or would have been but for Shadow.
	Waited time.Duration
	// Shadow tells that it goes on whatever was decided.
	Shadow bool
}

// ruling is a verdict with what is needed to tell the client.
type ruling struct {
	Verdict
	binding  int     // which limit Verdict.Limit is
	violated uint8   // a bit for each limit that refused
	quota    quota   // of the only limit
	quotas   []quota // of each, if there are several
}

// Refused tells whether the handler is not to see the request.
func (v *Verdict) Refused() bool { return !v.Shadow && !v.passes() }

func (v *Verdict) passes() bool { return v.Reason == Admitted || v.Reason == Exempt }

// Status is the status with which a request is answered for that reason; 0 if it passes.
func (v *Verdict) Status() int {
	return [reasons]int{
		OverLimit: http.StatusTooManyRequests,
		Denied:    http.StatusForbidden,
		Keyless:   http.StatusBadRequest,
		Cancelled: http.StatusServiceUnavailable,
	}[v.Reason]
}
