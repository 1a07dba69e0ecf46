package outgoing

import (
	"net/http"
	"time"

	"github.com/ral-limiter/ral/outgoing/internal/answer"
)

// Answer is the server's answer to a call. The zero Answer says only that it was served.
//
//	Refused      bool          // The call was refused because it came too early.
//	RetryAfter   time.Duration // The refused call may be sent again after this time; with policy.Never, never.
//	NoRetry      bool          // The refused call must not be sent again. Other calls of its key may be sent.
//	Limit        int64         // Limit calls pass in each Window. If there are several limits, this is the slowest.
//	Window       time.Duration
//	Burst        int64         // The most calls that may be sent at once: the smallest of several limits.
//	ResetsLate   bool          // The reset is more than a window from now.
//	HasRemaining bool          // Remaining and Reset are known.
//	Remaining    int64         // The calls that would be admitted now, by the limit with the least left.
//	Reset        time.Duration // The limit is whole again after this time. 0 is unknown.
//	Field        string        // The header field behind RetryAfter or else Reset, for errors.
//	Units        []Answer      // The limits of Config.Units, in that order, without a refusal.
type Answer = answer.Answer

// AnswerOf reads the answer from a response. A response refuses its call if its status is 429, or if
// it is 403, 430, 502, 503 or 529 and the response has Retry-After, one of its forms in milliseconds,
// or X-Should-Retry: false.
//
// In a refusal, X-Should-Retry: false sets NoRetry. The refusal is then final, with RetryAfter
// policy.Never, unless it also states a time: RetryAfter, or a reset with nothing remaining. The
// JSON body of a 429 is read as by [PeekJSON]: insufficient_quota makes the refusal final, and the
// retryDelay of a google.rpc.RetryInfo counts as Retry-After.
func AnswerOf(resp *http.Response) Answer { return answer.Of(resp, nil, nil) }

// FieldsOf reads the answer, except Refused and Field, from header fields received at now. Malformed
// fields are ignored.
//
// Retry-After is a date or seconds. If the field occurs several times, the longest time counts.
// Retry-After-Ms and X-Ms-Retry-After-Ms take precedence over it. RateLimit and RateLimit-Policy are structured fields, as in
// draft-ietf-httpapi-ratelimit-headers-11, with r and t also spelled a and w. Drafts 6 and 7 are
// read too. Without RateLimit the sets of RateLimit-Limit, -Remaining and -Reset, or
// X-RateLimit-Limit and so on, are read. OpenAI and Anthropic have sets for requests and for tokens:
// the limit with the least left counts.
//
// A Reset is a duration such as 6m0s, a time by RFC 3339, or a number. A number up to
// 10,000,000 is a duration in seconds. A greater number is a Unix time in seconds, milliseconds,
// microseconds or nanoseconds, according to its size.
// Times are measured from the field Date if present, otherwise from now.
//
// With the names of Config.Units, Answer.Units has the limits in these units: "tokens",
// "input-tokens", "output-tokens", or the unit that RateLimit-Policy states. Limits in other units
// count as limits of calls, unless RateLimit-Policy states their unit.
func FieldsOf(header http.Header, now time.Time, units ...string) Answer {
	return answer.FieldsOf(header, now, units...)
}

// GitHub is an [Options.Answer] for GitHub. It knows as refusals: status 403 with X-RateLimit-Remaining 0,
// and GraphQL's status 200 with the error RATE_LIMITED or RATE_LIMIT. GitHub peeks into the body of a
// response with status 200 only if nothing remains or the response has Retry-After.
func GitHub(resp *http.Response) (a Answer, known bool) { return answer.GitHub(resp) }

// Anthropic is an [Options.Answer] for Anthropic. It knows status 529 as a refusal.
func Anthropic(resp *http.Response) (a Answer, known bool) { return answer.Anthropic(resp) }

// Shopify is an [Options.Answer] for Shopify. It knows status 430 as a refusal.
func Shopify(resp *http.Response) (a Answer, known bool) { return answer.Shopify(resp) }

// Slack is an [Options.Answer] for Slack. It knows as a refusal status 200 with the error ratelimited or
// rate_limited in its JSON, and peeks into the body of every response with status 200.
func Slack(resp *http.Response) (a Answer, known bool) { return answer.Slack(resp) }

// PeekJSON reads the JSON of a response's body into v, as json.Unmarshal does, and leaves the body
// whole. It reports false if the body is no JSON, is longer than 4 KiB, or takes longer than a second.
// Parts of the JSON that have another type than in v are left out.
func PeekJSON(resp *http.Response, v any) bool { return answer.PeekJSON(resp, v) }
