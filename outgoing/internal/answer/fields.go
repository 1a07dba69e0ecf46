package answer

import (
	"cmp"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

const (
	policyField     = "Ratelimit-Policy"
	limitField      = "Ratelimit"
	retryAfterField = "Retry-After"
)

// set names the fields of a limit. after precedes reset: it needs no clock. unit is a name of
// Config.Units, empty for calls.
type set struct{ remaining, reset, after, limit, unit string }

// older holds groups of sets. The first group that is present is read; of its sets for a unit the
// one with the least left.
var older = [...][]set{
	{{"Ratelimit-Remaining", "Ratelimit-Reset", "", "Ratelimit-Limit", ""}},
	{{"X-Ratelimit-Remaining", "X-Ratelimit-Reset", "X-Ratelimit-Reset-After", "X-Ratelimit-Limit", ""}},
	{{"X-Rate-Limit-Remaining", "X-Rate-Limit-Reset", "", "X-Rate-Limit-Limit", ""}},
	{
		{"X-Ratelimit-Remaining-Requests", "X-Ratelimit-Reset-Requests", "", "X-Ratelimit-Limit-Requests", ""},
		{"X-Ratelimit-Remaining-Tokens", "X-Ratelimit-Reset-Tokens", "", "X-Ratelimit-Limit-Tokens", "tokens"},
	},
	{
		{"Anthropic-Ratelimit-Requests-Remaining", "Anthropic-Ratelimit-Requests-Reset", "", "Anthropic-Ratelimit-Requests-Limit", ""},
		{"Anthropic-Ratelimit-Tokens-Remaining", "Anthropic-Ratelimit-Tokens-Reset", "", "Anthropic-Ratelimit-Tokens-Limit", "tokens"},
		{"Anthropic-Ratelimit-Input-Tokens-Remaining", "Anthropic-Ratelimit-Input-Tokens-Reset", "", "Anthropic-Ratelimit-Input-Tokens-Limit", "input-tokens"},
		{"Anthropic-Ratelimit-Output-Tokens-Remaining", "Anthropic-Ratelimit-Output-Tokens-Reset", "", "Anthropic-Ratelimit-Output-Tokens-Limit", "output-tokens"},
	},
}

// FieldsOf reads the answer from header fields: see outgoing.FieldsOf.
func FieldsOf(header http.Header, now time.Time, units ...string) Answer {
	answer, _ := read(header, now, units)
	answer.Field, answer.limitField = "", ""
	return answer
}

// read also returns the name of the field of RetryAfter.
func read(header http.Header, now time.Time, units []string) (answer Answer, retryField string) {
	if len(units) > 0 {
		answer.Units = make([]Answer, len(units))
	}
	if date := first(header, "Date"); date != "" {
		if sent, err := http.ParseTime(date); err == nil {
			now = sent
		}
	}
	retryField = retryAfterField
	lines := header[retryAfterField]
	for _, line := range lines[:min(len(lines), maxItems)] {
		if len(line) <= maxLength {
			answer.RetryAfter = max(answer.RetryAfter, retryAfter(strings.TrimSpace(line), now))
		}
	}
	for _, name := range [...]string{"Retry-After-Ms", "X-Ms-Retry-After-Ms"} {
		if _, duration, ok := decimal(first(header, name)); ok && duration > 0 {
			answer.RetryAfter, retryField = min(duration/1000, MaxTime), name
			break
		}
	}
	switch {
	case answer.readQuotas(header[policyField], header[limitField], units):
		answer.Field, answer.limitField = limitField, policyField
		return answer, retryField
	case answer.readWindows(first(header, policyField)):
		answer.limitField = policyField
	}
	if answer.readDraft7(first(header, limitField)) {
		answer.Field = limitField
	} else {
		answer.readSets(header, now, units)
	}
	answer.ResetsLate = Describes(&answer) && answer.Reset > answer.Window
	return answer, retryField
}

func first(header http.Header, name string) string {
	if values := header[name]; len(values) > 0 && len(values[0]) <= maxLength {
		return strings.TrimSpace(values[0])
	}
	return ""
}

// retryAfter parses a Retry-After, 0 if malformed.
func retryAfter(value string, now time.Time) time.Duration {
	if _, duration, ok := decimal(value); ok {
		return min(duration, MaxTime)
	}
	if date, err := http.ParseTime(value); err == nil {
		return min(max(date.Sub(now), 0), MaxTime)
	}
	return 0
}

// decimal parses digits that may have a fraction. n is the integer, d the whole in seconds, rounded
// up to a nanosecond.
func decimal(text string) (n int64, d time.Duration, ok bool) {
	whole, fraction, has := strings.Cut(text, ".")
	if n, ok = natural(whole); !ok || has && (fraction == "" || strings.Trim(fraction, "0123456789") != "") {
		return 0, 0, false
	}
	d = time.Duration(min(n, math.MaxInt64/int64(time.Second)-1)) * time.Second
	if has {
		digits := (fraction + "000000000")[:9]
		part, _ := natural(digits)
		if d += time.Duration(part); strings.Trim(fraction[min(9, len(fraction)):], "0") != "" {
			d++
		}
	}
	return n, d, true
}

// natural reads a natural number. A larger number than n can hold is the largest.
func natural(text string) (n int64, ok bool) {
	if text == "" || len(text) > 64 {
		return 0, false
	}
	for _, char := range []byte(text) {
		if char < '0' || char > '9' {
			return 0, false
		}
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return 1<<63 - 1, true
	}
	return n, true
}

// duration converts seconds, at most MaxTime.
func duration(seconds int64) time.Duration {
	return time.Duration(min(seconds, int64(MaxTime/time.Second))) * time.Second
}

// No reset is 115 days ahead, and no Unix time is after the year 5138.
const (
	// A number of minUnix or more is a Unix time.
	minUnix  = 10_000_000
	minMilli = 100_000_000_000
	minMicro = 1000 * minMilli
	minNano  = 1000 * minMicro
)

// until returns the time from now to a reset, negative if it has passed.
func until(value string, now time.Time) (duration time.Duration, ok bool) {
	value, _, _ = strings.Cut(value, ";")
	value, _, _ = strings.Cut(value, ",")
	value = strings.TrimSpace(value)
	n, duration, ok := decimal(value)
	switch {
	case ok && n < minUnix:
		return duration, true
	case ok && n < minMilli:
		return time.Unix(0, 0).Add(duration).Sub(now), true
	case ok && n < minMicro:
		return time.UnixMilli(n).Sub(now), true
	case ok && n < minNano:
		return time.UnixMicro(n).Sub(now), true
	case ok:
		return time.Unix(0, n).Sub(now), true
	}
	if duration, err := time.ParseDuration(value); err == nil {
		return duration, true
	}
	date, err := time.Parse(time.RFC3339, value)
	return date.Sub(now), err == nil
}

// readSets reads the first group of older sets that is present.
func (a *Answer) readSets(header http.Header, now time.Time, units []string) {
	for _, sets := range older {
		told := false
		for i := range sets {
			part := cmp.Or(a.unit(sets[i].unit, units), a)
			part.readOlder(header, &sets[i], now)
			told = told || part.HasRemaining
		}
		if told {
			return
		}
	}
}

// readOlder reads a set of older fields if it has the least left so far.
func (a *Answer) readOlder(header http.Header, set *set, now time.Time) {
	remaining, ok := number(first(header, set.remaining))
	if !ok {
		return
	}
	name := set.after
	reset, ok := until(first(header, name), now)
	if !ok {
		name = set.reset
		reset, ok = until(first(header, name), now)
	}
	// A Unix time in whole seconds may be the present second.
	if past := ok && reset <= -time.Second; a.recordRest(remaining, min(max(reset, 0), MaxTime)) {
		if a.past = past; ok {
			a.Field = name
		}
		if !Describes(a) {
			a.Limit, _ = number(first(header, set.limit))
		}
	}
	// Some versions of the draft put the window here: 100, 100;w=60
	if !Describes(a) && a.readWindows(first(header, set.limit)) {
		a.limitField = set.limit
	}
}

// readWindows reads windows as in draft 6, such as 100;w=60, and reports whether there are any.
func (a *Answer) readWindows(value string) bool {
	for item := range strings.SplitSeq(value, ",") {
		limit, parameters, _ := strings.Cut(item, ";")
		n, ok := natural(strings.TrimSpace(limit))
		if !ok {
			continue
		}
		for parameter := range strings.SplitSeq(parameters, ";") {
			if w, found := strings.CutPrefix(strings.TrimSpace(parameter), "w="); found {
				if seconds, ok := natural(w); ok {
					a.describe(n, duration(seconds))
				}
			}
		}
	}
	return Describes(a)
}

// readDraft7 reads RateLimit as in draft 7, such as limit=100, remaining=50, reset=30.
func (a *Answer) readDraft7(value string) bool {
	remaining, reset, limit := int64(-1), int64(0), int64(0)
	for item := range strings.SplitSeq(value, ",") {
		name, n, _ := strings.Cut(strings.TrimSpace(item), "=")
		switch v, ok := natural(n); {
		case ok && name == "remaining":
			remaining = v
		case ok && name == "reset":
			reset = v
		case ok && name == "limit":
			limit = v
		}
	}
	if !Describes(a) && remaining >= 0 {
		a.Limit = limit
	}
	return remaining >= 0 && a.recordRest(remaining, duration(reset))
}

// number parses a count, ignoring parameters and decimals.
func number(value string) (n int64, ok bool) {
	value, _, _ = strings.Cut(value, ";")
	value, _, _ = strings.Cut(value, ",")
	n, _, ok = decimal(strings.TrimSpace(value))
	return n, ok
}

// readQuotas reads RateLimit-Policy and RateLimit, and reports whether they hold anything.
func (a *Answer) readQuotas(policies, limits, units []string) (holds bool) {
	var quotas, left [maxItems]item
	n, m := parseList(quotas[:], policies), parseList(left[:], limits)
	// parts has the part of each quota, nil if the quota's unit is none of the line's.
	var parts [maxItems]*Answer
	// told reports for each quota whether limits has it.
	var told [maxItems]bool
	for i := range quotas[:n] {
		item := &quotas[i]
		if parts[i] = a.unit(item.unit, units); parts[i] != nil {
			parts[i].describe(item.q, duration(max(item.w, 0)))
			holds = holds || Describes(parts[i])
		}
	}
	for i := range left[:m] {
		item := &left[i]
		if item.r < 0 {
			item.r = item.a
		}
		if item.t < 0 {
			item.t = item.w
		}
		if item.r < 0 || item.name == "" {
			continue
		}
		var part *Answer
		if n == 0 {
			part = a
		}
		var quota Quota
		for j := range quotas[:n] {
			if q := &quotas[j]; q.name == item.name && parts[j] != nil {
				part, told[j] = parts[j], true
				if part.Burst > 0 {
					quota = Quota{q.q, duration(max(q.w, 0))}
				}
				part.ResetsLate = part.ResetsLate || q.w > 0 && item.t > q.w
			}
		}
		if part == nil {
			continue
		}
		if part.Burst > 0 && part.HasRemaining {
			if second := max(item.r, part.Remaining) + 1; part.others == 0 || second < part.others {
				part.others = second
			}
		}
		if part.recordRest(item.r, duration(max(item.t, 0))) {
			part.tightest, holds = quota, true
		}
	}
	for i := range quotas[:n] {
		if parts[i] != nil && quotas[i].name != "" && !told[i] {
			parts[i].others = 0
		}
	}
	for i := range a.Units {
		a.Units[i].Field, a.Units[i].limitField = limitField, policyField
	}
	return holds
}

// unit returns the answer about a unit, nil if its limit is none of the line's.
func (a *Answer) unit(name string, units []string) *Answer {
	if name == "" || name == "requests" {
		return a
	}
	if i := slices.Index(units, name); i >= 0 {
		return &a.Units[i]
	}
	return nil
}
