package httplimit

import (
	"fmt"
	"math/bits"
	"net/http"
	"strconv"
	"strings"

	"github.com/ral-limiter/ral/internal/adapter/admission"
	"github.com/ral-limiter/ral/internal/adapter/clientaddr"
	"github.com/ral-limiter/ral/limits"
)

// The problem types and titles "Quota Exceeded" and "Temporary Reduced Capacity" of
// draft-ietf-httpapi-ratelimit-headers-11.
const (
	quotaExceeded        = "https://iana.org/assignments/http-problem-types#quota-exceeded"
	quotaExceededTitle   = "Request cannot be satisfied as assigned quota has been exceeded"
	reducedCapacity      = "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity"
	reducedCapacityTitle = "Request cannot be satisfied due to temporary server capacity constraints"
)

// answer writes the answer to a refused request. retry is the value of Retry-After, or "".
func (m *Middleware) answer(w http.ResponseWriter, request *http.Request, result *result, retry string) {
	var b body
	switch {
	// Refuse writes the body.
	case m.options.Refuse != nil:
	case !wantsProblem(request.Header["Accept"]):
		b = bodyOf(plainText, m.sentence(request, result))
	case result.Reason == limits.OverLimit && bits.OnesCount8(result.Violated) == 1 && !result.Provenance.Guess():
		b = m.exceeded[bits.TrailingZeros8(result.Violated)]
	default:
		b = bodyOf(problemDetails, m.problem(request, result))
	}
	header := w.Header()
	// A cache must not store a 429 (RFC 6585, section 4).
	// A single allocation serves five fields.
	values := &[...]string{"no-store", "nosniff", b.kind, b.length, retry}
	header["Cache-Control"] = values[0:1:1]
	header["X-Content-Type-Options"] = values[1:2:2]
	if retry != "" {
		header[retryAfterField] = values[4:5:5]
	}
	if m.options.Refuse == nil {
		header["Content-Type"] = values[2:3:3]
		header["Content-Length"] = values[3:4:4]
	}
	if m.options.Header != nil {
		m.options.Header(header, result.Verdict)
	}
	if m.options.Refuse != nil {
		m.options.Refuse(w, request, result.Verdict)
		return
	}
	w.WriteHeader(Status(result.Reason))
	// An error means that the client has left.
	_, _ = w.Write(b.text)
}

const (
	plainText      = "text/plain; charset=utf-8"
	problemDetails = "application/problem+json"
)

// body is the body of an answer, with its Content-Type and Content-Length. Answers share it.
type body struct {
	text         []byte
	kind, length string
}

func bodyOf(kind string, text []byte) body { return body{text, kind, strconv.Itoa(len(text))} }

var ofAnotherBody = [...]string{"Content-Encoding", "Content-Range", "Etag", "Last-Modified", "Expires"}

// problem returns a refusal's problem details. For OverLimit they depend only on result.Violated, and on
// whether a share of the limit refused.
func (m *Middleware) problem(request *http.Request, result *result) []byte {
	status := Status(result.Reason)
	kind, title := "about:blank", http.StatusText(status)
	switch {
	case result.Reason == limits.Unavailable, result.Reason == limits.OverLimit && result.Provenance.Guess():
		kind, title = reducedCapacity, reducedCapacityTitle
	case result.Reason == limits.OverLimit:
		kind, title = quotaExceeded, quotaExceededTitle
	}
	buffer := make([]byte, 0, 256)
	buffer = admission.AppendString(append(buffer, `{"type":`...), kind)
	buffer = admission.AppendString(append(buffer, `,"title":`...), title)
	buffer = strconv.AppendInt(append(buffer, `,"status":`...), int64(status), 10)
	if result.Reason == limits.OverLimit {
		begin := `,"violated-policies":[`
		for i, quoted := range m.fields.Quoted() {
			if result.Violated&(1<<i) != 0 && !m.limiters[i].Of().Hidden {
				buffer = append(append(buffer, begin...), quoted...)
				begin = ","
			}
		}
		if begin == "," {
			buffer = append(buffer, ']')
		}
	}
	if detail := m.detail(request, result); detail != "" {
		buffer = admission.AppendString(append(buffer, `,"detail":`...), detail)
	}
	return append(buffer, "}\n"...)
}

func (m *Middleware) sentence(request *http.Request, result *result) []byte {
	buffer := append(make([]byte, 0, 128), http.StatusText(Status(result.Reason))...)
	if result.Reason == limits.OverLimit && result.Provenance.TellsRetry() {
		buffer = append(buffer, ": try again in "...)
		buffer = strconv.AppendInt(buffer, retrySeconds(result.RetryAfter), 10)
		buffer = append(buffer, " s"...)
	}
	if detail := m.detail(request, result); detail != "" {
		buffer = append(append(buffer, ": "...), detail...)
	}
	return append(buffer, '\n')
}

func (m *Middleware) detail(request *http.Request, result *result) string {
	if m.fields.Hides(result.Limit) {
		return ""
	}
	switch result.Reason {
	case limits.OverLimit:
		if result.Provenance.Guess() {
			return "the limit is reduced during an outage, so the time to try again is a guess"
		}
	case limits.NoKey:
		missing := "the client's address is unknown"
		if result.Limit != "" {
			missing = "the request lacks the key of the limit " + strconv.Quote(result.Limit)
		}
		if request.RemoteAddr == "" {
			missing += "; its RemoteAddr is empty, as http.NewRequest leaves it: for a key by address use httptest.NewRequest in tests, or set it"
		}
		return missing
	case limits.NeverAdmitted:
		never := "the limit " + strconv.Quote(result.Limit) + " never admits this request"
		if most := result.Decision.Limit; result.Cost > most {
			never += fmt.Sprintf(", which costs %d: the most that it allows is %d", result.Cost, most)
		}
		return never
	case limits.Misconfigured:
		if result.Limit == "" {
			return "the server is misconfigured: the request's cost is below 0"
		}
		return "the server is misconfigured: the limit " + strconv.Quote(result.Limit) + " cannot be applied to this client"
	}
	return ""
}

// Media ranges beyond these bounds are not read, so that a long field costs no time.
const (
	maxRanges = 64
	maxRange  = 256
)

// wantsProblem reports whether a client prefers problem details to text, by its Accept fields (RFC
// 9110, section 12.5.1). JSON counts as problem details, and HTML as text. A tie means problem
// details. If neither is accepted the answer is text.
func wantsProblem(accept []string) bool {
	if len(accept) == 0 {
		return true
	}
	var problem, text preference
	ranges := 0
	for _, line := range accept {
		for more := true; more; {
			var one string
			one, line, more = strings.Cut(line, ",")
			if ranges++; ranges > maxRanges {
				return problem.q > 0 && problem.q >= text.q
			}
			if len(one) > maxRange {
				continue
			}
			kind, q := mediaRange(one)
			specific := specifics[strings.ToLower(kind)]
			problem.add(specific.problem, q)
			text.add(specific.text, q)
		}
	}
	return problem.q > 0 && problem.q >= text.q
}

// specifics tells how specific a range is for problem details and for text, 0 if it does not cover them.
var specifics = map[string]struct{ problem, text int }{
	"application/problem+json": {problem: 4},
	"application/json":         {problem: 3},
	"application/*":            {problem: 2},
	"text/plain":               {text: 4},
	"text/html":                {text: 3},
	"text/*":                   {text: 2},
	"*/*":                      {1, 1},
}

// preference is a media type's weight, by the most specific range that covers it.
type preference struct{ specific, q int }

func (p *preference) add(specific, q int) {
	if q >= 0 && specific > 0 && specific >= p.specific {
		p.specific, p.q = specific, q
	}
}

// mediaRange returns a media range and its weight in thousandths, or -1 if malformed.
func mediaRange(text string) (kind string, q int) {
	kind, parameters, more := strings.Cut(text, ";")
	q = 1000
	for more {
		var one string
		one, parameters, more = strings.Cut(parameters, ";")
		if one = clientaddr.Trim(one); len(one) >= 2 && (one[0] == 'q' || one[0] == 'Q') && one[1] == '=' {
			q = weight(one[2:])
		}
	}
	return clientaddr.Trim(kind), q
}

// weight returns a qvalue (RFC 9110, section 12.4.2) in thousandths, or -1 if malformed.
func weight(text string) int {
	whole, fraction, _ := strings.Cut(text, ".")
	q, err := strconv.ParseUint(whole+(fraction + "000")[:3], 10, 64)
	if err != nil || len(whole) != 1 || len(fraction) > 3 || q > 1000 {
		return -1
	}
	return int(q)
}
