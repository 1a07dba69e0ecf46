package answer

import (
	"net/http"
	"strings"
	"time"

	"github.com/ral-limiter/ral/policy"
)

// Of reads the answer from a response: see outgoing.AnswerOf. hook is outgoing.Options.Answer, and may be nil.
// units are the names of outgoing.Config.Units.
func Of(resp *http.Response, hook func(*http.Response) (Answer, bool), units []string) (answer Answer) {
	fields, retryField := read(resp.Header, time.Now(), units)
	known := false
	if hook != nil {
		answer, known = hook(resp)
	}
	if answer = fields.With(answer); !known {
		answer = fields
		answer.decide(resp)
	}
	if !answer.Refused {
		answer.RetryAfter = 0
		return answer
	}
	if answer.RetryAfter > 0 && answer.RetryAfter == fields.RetryAfter {
		answer.Field = retryField
	}
	if forbidsRetry(resp) {
		answer.NoRetry = true
		if answer.RetryAfter <= 0 && !(answer.HasRemaining && answer.Remaining <= 0 && answer.Reset > 0) {
			answer.RetryAfter = policy.Never
		}
	}
	return answer
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
		} else if duration, err := time.ParseDuration(v); err == nil && name == "retryDelay" && duration > a.RetryAfter {
			a.RetryAfter, a.Field = min(duration, MaxTime), name
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
