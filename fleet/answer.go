package fleet

import (
	"github.com/ral-limiter/ral/limits"
	"github.com/ral-limiter/ral/policy"
)

// Answer is what a call is told. The zero Answer is a refusal.
type Answer struct {
	// Decision is as in package policy, if it is Promised. If Source is SourceLease,
	// Remaining is what is left of this server's own lease, and ResetAfter until when that
	// lasts; RetryAfter is when this server will ask Redis again. If it is SourceShare, the
	// figures are those of this server's share. If it is SourceOpen, Remaining is what a key
	// that was never used has. If it is SourceClosed, RetryAfter is a guess of when Redis
	// may be back.
	policy.Decision
	// Source is what the answer was decided by.
	Source Source
	// Promised reports whether Remaining, RetryAfter and ResetAfter are those of the limit
	// over all servers: Redis decided, in Exact mode. Do not tell clients others. A RetryAfter
	// of policy.Never always means that the call asks for more than the limit allows.
	Promised bool
	// Cause is why Redis was not asked, or what is wrong with its answer, and ErrBlocked if
	// the key was blocked before. The refusal that makes a block, by Config.Penalty, is one of
	// the limit, and has no ErrBlocked. Cause is nil otherwise, if Source is SourceRedis or SourceLease. For
	// errors.Is there are ErrOutage, ErrBlocked, and those about one key.
	Cause error
}

// Source is what an answer was decided by.
type Source = limits.Source

// The sources of a limiter's answers.
const (
	// SourceNone: no decision; the call returned an error. The zero Answer has it.
	SourceNone = limits.SourceNone
	// SourceRedis: Redis decided.
	SourceRedis = limits.SourceRedis
	// SourceLease: this server decided, on units that it holds or by what Redis said of late.
	SourceLease = limits.SourceLease
	// SourceShare: Redis was not available, and this server decided by its share of the limit.
	SourceShare = limits.SourceShare
	// SourceOpen: Redis was not available, and the call passed by FallbackOpen.
	SourceOpen = limits.SourceOpen
	// SourceClosed: Redis was not available, and the call was refused by FallbackClosed.
	SourceClosed = limits.SourceClosed
)
