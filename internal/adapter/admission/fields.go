package admission

import (
	"fmt"
	"math/bits"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/ral-limiter/ral/internal/core/shape"
	"github.com/ral-limiter/ral/internal/core/whole"
	"github.com/ral-limiter/ral/limits"
	"github.com/ral-limiter/ral/policy"
)

// maxInteger is the largest integer of a structured field (RFC 9651, section 3.3.1).
const maxInteger = 999_999_999_999_999

// Quota describes a limit for clients. It has 32 bytes, so that a list of one Quota needs no allocation.
type Quota struct {
	// Applies reports whether the request has a key for the limit, and clients are told of the limit.
	Applies bool
	// lasts reports whether a window begins with its first unit, and lasts for Window.
	lasts bool
	// replaced reports whether the limit was replaced after Window was read, so that Window is of the earlier limit.
	replaced bool
	// InUse reports whether units are in use until a request ends, as under a policy.InFlight. Window is then 0.
	InUse bool

	// limit is the Limit of the limit's decisions.
	limit int64
	// Most is the highest Remaining. It is below limit if the limit grants units on credit.
	Most   int64
	Window time.Duration
}

func quotaOf(limit policy.Policy) Quota {
	if limit == nil {
		return Quota{}
	}
	quota := Quota{Applies: true, limit: limit.Limit(), Most: shape.AtOnce(limit)}
	switch p := limit.(type) {
	case policy.Occupier:
		quota.InUse = true
	case policy.Windowed:
		quota.Window = p.Window()
	}
	// The policy's window is for limit units, and the quota's for Most units.
	if 0 <= quota.Most && quota.Most < quota.limit {
		hi, lo := bits.Mul64(uint64(quota.Window), uint64(quota.Most))
		window, _ := bits.Div64(hi, lo, uint64(quota.limit))
		quota.Window = time.Duration(window)
	}
	return quota
}

// claimed is quotaOf, and also sets lasts.
func claimed(limit policy.Policy) Quota {
	quota := quotaOf(limit)
	quota.lasts = lasts(limit)
	return quota
}

// lasts reports whether a window of the limit begins with its first unit.
func lasts(limit policy.Policy) bool {
	shaped, ok := limit.(shape.Shaped)
	return ok && shaped.Shape().Kind == shape.FixedWindow
}

// bound bounds the times of a window that begins with its first unit by the window's length. Two effects
// would tell a client more than that: a call may have read the clock before another call opened the window,
// and a limit rounds the time of a refusal at the window's begin up. Neither matters to a client, since a
// message takes longer.
func (v *Result) bound(quota *Quota) {
	if !quota.lasts {
		return
	}
	decision := &v.Decision
	decision.ResetAfter = min(decision.ResetAfter, quota.Window)
	// A later RetryAfter comes from a block of the key.
	if decision.RetryAfter <= quota.Window+whole.Own && v.Provenance.Err() == nil {
		decision.RetryAfter = min(decision.RetryAfter, quota.Window)
	}
}

// follow makes q the quota of the limit that decided, if the limit was replaced meanwhile. An answer that
// is not exact changes nothing, since it may tell of a server's share of the limit.
func (q *Quota) follow(answer *limits.Answer) {
	if answer.Exact() {
		q.followDecision(&answer.Decision)
	}
}

func (q *Quota) followDecision(decision *policy.Decision) {
	if decision.Limit != q.limit {
		q.limit, q.Most, q.lasts, q.replaced = decision.Limit, decision.Limit, false, true
	}
}

// Fields formats the values of RateLimit-Policy and RateLimit for limits.
type Fields struct {
	// quoted has the names of the limits as structured-field strings.
	quoted []string
	// left has, for each limit, the text of RateLimit up to the number of remaining units.
	left []string
	// hidden has the names of the limits that are hidden from clients.
	hidden map[string]bool
	// policies caches up to MaxPolicies values of RateLimit-Policy.
	policies atomic.Pointer[[]policyValue]
}

type policyValue struct {
	// quotas has one Quota for each limit.
	quotas []Quota
	value  string
}

// MaxPolicies is the most values of RateLimit-Policy that are kept.
const MaxPolicies = 16

// FieldFault makes the error about a field of a limit.
type FieldFault = func(field string, value any, want string) error

// WrongName returns a hint for an invalid name, or "" for a valid name.
func WrongName(name string) (want string) {
	switch {
	case shape.IsName(name):
		return ""
	case len(name) > shape.MaxName:
		return "at most 64 bytes"
	}
	return "printable ASCII"
}

// CheckOptions checks the options that all middleware has. noFinder reports whether its finder of addresses is zero.
func CheckOptions(name string, waitUpTo, spread, retryGuess time.Duration, noFinder bool, bad FieldFault) error {
	switch want := WrongName(name); {
	case want != "":
		return bad("Name", fmt.Sprintf("%.80q", name), want)
	case waitUpTo < 0:
		return bad("WaitUpTo", waitUpTo, "a positive duration, or 0 not to wait")
	case spread < 0:
		return bad("Spread", spread, "a positive duration, or 0 to tell the earliest time")
	case retryGuess < 0:
		return bad("RetryGuess", retryGuess, "a positive duration, or 0 for 1s")
	case noFinder:
		return bad("ClientAddr", "a zero ClientAddr", "the result of NewClientAddr, or nil for the connection's address")
	}
	return nil
}

// Add adds the name of the next limit. If another limit has the name, Add returns the error of bad.
func (f *Fields) Add(name string, hidden bool, bad FieldFault) error {
	quoted := string(AppendString(nil, name))
	if slices.Contains(f.quoted, quoted) {
		return bad("Name", fmt.Sprintf("%q", name), "a name that no other limit has")
	}
	f.quoted, f.left = append(f.quoted, quoted), append(f.left, quoted+";r=")
	if hidden && f.hidden == nil {
		f.hidden = map[string]bool{}
	}
	if hidden {
		f.hidden[name] = true
	}
	return nil
}

// Hides reports whether clients are not told of the limit of that name.
func (f *Fields) Hides(name string) bool { return f.hidden[name] }

// Quoted returns the names of the limits as structured-field strings.
func (f *Fields) Quoted() []string { return f.quoted }

// Cached returns the number of cached values.
func (f *Fields) Cached() int {
	known := f.policies.Load()
	if known == nil {
		return 0
	}
	return len(*known)
}

// Standing returns the value of RateLimit about the limit at that index.
func (f *Fields) Standing(at int, remaining int64, reset time.Duration) string {
	var buffer [128]byte
	return string(f.AppendStanding(buffer[:0], at, remaining, reset))
}

// AppendStanding appends the value of Standing.
func (f *Fields) AppendStanding(buffer []byte, at int, remaining int64, reset time.Duration) []byte {
	buffer = appendInteger(append(buffer, f.left[at]...), remaining)
	return appendInteger(append(buffer, ";t="...), whole.UntilReset(reset, time.Second))
}

// Policy returns the value of RateLimit-Policy.
func (f *Fields) Policy(quotas []Quota) string {
	known := f.policies.Load()
	if known != nil {
		for i := range *known {
			if value := &(*known)[i]; slices.Equal(value.quotas, quotas) {
				return value.value
			}
		}
	}
	value := f.format(quotas)
	if known == nil || len(*known) < MaxPolicies {
		more := []policyValue{{slices.Clone(quotas), value}}
		if known != nil {
			more = append(slices.Clone(*known), more[0])
		}
		f.policies.CompareAndSwap(known, &more)
	}
	return value
}

func (f *Fields) format(quotas []Quota) string {
	var buffer [256]byte
	encoded := buffer[:0]
	for i, quota := range quotas {
		if !quota.Applies {
			continue
		}
		if len(encoded) > 0 {
			encoded = append(encoded, ", "...)
		}
		encoded = append(encoded, f.quoted[i]...)
		encoded = appendInteger(append(encoded, ";q="...), quota.Most)
		if quota.InUse {
			encoded = append(encoded, `;qu="concurrent-requests"`...)
		}
		if quota.Window >= time.Second {
			encoded = appendInteger(append(encoded, ";w="...), whole.Up(quota.Window, time.Second))
		}
	}
	return string(encoded)
}

func appendInteger(buffer []byte, n int64) []byte {
	return strconv.AppendInt(buffer, min(n, maxInteger), 10)
}

// AppendString appends printable ASCII as a string of structured fields (RFC 9651, section 4.1.6)
// or JSON.
func AppendString(buffer []byte, text string) []byte {
	buffer = append(buffer, '"')
	for _, char := range []byte(text) {
		if char == '"' || char == '\\' {
			buffer = append(buffer, '\\')
		}
		buffer = append(buffer, char)
	}
	return append(buffer, '"')
}

// Both returns a key function for pairs of two keys. If a part is missing, so is the key.
func Both[R any, A, B comparable](a func(R) A, b func(R) B) func(R) limits.Pair[A, B] {
	return func(request R) limits.Pair[A, B] {
		var none limits.Pair[A, B]
		pair := limits.Pair[A, B]{A: a(request), B: b(request)}
		if pair.A == none.A || pair.B == none.B {
			return none
		}
		return pair
	}
}
