package fleet

import (
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/ral-limiter/ral/engine"
	"github.com/ral-limiter/ral/limits"
	"github.com/ral-limiter/ral/policy"
)

var (
	byRedis        = limits.NewProvenance(limits.SourceRedis, true, nil)
	besideLeases   = limits.NewProvenance(limits.SourceRedis, false, nil)
	byLease        = limits.NewProvenance(limits.SourceLease, false, nil)
	byLeaseBlocked = limits.NewProvenance(limits.SourceLease, false, limits.ErrBlocked)
)

// blocked returns p for a refusal because of a block.
func blocked(p *limits.Provenance) *limits.Provenance {
	switch {
	case p == byLease:
		return byLeaseBlocked
	case p.Err() == nil:
		return limits.NewProvenance(p.Source(), p.Exact(), limits.ErrBlocked)
	}
	return limits.NewProvenance(p.Source(), p.Exact(), fmt.Errorf("%w; %w", p.Err(), limits.ErrBlocked))
}

// misfit answers a call with a limit of another family, like an engine.
var misfit = limits.Answer{Decision: policy.Decision{RetryAfter: policy.Never}}

// noAnswerFor returns a refusal for an error of the call's limit, and other errors as they are.
func noAnswerFor(err error) (limits.Answer, error) {
	if errors.Is(err, ErrMisfit) || errors.Is(err, ErrModeUnsupported) || errors.Is(err, ErrTooManyLimits) {
		return limits.Answer{Decision: misfit.Decision, Provenance: limits.NewProvenance(limits.SourceRedis, true, err)}, nil
	}
	return limits.Answer{}, err
}

// forAdapters shows a refusal for lack of a share as an outage.
func forAdapters(a limits.Answer) limits.Answer {
	if !a.Allowed && lacksShare(&a) {
		a.Provenance = limits.NewProvenance(limits.SourceClosed, a.Exact(), a.Err())
	}
	return a
}

// refuseBlocked turns a, which took nothing, into a refusal until the block ends, if time is left.
func refuseBlocked(a *limits.Answer, left time.Duration) {
	if left <= 0 {
		return
	}
	a.Allowed, a.Remaining, a.Wait = false, 0, 0
	a.RetryAfter, a.ResetAfter = max(a.RetryAfter, left), max(a.ResetAfter, left)
	a.Provenance = blocked(a.Provenance)
}

func isBlocked(a *limits.Answer) bool {
	return !a.Allowed && a.Err() != nil && errors.Is(a.Err(), limits.ErrBlocked)
}

// isUnavailable reports whether an answer is a refusal because Redis was away. The limit refuses a
// call for more than it ever has.
func isUnavailable(a *limits.Answer) bool {
	return a.RetryAfter != policy.Never && (a.Source() == limits.SourceClosed || lacksShare(a))
}

// lacksShare reports whether this server lacked a share to decide by.
func lacksShare(a *limits.Answer) bool {
	return a.Source() == limits.SourceShare && errors.Is(a.Err(), ErrUncounted)
}

// late is the error of a call that cannot wait for the end of a block.
func late(a *limits.Answer) error {
	return fmt.Errorf("%w: %w for %v", engine.ErrDeadline, limits.ErrBlocked, a.RetryAfter)
}

// tally counts answers, except leased answers, which the leases count.
type tally struct {
	by       [limits.SourceClosed + 1]atomic.Uint64
	admitted atomic.Uint64
	charged  atomic.Uint64
	excess   atomic.Uint64 // of charged

	// overLimit, blocked and unavailable count refusals.
	overLimit, blocked, unavailable atomic.Uint64
	blocks, penalties               atomic.Uint64
}

func (t *tally) count(n int64, a *limits.Answer) {
	if n == 0 {
		return
	}
	t.by[a.Source()].Add(1)
	switch {
	case a.Allowed:
		t.admitted.Add(1)
	case isBlocked(a):
		t.blocked.Add(1)
	case isUnavailable(a):
		t.unavailable.Add(1)
	default:
		t.overLimit.Add(1)
	}
}
