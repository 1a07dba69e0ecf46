package fleet

import "github.com/ral-limiter/ral/policy"

// By says how an answer was reached.
type By uint8

const (
	// ByNone: no decision; the call returned an error. The zero Answer has it.
	ByNone By = iota
	// ByExact: Redis decided.
	ByExact
	// ByLease: this server did, on units that it holds, or by what Redis said of late.
	ByLease
	// ByShare: this server did, by its share of the limit, without Redis.
	ByShare
	// ByOpen: Redis was not available, and the call passed.
	ByOpen
	// ByClosed: Redis was not available, and the call was refused.
	ByClosed
)

// String is "exact", "leased", "local", "open", "closed", or "none".
func (b By) String() string {
	names := [...]string{"none", "exact", "leased", "local", "open", "closed"}
	if int(b) < len(names) {
		return names[b]
	}
	return "none"
}

// Answer is what a call is told. The zero Answer is a refusal.
type Answer struct {
	// Decision is as in package policy. If By is ByLease, Remaining is what is left of
	// this server's own lease, and ResetAfter until when that lasts. If By is ByShare,
	// its figures are those of this server's share. If it is ByClosed, RetryAfter is a
	// guess of when Redis may be back.
	policy.Decision
	// By says how the answer was reached.
	By By
	// Cause is why Redis was not asked, or what is wrong with its answer. It is nil if By
	// is ByExact or ByLease. For errors.Is there are ErrOutage, and those about one key.
	Cause error
}
