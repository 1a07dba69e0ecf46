package rpclimit

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/ral-limiter/ral/internal/adapter/admission"
	"github.com/ral-limiter/ral/internal/adapter/binding"
	"github.com/ral-limiter/ral/internal/core/whole"
	"github.com/ral-limiter/ral/limits"
)

// Verdict is the decision about a call or a message. Tell clients Retry, not RetryAfter.
type Verdict struct {
	limits.Verdict

	// binding is the index of the limit that Limit names.
	binding int
	// violated has a bit for each limit that refused.
	violated uint8
	// quota is the quota of a single limit.
	quota admission.Quota
	// quotas are the quotas of several limits, or nil.
	quotas []admission.Quota
	guard  *Guard
	call   *Call
	// late reports whether the deadline ended the call.
	late bool
	// panicked reports whether a function of the program panicked.
	panicked bool
}

func (g *Guard) verdict(call *Call, result admission.Result, quotas []admission.Quota) Verdict {
	result.Shadow = g.shadow()
	return Verdict{
		Verdict: result.Verdict, binding: result.Binding, violated: result.Violated, quota: result.Quota, quotas: quotas, guard: g, call: call,
		late: result.Reason == limits.Cancelled && errors.Is(call.Context.Err(), context.DeadlineExceeded),
	}
}

// tapped adds the tap's decision, made before v.
func (v *Verdict) tapped(session *Session) {
	first := &session.verdict
	if v.Limit == "" && v.Reason.Passes() {
		shadowed := v.Shadowed
		*v = *first
		v.Shadowed = shadowed
		return
	}
	v.quotas = v.quotaList()
	for i, quota := range first.quotaList() {
		if quota.Applies {
			v.quotas[i] = quota
		}
	}
	if v.Reason != limits.Admitted || first.Limit == "" {
		return
	}
	least := binding.New(true)
	for i, quota := range v.quotas {
		switch i {
		case first.binding:
			least.See(i, &first.Decision, quota.Most)
		case v.binding:
			least.See(i, &v.Decision, quota.Most)
		}
	}
	if !first.hidden() && v.hidden() || first.hidden() == v.hidden() && least.Index == first.binding {
		v.binding, v.Limit, v.Decision, v.Provenance, v.Cost = first.binding, first.Limit, first.Decision, first.Provenance, first.Cost
	}
}

// quotaList returns the quotas of all limits; not all need apply.
func (v *Verdict) quotaList() []admission.Quota {
	if v.quotas != nil {
		return v.quotas
	}
	list := make([]admission.Quota, len(v.guard.limits))
	list[v.binding] = v.quota
	return list
}

// Code returns the status for a refused call, or CodeOK. The code is CodeResourceExhausted for
// OverLimit and NeverAdmitted, CodeInvalidArgument for NoKey, CodeInternal for Misconfigured, and
// CodeUnavailable for Unavailable. Cancelled is CodeCanceled or CodeDeadlineExceeded.
func (v *Verdict) Code() Code {
	switch v.Reason {
	case limits.OverLimit, limits.NeverAdmitted:
		return CodeResourceExhausted
	case limits.NoKey:
		return CodeInvalidArgument
	case limits.Cancelled:
		if v.late {
			return CodeDeadlineExceeded
		}
		return CodeCanceled
	case limits.Misconfigured:
		return CodeInternal
	case limits.Unavailable:
		return CodeUnavailable
	}
	return CodeOK
}

// Message returns the text of the status that refuses a call. The text names the limit, and no key.
func (v *Verdict) Message() string {
	// The limit is the frequent reason.
	if v.Reason == limits.OverLimit {
		var buffer [128]byte
		encoded := append(buffer[:0], "the limit"...)
		if !v.hidden() {
			encoded = strconv.AppendQuote(append(encoded, ' '), v.Limit)
		}
		if v.Provenance.Guess() {
			encoded = append(encoded, " is reduced during an outage"...)
		} else {
			encoded = append(encoded, " is exceeded"...)
		}
		if after, ok := v.Retry(); ok {
			encoded = append(encoded, ": try again in "...)
			if v.Provenance.Guess() {
				encoded = append(encoded, "about "...)
			}
			encoded = append(encoded, (time.Duration(milliseconds(after)) * time.Millisecond).String()...)
		}
		return string(encoded)
	}
	limit := "the limit"
	if !v.hidden() {
		limit += " " + strconv.Quote(v.Limit)
	}
	switch v.Reason {
	case limits.NeverAdmitted:
		text := limit + " never admits this call"
		if most := v.Decision.Limit; v.Cost > most && !v.hidden() {
			text += fmt.Sprintf(", which costs %d: the most that it allows is %d", v.Cost, most)
		}
		return text
	case limits.NoKey:
		return "the call lacks the key of " + limit
	case limits.Cancelled:
		if v.late {
			return "the call's deadline has passed"
		}
		return "the call was cancelled"
	case limits.Misconfigured:
		switch {
		case v.panicked:
			return "the server failed to decide about the call"
		case v.Limit == "":
			return "the server is misconfigured: the call's cost is below 0"
		}
		return "the server is misconfigured: " + limit + " cannot be applied to this client"
	case limits.Unavailable:
		if errors.Is(v.Provenance.Err(), limits.ErrLost) {
			return "the server lost the call's place under a limit"
		}
		return limit + " cannot be decided now"
	}
	return ""
}

// hidden reports whether clients are not told of the limit that decided.
func (v *Verdict) hidden() bool { return v.guard != nil && v.guard.fields.Hides(v.Limit) }

// Retry returns RetryAfter, the time until the call would be admitted or has its turn, or a guess of
// it (see limits.Provenance.Guess). ok is false if there is none.
func (v *Verdict) Retry() (after time.Duration, ok bool) {
	if v.Reason != limits.OverLimit || !v.Provenance.TellsRetry() {
		return 0, false
	}
	return v.RetryAfter, true
}

// Pushback returns the value of grpc-retry-pushback-ms, milliseconds rounded up. The value is -1 if
// the limit never admits the call. ok is false if there is no value.
func (v *Verdict) Pushback() (ms int64, ok bool) {
	if v.Reason == limits.NeverAdmitted {
		return -1, true
	}
	after, ok := v.Retry()
	if !ok {
		return 0, false
	}
	return milliseconds(after), true
}

// milliseconds returns whole milliseconds, rounded up, at least 1.
func milliseconds(duration time.Duration) int64 { return max(1, whole.Up(duration, time.Millisecond)) }

// Violation is a limit that refused a call.
type Violation struct {
	// Limit is the limit's name.
	Limit string
	// Policy is the limit that holds for the key in words, such as "window 3/h", or "".
	Policy string
	// By is the kind of key, such as "address": see Key.By.
	By string
	// Max is the most units that the limit admits at once.
	Max int64
	// Window is the time in which Max units come back, or 0.
	Window time.Duration
}

// AppendViolations appends the limits that refused a call that is OverLimit or NeverAdmitted, in
// their order, without those that are Hidden. AppendViolations runs their Key and PolicyFor once
// more, on the caller's goroutine.
func (v *Verdict) AppendViolations(all []Violation) []Violation {
	if v.Reason != limits.OverLimit && v.Reason != limits.NeverAdmitted {
		return all
	}
	quotas := v.quotaList()
	for i := range v.guard.limits {
		checked := &v.guard.limits[i]
		if v.violated&(1<<i) == 0 || checked.Of().Hidden {
			continue
		}
		all = append(all, Violation{
			Limit: checked.Of().Name, Policy: checked.Describe(v.call), By: checked.by, Max: quotas[i].Most, Window: quotas[i].Window,
		})
	}
	return all
}

// AppendRateLimit returns RateLimit-Policy and appends RateLimit to b: see
// httplimit.RateLimitHeaders. Inexact values, and both under Shadow, are empty.
func (v *Verdict) AppendRateLimit(b []byte) (policies string, standing []byte) {
	if v.Shadow || v.Limit == "" || v.Reason != limits.Admitted && v.Reason != limits.OverLimit {
		return "", b
	}
	policies = v.guard.fields.Policy(v.quotaList())
	if !v.Provenance.Exact() || v.hidden() {
		return policies, b
	}
	reset := v.Decision.ResetAfter
	if v.Reason == limits.OverLimit {
		// A retry must not be told for earlier than the reset.
		reset = v.Decision.RetryAfter
	}
	return policies, v.guard.fields.AppendStanding(b, v.binding, v.Decision.Remaining, reset)
}
