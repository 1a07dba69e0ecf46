package single

import (
	"time"

	"github.com/ral-limiter/ral/internal/core/decide"
	"github.com/ral-limiter/ral/policy"
)

type request struct {
	n int64
	// patience bounds how late an allowed call may start. noDelay refuses any delay, even a
	// policy's own.
	patience time.Duration
	// notBefore is the earliest start of an allowed call. 0 sets no bound.
	notBefore policy.Instant
	// inLine means that the call is the head of the line.
	inLine bool
	// charge records -n units even if the limit does not allow them.
	charge bool
}

const (
	// noDelay starts a call at once or not at all.
	noDelay = decide.NoDelay
	// forever waits until the context ends.
	forever = policy.Never
)

// decide answers q under the terms in decision, and returns the next word if allowed.
func (q *request) decide(terms *terms, word uint64, now policy.Instant, decision *policy.Decision) (next uint64) {
	if q.charge {
		return decide.Refund(terms.policy, terms.refunder, word, now, q.n, decision)
	}
	return decide.Take(terms.policy, word, now, q.n, q.patience, q.notBefore, decision)
}
