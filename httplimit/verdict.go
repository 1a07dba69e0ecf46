package httplimit

import (
	"net/http"

	"github.com/ral-limiter/ral/limits"
)

// Status returns the status that answers a request refused for that reason, or 0 if the request
// passes. The status is 429 for OverLimit, 403 for Denied and NeverAdmitted, 400 for NoKey, 500 for
// Misconfigured, and 503 for Cancelled and Unavailable. A 403 asks clients not to repeat the
// request.
func Status(reason limits.Reason) int {
	switch reason {
	case limits.OverLimit:
		return http.StatusTooManyRequests
	case limits.Denied, limits.NeverAdmitted:
		return http.StatusForbidden
	case limits.NoKey:
		return http.StatusBadRequest
	case limits.Misconfigured:
		return http.StatusInternalServerError
	case limits.Cancelled, limits.Unavailable:
		return http.StatusServiceUnavailable
	}
	return 0
}
