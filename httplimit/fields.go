package httplimit

import (
	"math/bits"
	"net/http"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/ral-limiter/ral/internal/shape"
	"github.com/ral-limiter/ral/limits"
	"github.com/ral-limiter/ral/policy"
)

// The names of header fields, in the canonical form of net/http.
const (
	policyField = "Ratelimit-Policy"
	limitField  = "Ratelimit"

	legacyLimit, legacyRemaining, legacyReset = "Ratelimit-Limit", "Ratelimit-Remaining", "Ratelimit-Reset"
	xLimit, xRemaining, xReset                = "X-Ratelimit-Limit", "X-Ratelimit-Remaining", "X-Ratelimit-Reset"

	retryAfterField = "Retry-After"
)

// mostInteger is the largest integer of a structured field (RFC 9651, section 3.3.1).
const mostInteger = 999_999_999_999_999

// seconds returns whole seconds, rounded up.
func seconds(d time.Duration) int64 {
	whole := int64(d / time.Second)
	if d%time.Second > 0 {
		whole++
	}
	return whole
}

// windowSeconds rounds up as well, except that up to a millisecond above a whole second is
// dropped: a policy's rounding of its rate adds a sixteenth of a nanosecond for each unit.
func windowSeconds(d time.Duration) int64 {
	if whole := d.Truncate(time.Second); d-whole <= time.Millisecond {
		return int64(whole / time.Second)
	}
	return seconds(d)
}

// retrySeconds returns the value of Retry-After. It is at least 1, as 0 would invite the
// client to return at once.
func retrySeconds(d time.Duration) int64 { return max(1, seconds(d)) }

// quota describes a limit for clients.
type quota struct {
	applies bool  // reports whether the request has a key for the limit
	limit   int64 // the Limit of its decisions
	most    int64 // the most units that can remain: fewer than limit if it counts credit
	window  time.Duration
}

// quotaOf returns the quota of a limit, none if there is no limit.
func quotaOf(limit policy.Policy) quota {
	if limit == nil {
		return quota{}
	}
	q := quota{applies: true, limit: limit.Limit(), most: shape.AtOnce(limit)}
	if windowed, ok := limit.(policy.Windowed); ok {
		q.window = windowed.Window()
	}
	if 0 <= q.most && q.most < q.limit { // the window is that of limit units
		hi, lo := bits.Mul64(uint64(q.window), uint64(q.most))
		window, _ := bits.Div64(hi, lo, uint64(q.limit))
		q.window = time.Duration(window)
	}
	return q
}

// follow makes q the quota of the limit that decided, if that was replaced meanwhile. A
// share of a limit is no quota.
func (q *quota) follow(a *limits.Answer) {
	if a.Promised() {
		q.followDecision(&a.Decision)
	}
}

func (q *quota) followDecision(d *policy.Decision) {
	if d.Limit != q.limit {
		q.limit, q.most = d.Limit, d.Limit
	}
}

// fieldWriter writes the header fields of a middleware's limits.
type fieldWriter struct {
	headers HeaderSet
	quoted  []string // the names of the limits as structured-field strings
	left    []string // the beginning of RateLimit for each limit, up to the number that remains
	// policies caches values of RateLimit-Policy, one for each combination of policies, up
	// to mostPolicies. Further ones are formatted for each request.
	policies atomic.Pointer[[]policyValue]
}

type policyValue struct {
	of    []quota // one for each limit
	value string
}

const mostPolicies = 16

// write sets the fields that tell how the request stands with the limit that decided. It
// allocates nothing except their values. quotas are those of several limits, or nil. What
// the limiter does not promise is left out, and with it all that says how the request
// stands.
func (f *fieldWriter) write(h http.Header, v *result, quotas []quota) {
	if !v.Basis.Promised() {
		if f.headers == RateLimitHeaders {
			if quotas == nil {
				quotas = []quota{v.quota}
			}
			h[policyField] = after(h[policyField], []string{f.policy(quotas)})
		}
		return
	}
	reset := v.Decision.ResetAfter
	if v.Reason == OverLimit {
		// Retry-After must not be earlier than the reset.
		reset = v.Decision.RetryAfter
	}
	of := &v.quota
	if quotas != nil {
		of = &quotas[v.binding]
	}
	limit, remaining := of.most, v.Decision.Remaining
	switch f.headers {
	case RateLimitHeaders:
		var buffer [128]byte
		b := appendInteger(append(buffer[:0], f.left[v.binding]...), remaining)
		b = appendInteger(append(b, ";t="...), seconds(reset))
		if quotas == nil {
			quotas = []quota{v.quota}
		}
		both := &[...]string{f.policy(quotas), string(b)} // one allocation for two fields
		policies, stands := both[0:1:1], both[1:2:2]
		if len(h) > 0 {
			policies, stands = after(h[policyField], policies), after(h[limitField], stands)
		}
		h[policyField], h[limitField] = policies, stands
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

// after returns the lines of a field that an outer middleware has set, if any, with another
// one behind them.
func after(before, line []string) []string {
	if len(before) == 0 {
		return line
	}
	return append(before[:len(before):len(before)], line...)
}

// tighter reports whether the limit in an outer middleware's fields has no larger share left
// than this one. The older fields have room for one limit, and tell the one that the client
// will reach first.
func tighter(limits, remainings []string, limit, remaining int64) bool {
	if len(limits) != 1 || len(remainings) != 1 {
		return false
	}
	outer, err1 := strconv.ParseInt(limits[0], 10, 64)
	left, err2 := strconv.ParseInt(remainings[0], 10, 64)
	return err1 == nil && err2 == nil &&
		float64(left)/float64(max(outer, 1)) <= float64(remaining)/float64(max(limit, 1))
}

// three sets the three fields of the older sets, which have room for one limit.
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
func (f *fieldWriter) policy(of []quota) string {
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

func (f *fieldWriter) format(of []quota) string {
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
// 4.1.6). As a JSON string it is written the same way.
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
