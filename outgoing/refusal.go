package outgoing

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/ral-limiter/ral/policy"
)

const (
	statusShopify    = 430 // docs: Shopify API response status and error codes
	statusOverloaded = 529 // docs: Anthropic API errors
)

// GitHub is an [Options.Answer] for GitHub. It knows as refusals: status 403 with X-RateLimit-Remaining 0,
// and GraphQL's status 200 with the error RATE_LIMITED or RATE_LIMIT. It peeks into the body of a
// response with status 200 only if nothing remains or the response has Retry-After.
func GitHub(resp *http.Response) (a Answer, known bool) {
	spent := first(resp.Header, "X-Ratelimit-Remaining") == "0"
	switch {
	case resp.StatusCode == http.StatusForbidden:
		known = spent
	case resp.StatusCode == http.StatusOK && (spent || resp.Header[retryAfterField] != nil):
		var body struct{ Errors []struct{ Type string } }
		known = PeekJSON(resp, &body) && slices.ContainsFunc(body.Errors, func(e struct{ Type string }) bool {
			return e.Type == "RATE_LIMITED" || e.Type == "RATE_LIMIT"
		})
	}
	return Answer{Refused: true}, known
}

// Anthropic is an [Options.Answer] for Anthropic. It knows status 529 as a refusal.
func Anthropic(resp *http.Response) (a Answer, known bool) {
	return Answer{Refused: true}, resp.StatusCode == statusOverloaded
}

// Shopify is an [Options.Answer] for Shopify. It knows status 430 as a refusal.
func Shopify(resp *http.Response) (a Answer, known bool) {
	return Answer{Refused: true}, resp.StatusCode == statusShopify
}

// Slack is an [Options.Answer] for Slack. It knows as a refusal status 200 with the error ratelimited or
// rate_limited in its JSON, and peeks into the body of every response with status 200.
func Slack(resp *http.Response) (a Answer, known bool) {
	var body struct {
		OK    *bool
		Error string
	}
	known = resp.StatusCode == http.StatusOK && PeekJSON(resp, &body) && body.OK != nil && !*body.OK &&
		(body.Error == "ratelimited" || body.Error == "rate_limited")
	return Answer{Refused: true}, known
}

const maxPeek = 4 << 10 // bytes of a body that may tell of a refusal

// PeekJSON reads the JSON of a response's body into v, as json.Unmarshal does, and leaves the body
// whole. It reports false if the body is no JSON, is longer than 4 KiB, or takes longer than a second.
// Parts of the JSON that have another type than in v are left out.
func PeekJSON(resp *http.Response, v any) bool {
	if resp.Body == nil || resp.ContentLength > maxPeek {
		return false
	}
	ctx := context.Background()
	if resp.Request != nil {
		ctx = resp.Request.Context()
	}
	b, whole := readAside(ctx, resp.Body, maxPeek)
	if resp.Body = b; !whole {
		return false
	}
	err := json.Unmarshal(b.read.Bytes(), v)
	var otherType *json.UnmarshalTypeError
	return err == nil || errors.As(err, &otherType)
}

// decide sets Refused by the rules of AnswerOf. The answer has what the header fields tell.
func (a *Answer) decide(resp *http.Response) {
	switch resp.StatusCode {
	case http.StatusTooManyRequests:
		a.Refused = true
		var body any
		if strings.Contains(strings.ToLower(first(resp.Header, "Content-Type")), "json") && PeekJSON(resp, &body) {
			a.readError("", body)
		}
	case http.StatusForbidden, statusShopify, http.StatusBadGateway, http.StatusServiceUnavailable, statusOverloaded:
		a.Refused = a.RetryAfter > 0 || forbidsRetry(resp)
	}
}

// readError reads a value of the JSON of an error, by the name of its field. It knows the quota of OpenAI
// and the delay of a google.rpc.RetryInfo. Of several times the longest counts.
func (a *Answer) readError(name string, value any) {
	switch v := value.(type) {
	case string:
		if v == "insufficient_quota" {
			a.RetryAfter = policy.Never
		} else if d, err := time.ParseDuration(v); err == nil && name == "retryDelay" && d > a.RetryAfter {
			a.RetryAfter, a.Field = min(d, longest), name
		}
	case []any:
		for _, element := range v {
			a.readError(name, element)
		}
	case map[string]any:
		for name, element := range v {
			a.readError(name, element)
		}
	}
}

func forbidsRetry(resp *http.Response) bool {
	return strings.EqualFold(first(resp.Header, "X-Should-Retry"), "false")
}

// With returns the answer with what a hook tells, such as [Options.Answer]: Refused and NoRetry, and
// RetryAfter unless it is 0. If the hook tells a limit, the hook's limits replace all of the answer's.
func (a Answer) With(hook Answer) Answer {
	if hook.described() || hook.Told || hook.Units != nil {
		hook.RetryAfter = cmp.Or(hook.RetryAfter, a.RetryAfter)
		return hook
	}
	a.Refused, a.NoRetry = hook.Refused, hook.NoRetry
	if hook.RetryAfter != 0 {
		a.RetryAfter, a.Field = hook.RetryAfter, hook.Field
	}
	return a
}

// MayRetry reports whether the answer refuses its call and a later try may be served.
func (a *Answer) MayRetry() bool { return a.Refused && !a.NoRetry && !a.final() }

func (a *Answer) final() bool { return a.Refused && a.RetryAfter == policy.Never }

// RefusalError is the error that [RefusalOf] returns.
type RefusalError struct {
	// Status is the response's status, such as 429.
	Status int
	// Answer is the answer that the line obeyed. Its RetryAfter is policy.Never if the refusal is final.
	Answer

	// resp is the response. Its request may be sent again, and another response then has it.
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
	if e, ok := resp.Request.Context().Value(refusalKey{}).(*RefusalError); ok && e.resp == resp {
		return e
	}
	return nil
}

type refusalKey struct{}

// markRefusal lets RefusalOf find the answer of a response. r is the request that was sent.
func markRefusal(resp *http.Response, r *http.Request, a Answer) {
	r = cmp.Or(resp.Request, r)
	resp.Request = r.WithContext(context.WithValue(r.Context(), refusalKey{}, &RefusalError{resp.StatusCode, a, resp}))
}
