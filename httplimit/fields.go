package httplimit

import (
	"net/http"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/ral-limiter/ral/policy"
)

// The names of header fields, in the form in which net/http keeps them.
const (
	policyField = "Ratelimit-Policy"
	limitField  = "Ratelimit"

	legacyLimit, legacyRemaining, legacyReset = "Ratelimit-Limit", "Ratelimit-Remaining", "Ratelimit-Reset"
	xLimit, xRemaining, xReset                = "X-Ratelimit-Limit", "X-Ratelimit-Remaining", "X-Ratelimit-Reset"

	retryAfterField = "Retry-After"
)

// mostInteger is the largest integer of a structured field (RFC 9651, section 3.3.1).
const mostInteger = 999_999_999_999_999

// seconds are whole, and rounded up.
func seconds(d time.Duration) int64 {
	whole := int64(d / time.Second)
	if d%time.Second > 0 {
		whole++
	}
	return whole
}

// windowSeconds are rounded up as well, but for what a policy's own rounding of its rate
// has added to a whole second: a sixteenth of a nanosecond for each unit.
func windowSeconds(d time.Duration) int64 {
	if whole := d.Truncate(time.Second); d-whole <= time.Millisecond {
		return int64(whole / time.Second)
	}
	return seconds(d)
}

// retrySeconds is what Retry-After says: never 0, which would invite to come back at
// once. ok is false if there is nothing to say.
func retrySeconds(d time.Duration) (n int64, ok bool) {
	return max(1, seconds(d)), d != policy.Never
}

// quota is what a limit allows, as clients are told.
type quota struct {
	applies bool // the request has a key for it
	most    int64
	window  time.Duration
}

// writer writes the header fields of a set of limits.
type writer struct {
	headers HeaderSet
	quoted  []string // the names of the limits as structured-field strings
	// policies has the policy fields that were written so far. It holds few, as there is
	// one for each policy; where there are more the others are written anew each time.
	policies atomic.Pointer[[]policyValue]
}

type policyValue struct {
	of    []quota // of each limit
	value string
}

const mostPolicies = 16

// write sets the fields that tell how the request stands with the limit that decided. It
// allocates their values and nothing else.
func (f *writer) write(h http.Header, v *ruling) {
	reset := v.Decision.ResetAfter
	if v.Reason == OverLimit && v.Decision.RetryAfter != policy.Never {
		// Retry-After should not name an earlier time than the reset.
		reset = v.Decision.RetryAfter
	}
	limit, remaining := v.Decision.Limit, v.Decision.Remaining
	switch f.headers {
	case RateLimitHeaders:
		var buffer [128]byte
		b := append(buffer[:0], f.quoted[v.binding]...)
		b = appendInteger(append(b, ";r="...), remaining)
		b = appendInteger(append(b, ";t="...), seconds(reset))
		of := v.quotas
		if of == nil {
			of = []quota{v.quota}
		}
		values := [...]string{f.policy(of), string(b)}
		both := values[:] // one allocation for two fields
		add(h, policyField, both[0:1:1])
		add(h, limitField, both[1:2:2])
	case LegacyHeaders:
		if v.Reason == Admitted && tighter(h[legacyLimit], h[legacyRemaining], limit, remaining) {
			return
		}
		three(h, legacyLimit, limit, legacyRemaining, remaining, legacyReset, seconds(reset))
	case XRateLimitHeaders:
		if v.Reason == Admitted && tighter(h[xLimit], h[xRemaining], limit, remaining) {
			return
		}
		at := time.Now().Add(reset)
		unix := at.Unix()
		if at.Nanosecond() > 0 {
			unix++
		}
		three(h, xLimit, limit, xRemaining, remaining, xReset, unix)
	}
}

// add sets a field, or adds a line to it if another limit has been told of already.
func add(h http.Header, field string, value []string) {
	if before := h[field]; len(before) > 0 {
		value = append(before[:len(before):len(before)], value...)
	}
	h[field] = value
}

// tighter tells whether the limit that a middleware around this one has told of has no
// larger share left than this one: there is place for one, and it is that which the client
// comes up against first.
func tighter(limits, remainings []string, limit, remaining int64) bool {
	if len(limits) != 1 || len(remainings) != 1 {
		return false
	}
	outer, err1 := strconv.ParseInt(limits[0], 10, 64)
	left, err2 := strconv.ParseInt(remainings[0], 10, 64)
	return err1 == nil && err2 == nil &&
		float64(left)/float64(max(outer, 1)) <= float64(remaining)/float64(max(limit, 1))
}

// three sets fields that have place for one limit only.
func three(h http.Header, limitName string, limit int64, remainingName string, remaining int64, resetName string, reset int64) {
	var buffer [64]byte
	b := strconv.AppendInt(buffer[:0], limit, 10)
	first := len(b)
	b = strconv.AppendInt(b, remaining, 10)
	second := len(b)
	b = strconv.AppendInt(b, reset, 10)
	all := string(b)
	values := [...]string{all[:first], all[first:second], all[second:]}
	list := values[:]
	h[limitName] = list[0:1:1]
	h[remainingName] = list[1:2:2]
	h[resetName] = list[2:3:3]
}

// policy returns the value of RateLimit-Policy.
func (f *writer) policy(of []quota) string {
	known := f.policies.Load()
	if known != nil {
		for i := range *known {
			if p := &(*known)[i]; slices.Equal(p.of, of) {
				return p.value
			}
		}
	}
	value := f.format(of)
	if known == nil || len(*known) < mostPolicies {
		more := []policyValue{{slices.Clone(of), value}}
		if known != nil {
			more = append(slices.Clone(*known), more[0])
		}
		f.policies.CompareAndSwap(known, &more)
	}
	return value
}

func (f *writer) format(of []quota) string {
	var buffer [256]byte
	b := buffer[:0]
	for i, q := range of {
		if !q.applies {
			continue
		}
		if len(b) > 0 {
			b = append(b, ", "...)
		}
		b = append(b, f.quoted[i]...)
		b = appendInteger(append(b, ";q="...), q.most)
		if q.window >= time.Second {
			b = appendInteger(append(b, ";w="...), windowSeconds(q.window))
		}
	}
	return string(b)
}

func appendInteger(b []byte, n int64) []byte {
	return strconv.AppendInt(b, min(n, mostInteger), 10)
}

// appendString appends printable ASCII as a structured-field string (RFC 9651, section
// 4.1.6). JSON writes it alike.
func appendString(b []byte, s string) []byte {
	b = append(b, '"')
	for _, c := range []byte(s) {
		if c == '"' || c == '\\' {
			b = append(b, '\\')
		}
		b = append(b, c)
	}
	return append(b, '"')
}
