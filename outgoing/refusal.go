package outgoing

import (
	"cmp"
	"context"
	"fmt"
	"net/http"

	"github.com/ral-limiter/ral/policy"
)

// RefusalError is the error that [RefusalOf] returns.
type RefusalError struct {
	// Status is the response's status, such as 429.
	Status int
	// Answer is the answer that the line obeyed. Its RetryAfter is policy.Never if the refusal is final.
	Answer

	// resp is the refused response. If the marked request is sent again, the next response has the same
	// request, and only resp tells the two apart.
	resp *http.Response
}

// Error implements error.
func (e *RefusalError) Error() string {
	when := "without a time to retry"
	switch {
	case e.RetryAfter == policy.Never:
		when = "for ever"
	case e.RetryAfter > 0:
		when = fmt.Sprintf("for %v", e.RetryAfter)
	}
	return fmt.Sprintf("outgoing: the server refused the call %s: status %d", when, e.Status)
}

// RefusalOf returns a *[RefusalError] if a [Transport] took the response for a refusal, otherwise nil.
// It needs the *http.Response that the Transport or its http.Client returned.
func RefusalOf(resp *http.Response) error {
	if resp == nil || resp.Request == nil {
		return nil
	}
	if refusalError, ok := resp.Request.Context().Value(refusalKey{}).(*RefusalError); ok && refusalError.resp == resp {
		return refusalError
	}
	return nil
}

type refusalKey struct{}

// markRefusal lets RefusalOf find the answer of a response. r is the request that was sent.
func markRefusal(resp *http.Response, r *http.Request, answer Answer) {
	r = cmp.Or(resp.Request, r)
	resp.Request = r.WithContext(context.WithValue(r.Context(), refusalKey{}, &RefusalError{resp.StatusCode, answer, resp}))
}
