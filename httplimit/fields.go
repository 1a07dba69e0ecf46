package httplimit

import (
	"math"
	"net/http"
	"strconv"
	"time"

	"github.com/ral-limiter/ral/internal/adapter/admission"
	"github.com/ral-limiter/ral/internal/core/whole"
	"github.com/ral-limiter/ral/limits"
)

// The names of header fields, in the canonical form of net/http.
const (
	policyField = "Ratelimit-Policy"
	limitField  = "Ratelimit"

	legacyLimit, legacyRemaining, legacyReset = "Ratelimit-Limit", "Ratelimit-Remaining", "Ratelimit-Reset"
	xLimit, xRemaining, xReset                = "X-Ratelimit-Limit", "X-Ratelimit-Remaining", "X-Ratelimit-Reset"

	springCapacity, springRate, springRequested = "X-Ratelimit-Burst-Capacity", "X-Ratelimit-Replenish-Rate", "X-Ratelimit-Requested-Tokens"

	retryAfterField, retryMillis, shouldRetry = "Retry-After", "Retry-After-Ms", "X-Should-Retry"
)

// retrySeconds returns the value of Retry-After: at least 1, as 0 invites the client at once.
func retrySeconds(duration time.Duration) int64 { return max(1, whole.Up(duration, time.Second)) }

type fieldWriter struct {
	admission.Fields
	headers HeaderSet
}

// write sets the fields for the limit that decided. It allocates only their values. quotas belong
// to several limits, or are nil. If the limiter's answer is not exact, or its limit is hidden, only the
// policy is told.
func (f *fieldWriter) write(header http.Header, result *result, quotas []quota, exact bool) {
	decided := &result.Quota
	if quotas != nil {
		decided = &quotas[result.Binding]
	}
	reset := result.Decision.ResetAfter
	if result.Reason == limits.OverLimit {
		// Retry-After must not be earlier than the reset.
		reset = result.Decision.RetryAfter
	}
	limit, remaining := decided.Most, result.Decision.Remaining
	if f.headers&RateLimitHeaders != 0 {
		if quotas == nil {
			quotas = []quota{result.Quota}
		}
		if !exact {
			if policies := f.Policy(quotas); policies != "" {
				header[policyField] = after(header[policyField], []string{policies})
			}
			return
		}
		// A single allocation serves two fields.
		both := &[...]string{f.Policy(quotas), f.Standing(result.Binding, remaining, reset)}
		policies, stands := both[0:1:1], both[1:2:2]
		if len(header) > 0 {
			policies, stands = after(header[policyField], policies), after(header[limitField], stands)
		}
		header[policyField], header[limitField] = policies, stands
	}
	older := f.headers & (LegacyHeaders | XRateLimitHeaders | SpringHeaders)
	if older == 0 || !exact {
		return
	}
	tells := func(limitName, remainingName string) bool {
		return result.Reason != limits.Admitted || !tighter(header[limitName], header[remainingName], limit, remaining)
	}
	if older&LegacyHeaders != 0 && tells(legacyLimit, legacyRemaining) {
		three(header, legacyLimit, limit, legacyRemaining, remaining, legacyReset, whole.UntilReset(reset, time.Second))
	}
	x, spring := older&XRateLimitHeaders != 0, older&SpringHeaders != 0
	if !x && !spring || !tells(xLimit, xRemaining) || !tells(springCapacity, xRemaining) {
		return
	}
	// Both sets have this field, so no field of another limit stays beside it.
	if len(header[xRemaining]) > 0 {
		for _, field := range [...]string{xLimit, xReset, springCapacity, springRate, springRequested} {
			delete(header, field)
		}
	}
	if spring {
		header[xRemaining] = []string{strconv.FormatInt(remaining, 10)}
		header[springCapacity] = []string{strconv.FormatInt(limit, 10)}
		header[springRequested] = []string{strconv.FormatInt(result.Cost, 10)}
		if decided.Window > 0 {
			rate := math.Round(float64(limit)/decided.Window.Seconds()*1e6) / 1e6
			header[springRate] = []string{strconv.FormatFloat(rate, 'f', -1, 64)}
		}
	}
	if x {
		at := time.Now().Add(reset)
		unix := at.Unix()
		if at.Nanosecond() > 0 {
			unix++
		}
		three(header, xLimit, limit, xRemaining, remaining, xReset, unix)
	}
}

// writeRetry sets the fields of RetryHeaders on a refusal. Milliseconds without turns would bring a
// herd back at the same instant.
func writeRetry(header http.Header, result *result, turns bool) {
	switch {
	case result.Reason == limits.OverLimit && (!turns || !result.Provenance.TellsRetry()):
	case result.Reason == limits.OverLimit:
		header[retryMillis] = []string{strconv.FormatInt(max(1, whole.Up(result.RetryAfter, time.Millisecond)), 10)}
	case result.Reason != limits.OverLimit && result.Reason != limits.Cancelled && result.Reason != limits.Unavailable:
		header[shouldRetry] = []string{"false"}
	}
}

// after appends line to the lines of a field that an outer middleware has set.
func after(before, line []string) []string {
	if len(before) == 0 {
		return line
	}
	return append(before[:len(before):len(before)], line...)
}

// tighter reports whether the limit in an outer middleware's fields has no larger share left than
// this limit. The older fields have room for a single limit: the client will reach that limit
// first.
func tighter(limits, remainings []string, limit, remaining int64) bool {
	if len(limits) != 1 || len(remainings) != 1 {
		return false
	}
	outer, err1 := strconv.ParseInt(limits[0], 10, 64)
	left, err2 := strconv.ParseInt(remainings[0], 10, 64)
	return err1 == nil && err2 == nil &&
		float64(left)/float64(max(outer, 1)) <= float64(remaining)/float64(max(limit, 1))
}

func three(header http.Header, limitName string, limit int64, remainingName string, remaining int64, resetName string, reset int64) {
	var buffer [64]byte
	encoded := strconv.AppendInt(buffer[:0], limit, 10)
	first := len(encoded)
	encoded = strconv.AppendInt(encoded, remaining, 10)
	second := len(encoded)
	encoded = strconv.AppendInt(encoded, reset, 10)
	all := string(encoded)
	values := [...]string{all[:first], all[first:second], all[second:]}
	list := values[:]
	header[limitName] = list[0:1:1]
	header[remainingName] = list[1:2:2]
	header[resetName] = list[2:3:3]
}
