package outgoing

import (
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"
)

const (
	policyField     = "Ratelimit-Policy"
	limitField      = "Ratelimit"
	retryAfterField = "Retry-After"
)

var older = [...]string{"Ratelimit-", "X-Ratelimit-", "X-Rate-Limit-"}

// AnswerOf reads the answer from a response without touching its body. A response refuses its call
// if its status is 429, or 503 with a Retry-After.
func AnswerOf(resp *http.Response) Answer {
	a := FieldsOf(resp.Header, time.Now())
	if a.Refused = resp.StatusCode == http.StatusTooManyRequests ||
		resp.StatusCode == http.StatusServiceUnavailable && a.RetryAfter > 0; !a.Refused {
		a.RetryAfter = 0
	} else if a.RetryAfter == 0 && a.Told && a.Remaining <= 0 {
		a.RetryAfter = a.Reset
	}
	return a
}

// FieldsOf reads the answer, except Refused, from header fields received at now. Malformed fields
// are ignored.
//
// Retry-After is a date or seconds, rounded up; of several the longest counts. RateLimit and
// RateLimit-Policy are structured fields, as in draft-ietf-httpapi-ratelimit-headers-11. Without
// them RateLimit-Limit, -Remaining and -Reset are read, or X-RateLimit-Limit and so on. A Reset up
// to 10,000,000 is in seconds, above that a Unix time, and above 100,000,000,000 a Unix time in
// milliseconds. Dates and Unix times are measured from the field Date if present, otherwise from
// now.
func FieldsOf(h http.Header, now time.Time) (a Answer) {
	if date := first(h, "Date"); date != "" {
		if at, err := http.ParseTime(date); err == nil {
			now = at
		}
	}
	lines := h[retryAfterField]
	for _, line := range lines[:min(len(lines), mostItems)] {
		if len(line) <= mostLength {
			a.RetryAfter = max(a.RetryAfter, retryAfter(strings.TrimSpace(line), now))
		}
	}
	if !a.readQuotas(h[policyField], h[limitField]) {
		for _, prefix := range older {
			if a.readOlder(h, prefix, now) {
				break
			}
		}
	}
	return a
}

func first(h http.Header, name string) string {
	if values := h[name]; len(values) > 0 && len(values[0]) <= mostLength {
		return strings.TrimSpace(values[0])
	}
	return ""
}

// retryAfter parses a Retry-After, 0 if malformed. Some servers send fractions of a second.
func retryAfter(value string, now time.Time) time.Duration {
	if whole, fraction, ok := strings.Cut(value, "."); ok {
		n, isWhole := natural(whole)
		part, isPart := natural(fraction)
		if isWhole && isPart {
			if part > 0 && n < math.MaxInt64 {
				n++
			}
			return duration(n)
		}
	}
	if n, ok := natural(value); ok {
		return duration(n)
	}
	if at, err := http.ParseTime(value); err == nil {
		return min(max(at.Sub(now), 0), longest)
	}
	return 0
}

func natural(s string) (n int64, ok bool) { // saturates
	if s == "" || len(s) > 64 {
		return 0, false
	}
	for _, c := range []byte(s) {
		if c < '0' || c > '9' {
			return 0, false
		}
	}
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		return 1<<63 - 1, true
	}
	return n, true
}

// duration converts seconds, at most longest.
func duration(seconds int64) time.Duration {
	return time.Duration(min(seconds, int64(longest/time.Second))) * time.Second
}

const (
	leastUnix  = 10_000_000      // or more is a Unix time: no reset is 115 days ahead
	leastMilli = 100_000_000_000 // or more is in milliseconds: as seconds it is the year 5138
)

func unix(n int64) time.Time {
	if n >= leastMilli {
		return time.UnixMilli(min(n, 1<<50))
	}
	return time.Unix(n, 0)
}

// readOlder reads a set of older fields, and reports whether it is present.
func (a *Answer) readOlder(h http.Header, prefix string, now time.Time) bool {
	remaining, ok := number(h, prefix, "Remaining")
	if !ok {
		return false
	}
	a.Told, a.Remaining = true, remaining
	if reset, ok := number(h, prefix, "Reset"); ok {
		if reset < leastUnix {
			a.Reset = duration(reset)
		} else {
			a.Reset = min(max(unix(reset).Sub(now), 0), longest)
		}
	}
	// Some versions of the draft put the window here: 100, 100;w=60
	for _, item := range strings.Split(first(h, prefix+"Limit"), ",") {
		limit, parameter, has := strings.Cut(strings.TrimSpace(item), ";")
		n, ok := natural(limit)
		if !has || !ok {
			continue
		}
		if w, found := strings.CutPrefix(strings.TrimSpace(parameter), "w="); found {
			if seconds, ok := natural(w); ok {
				a.describe(n, duration(seconds))
			}
		}
	}
	return true
}

// number reads an older field, ignoring parameters and decimals; it rounds Reset up.
func number(h http.Header, prefix, name string) (n int64, ok bool) {
	value, _, _ := strings.Cut(first(h, prefix+name), ";")
	value, _, _ = strings.Cut(value, ",")
	whole, fraction, has := strings.Cut(strings.TrimSpace(value), ".")
	n, ok = natural(whole)
	if more, fine := natural(fraction); has && fine && more > 0 && name == "Reset" && n < 1<<62 {
		n++
	} else if has && !fine {
		return 0, false
	}
	return n, ok
}

func (a *Answer) describe(limit int64, window time.Duration) {
	switch {
	case limit <= 0 || window <= 0:
		return
	case !a.described():
		a.Limit, a.Window = limit, window
		return
	case a.Burst == 0:
		a.Burst, a.apart = a.Limit, apart(a.Limit, a.Window)
	}
	a.Burst, a.apart = min(a.Burst, limit), max(a.apart, apart(limit, window))
	if float64(limit)*float64(a.Window) < float64(a.Limit)*float64(window) {
		a.Limit, a.Window = limit, window
	}
}

// readQuotas reads RateLimit-Policy and RateLimit, and reports whether they hold anything.
func (a *Answer) readQuotas(policies, limits []string) bool {
	var quotas, left [mostItems]item
	n, m := parseList(quotas[:], policies), parseList(left[:], limits)
	for i := range quotas[:n] {
		if q := &quotas[i]; q.unit == "" || q.unit == "requests" {
			a.describe(q.q, duration(max(q.w, 0)))
		} else {
			q.name = "" // of bytes, or calls at once
		}
	}
	for i := range left[:m] {
		r := &left[i]
		if r.r < 0 || r.name == "" {
			continue
		}
		requests := n == 0
		var of quota
		for j := range quotas[:n] {
			if q := &quotas[j]; q.name == r.name {
				requests = true
				if a.Burst > 0 {
					of = quota{q.q, duration(max(q.w, 0))}
				}
				a.Later = a.Later || q.w > 0 && r.t > q.w
			}
		}
		if reset := duration(max(r.t, 0)); requests && (!a.Told || r.r < a.Remaining || r.r == a.Remaining && reset > a.Reset) {
			a.Told, a.Remaining, a.Reset, a.least = true, r.r, reset, of
		}
	}
	return a.Told || a.described()
}
