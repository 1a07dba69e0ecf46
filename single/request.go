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
	patience  time.Duration
	notBefore policy.Instant // earliest start of an allowed call; 0 sets no bound
	inLine    bool           // the call is the head of the line
	charge    bool           // record -n units even if the limit does not allow them
}

const (
	noDelay = decide.NoDelay // start at once or not at all
	forever = policy.Never   // wait until the context ends
)

// decide answers q under the terms in d, and returns the next word if allowed.
func (q *request) decide(t *terms, word uint64, now policy.Instant, d *policy.Decision) (next uint64) {
	if q.charge {
		return decide.Refund(t.policy, t.refunder, word, now, q.n, d)
	}
	return decide.Take(t.policy, word, now, q.n, q.patience, q.notBefore, d)
}
