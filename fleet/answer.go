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
	byEmptied      = limits.NewProvenance(limits.SourceRedis, false, ErrEmptied)
	byLease        = limits.NewProvenance(limits.SourceLease, false, nil)
	byLeaseBlocked = limits.NewProvenance(limits.SourceLease, false, limits.ErrBlocked)
)

// blocked returns provenance for a refusal because of a block.
func blocked(provenance *limits.Provenance) *limits.Provenance {
	switch {
	case provenance == byLease:
		return byLeaseBlocked
	case provenance.Err() == nil:
		return limits.NewProvenance(provenance.Source(), provenance.Exact(), limits.ErrBlocked)
	}
	return limits.NewProvenance(provenance.Source(), provenance.Exact(), fmt.Errorf("%w; %w", provenance.Err(), limits.ErrBlocked))
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

// answerFor returns the answer to a call of an adapter that ended with the error. The refusal of a call that
// waits in vain is an answer.
func answerFor(answer limits.Answer, err error) (limits.Answer, error) {
	switch {
	case err == nil, errors.Is(err, engine.ErrNever), errors.Is(err, engine.ErrDeadline):
		return forAdapters(answer), nil
	case errors.Is(err, engine.ErrCrowded):
		return limits.Answer{Decision: answer.Decision, Provenance: limits.NewProvenance(answer.Source(), answer.Exact(), err)}, nil
	}
	return noAnswerFor(err)
}

// forAdapters shows a refusal for lack of a share as an outage.
func forAdapters(answer limits.Answer) limits.Answer {
	if !answer.Allowed && lacksShare(&answer) {
		answer.Provenance = limits.NewProvenance(limits.SourceClosed, answer.Exact(), answer.Err())
	}
	return answer
}

// refuseBlocked turns the answer of a call that took nothing into a refusal until the block ends, if time is left.
func refuseBlocked(answer *limits.Answer, left time.Duration) {
	if left <= 0 {
		return
	}
	answer.Allowed, answer.Remaining, answer.Wait = false, 0, 0
	answer.RetryAfter, answer.ResetAfter = max(answer.RetryAfter, left), max(answer.ResetAfter, left)
	answer.Provenance = blocked(answer.Provenance)
}

func isBlocked(answer *limits.Answer) bool {
	return !answer.Allowed && answer.Err() != nil && errors.Is(answer.Err(), limits.ErrBlocked)
}

// isUnavailable reports whether an answer is a refusal because Redis was away. The limit refuses a
// call for more than it ever has.
func isUnavailable(answer *limits.Answer) bool {
	return answer.RetryAfter != policy.Never && (answer.Source() == limits.SourceClosed || lacksShare(answer))
}

// lacksShare reports whether this server lacked a share to decide by.
func lacksShare(answer *limits.Answer) bool {
	return answer.Source() == limits.SourceShare && errors.Is(answer.Err(), ErrUncounted)
}

// late is the error of a call that cannot wait for the end of a block.
func late(answer *limits.Answer) error {
	return fmt.Errorf("%w: %w for %v", engine.ErrDeadline, limits.ErrBlocked, answer.RetryAfter)
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

func (t *tally) count(n int64, answer *limits.Answer) {
	if n == 0 {
		return
	}
	t.by[answer.Source()].Add(1)
	switch {
	case answer.Allowed:
		t.admitted.Add(1)
	case isBlocked(answer):
		t.blocked.Add(1)
	case isUnavailable(answer):
		t.unavailable.Add(1)
	default:
		t.overLimit.Add(1)
	}
}
