package rpclimit

import (
	"context"
	"errors"
	"fmt"
	"math/bits"
	"strconv"
	"time"

	"github.com/ral-limiter/ral/internal/adapter/admission"
	"github.com/ral-limiter/ral/internal/adapter/binding"
	"github.com/ral-limiter/ral/limits"
	"github.com/ral-limiter/ral/policy"
)

// Reason is the reason for which a call passes or is refused.
type Reason = admission.Reason

const (
	// Admitted: all limits had room.
	Admitted = admission.Admitted
	// Exempt: the procedure is exempt, or no limit applies to the call.
	Exempt = admission.Exempt
	// OverLimit: a limit has no room now. CodeResourceExhausted.
	OverLimit = admission.OverLimit
	// NoKey: the call has no key for a limit that needs one. CodeInvalidArgument.
	NoKey = admission.NoKey
	// Cancelled: the call's context ended while it waited for its turn. CodeCanceled, or
	// CodeDeadlineExceeded.
	Cancelled = admission.Cancelled
	// NeverAdmitted: a limit never admits the call, as it costs more than the limit allows at
	// once. CodeResourceExhausted, with a pushback that asks clients not to repeat it.
	NeverAdmitted = admission.NeverAdmitted
	// Misconfigured: the program is in error: PolicyFor chose a policy of another family than
	// that of the limiter, or a cost is below 0, or a function of the program panicked at a tap.
	// CodeInternal.
	Misconfigured = admission.Misconfigured
	// Unavailable: a limiter could not decide, and refuses, as a fleet of FallbackClosed.
	// CodeUnavailable.
	Unavailable = admission.Unavailable
)

// Verdict is the decision about a call, or about a message of a stream.
type Verdict struct {
	Reason Reason
	// Limit is the name of the limit that decided: of those that refused, the one with the
	// longest wait; of those that admitted, the one with the least share left. It is "" if no
	// limit decided.
	Limit string
	// Decision is the decision of that limit.
	Decision policy.Decision
	// RetryAfter is the time until all limits would admit the call, if the Reason is OverLimit
	// and no other call takes meanwhile. It is exact, unless Provenance.Exact is false: see
	// Retry. It is policy.Never if the limits never will.
	RetryAfter time.Duration
	// Provenance is how that decision was reached. Of several limits that refused it is that of one
	// which promises nothing, if there is one. It is nil if no limit decided.
	Provenance *limits.Provenance
	// Cost is the number of units that the call asked for of that limit.
	Cost int64
	// Waited is the time for which the call was delayed, or would have been without Shadow.
	Waited time.Duration
	// Shadow reports whether the call passes in any case.
	Shadow bool
	// Shadowed has the names of the limits with Limit.Shadow that would have refused a call
	// that the others admit. It is nil if there are none.
	Shadowed []string

	result admission.Result
	quotas []admission.Quota // of several limits, or nil
	limits *Limits
	call   *Call
	late   bool // whether the deadline ended the call

	panicked bool // whether a function of the program panicked
}

// verdict returns the verdict that a result is.
func (l *Limits) verdict(c *Call, r admission.Result, quotas []admission.Quota) Verdict {
	r.Shadow = l.shadow()
	return Verdict{
		Reason: r.Reason, Limit: r.Limit, Decision: r.Decision, RetryAfter: r.RetryAfter, Provenance: r.Provenance,
		Cost: r.Cost, Waited: r.Waited, Shadow: r.Shadow, Shadowed: r.Shadowed,
		result: r, quotas: quotas, limits: l, call: c,
		late: r.Reason == admission.Cancelled && errors.Is(c.Context.Err(), context.DeadlineExceeded),
	}
}

// tapped adds what was admitted at the tap.
func (v *Verdict) tapped(s *Session) {
	at := &s.verdict
	if v.Limit == "" && v.result.Reason.Passes() {
		// No other limit has decided.
		shadowed := v.Shadowed
		*v = *at
		v.Shadowed, v.result.Shadowed = shadowed, shadowed
		return
	}
	v.quotas = v.quotaList()
	for i, q := range at.quotaList() {
		if q.Applies {
			v.quotas[i] = q
		}
	}
	if v.Reason != Admitted || at.Limit == "" {
		return
	}
	least := binding.New(true)
	for i, q := range v.quotas {
		switch i {
		case at.result.Binding:
			least.See(i, &at.Decision, q.Most)
		case v.result.Binding:
			least.See(i, &v.Decision, q.Most)
		}
	}
	if of := &at.result; least.Index == of.Binding {
		v.Limit, v.Decision, v.Provenance, v.Cost = of.Limit, of.Decision, of.Provenance, of.Cost
		r := &v.result
		r.Binding, r.Limit, r.Decision, r.Provenance, r.Cost = of.Binding, of.Limit, of.Decision, of.Provenance, of.Cost
	}
}

// quotaList returns the quotas of all limits, of which only some need apply.
func (v *Verdict) quotaList() []admission.Quota {
	if v.quotas != nil {
		return v.quotas
	}
	list := make([]admission.Quota, len(v.limits.limits))
	list[v.result.Binding] = v.result.Quota
	return list
}

// Refused reports whether the call is to be refused, or the stream to be ended.
func (v *Verdict) Refused() bool { return !v.Shadow && !v.Reason.Passes() }

// Code returns the status that answers a call for that reason, or CodeOK if it passes.
func (v *Verdict) Code() Code {
	switch v.Reason {
	case OverLimit, NeverAdmitted:
		return CodeResourceExhausted
	case NoKey:
		return CodeInvalidArgument
	case Cancelled:
		if v.late {
			return CodeDeadlineExceeded
		}
		return CodeCanceled
	case Misconfigured:
		return CodeInternal
	case Unavailable:
		return CodeUnavailable
	}
	return CodeOK
}

// Message returns the text of the status that refuses a call. It names the limit, and no key.
func (v *Verdict) Message() string {
	if v.Reason == OverLimit { // the only one that is frequent
		var buffer [128]byte
		b := strconv.AppendQuote(append(buffer[:0], "the limit "...), v.Limit)
		b = append(b, " is exceeded"...)
		if after, ok := v.Retry(); ok {
			b = append(b, ": try again in "...)
			b = append(b, (time.Duration(milliseconds(after)) * time.Millisecond).String()...)
		}
		return string(b)
	}
	limit := "the limit " + strconv.Quote(v.Limit)
	switch v.Reason {
	case NeverAdmitted:
		text := limit + " never admits this call"
		if most := v.Decision.Limit; v.Cost > most {
			text += fmt.Sprintf(", which costs %d: the most that it allows is %d", v.Cost, most)
		}
		return text
	case NoKey:
		return "the call lacks the key of " + limit
	case Cancelled:
		if v.late {
			return "the call's deadline has passed"
		}
		return "the call was cancelled"
	case Misconfigured:
		switch {
		case v.panicked:
			return "the server failed to decide about the call"
		case v.Limit == "":
			return "the server is misconfigured: the call's cost is below 0"
		}
		return "the server is misconfigured: " + limit + " cannot be applied to this client"
	case Unavailable:
		return limit + " cannot be decided now"
	}
	return ""
}

// Retry returns RetryAfter, the time until the call would be admitted. ok is false if there is
// none or if it is a guess, which clients are not to be told: see limits.Provenance.
func (v *Verdict) Retry() (after time.Duration, ok bool) {
	if v.Reason != OverLimit || !v.Provenance.Exact() {
		return 0, false
	}
	return v.RetryAfter, true
}

// Pushback returns the value of grpc-retry-pushback-ms: milliseconds, rounded up, that a client
// is to wait before it repeats the call, or -1 if it must not, as the limit never admits the call. ok is
// false if nothing is to be said.
func (v *Verdict) Pushback() (ms int64, ok bool) {
	if v.Reason == NeverAdmitted {
		return -1, true
	}
	after, ok := v.Retry()
	if !ok {
		return 0, false
	}
	return milliseconds(after), true
}

// milliseconds returns whole milliseconds, rounded up, at least 1.
func milliseconds(d time.Duration) int64 {
	whole := int64(d / time.Millisecond)
	if d%time.Millisecond > 0 {
		whole++
	}
	return max(1, whole)
}

// Violation is a limit that refused a call.
type Violation struct {
	Limit  string        // its name
	Policy string        // the limit that holds for the key in words, such as "window 3/h", or ""
	By     string        // what the limit goes by, such as "address": see Key.By
	Max    int64         // the most units that the limit admits at once
	Window time.Duration // the time in which Max units come back, or 0
}

// Violations returns the limits that refused a call which is OverLimit or NeverAdmitted, in their
// order. It runs their Key and PolicyFor once more, on the goroutine that calls it.
func (v *Verdict) Violations() []Violation {
	if v.Reason != OverLimit && v.Reason != NeverAdmitted {
		return nil
	}
	return v.AppendViolations(make([]Violation, 0, bits.OnesCount8(v.result.Violated)))
}

// AppendViolations is Violations for callers that have a buffer: it appends the limits to all.
func (v *Verdict) AppendViolations(all []Violation) []Violation {
	if v.Reason != OverLimit && v.Reason != NeverAdmitted {
		return all
	}
	quotas := v.quotaList()
	for i := range v.limits.limits {
		if v.result.Violated&(1<<i) == 0 {
			continue
		}
		c := &v.limits.limits[i]
		all = append(all, Violation{
			Limit: c.Of().Title(), Policy: c.Describe(v.call), By: c.by, Max: quotas[i].Most, Window: quotas[i].Window,
		})
	}
	return all
}

// RateLimit returns the values of the fields RateLimit-Policy and RateLimit of
// draft-ietf-httpapi-ratelimit-headers-11, as httplimit.RateLimitHeaders describes them, of a call
// that is Admitted or OverLimit. What the limiter does not promise is "", and both are under Shadow.
func (v *Verdict) RateLimit() (policies, standing string) {
	var buffer [128]byte
	policies, b := v.AppendRateLimit(buffer[:0])
	return policies, string(b)
}

// AppendRateLimit is RateLimit for callers that have a buffer: it appends the value of RateLimit
// to b.
func (v *Verdict) AppendRateLimit(b []byte) (policies string, standing []byte) {
	if v.Shadow || v.Limit == "" || v.Reason != Admitted && v.Reason != OverLimit {
		return "", b
	}
	policies = v.limits.fields.Policy(v.quotaList())
	if !v.Provenance.Exact() {
		return policies, b
	}
	reset := v.Decision.ResetAfter
	if v.Reason == OverLimit {
		reset = v.Decision.RetryAfter // a retry must not be told for earlier than the reset
	}
	return policies, v.limits.fields.AppendStanding(b, v.result.Binding, v.Decision.Remaining, reset)
}
