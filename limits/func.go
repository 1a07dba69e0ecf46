package limits

import (
	"context"
	"time"

	"github.com/ral-limiter/ral/policy"
)

// Func is a [Limiter] that answers each call by a function, for tests of code that asks a limiter. The
// function gets the key and the number of units, and must be safe for concurrent use. It may return an answer of
// [NewAllowance] or [NewRefusal], or an error for an outage. A grant of Hold holds no units, so Settle and Cancel
// do nothing. Hold ignores Patience and Limit, and LimitFor returns nil.
type Func[K comparable] func(ctx context.Context, key K, n int64) (Answer, error)

// Admit calls f.
func (f Func[K]) Admit(ctx context.Context, key K, n int64) (Answer, error) { return f(ctx, key, n) }

// Hold calls f with the call's key and units.
func (f Func[K]) Hold(ctx context.Context, call Call[K]) (Grant, error) {
	answer, err := f(ctx, call.Key, call.N)
	return Grant{Answer: answer}, err
}

// LimitFor returns nil.
func (f Func[K]) LimitFor(K) policy.Policy { return nil }

var byFunc = NewProvenance(SourceProcess, true, nil)

// NewAllowance returns the exact answer to an admitted call, for a [Func].
func NewAllowance(limit, remaining int64) Answer {
	return Answer{policy.Decision{Allowed: true, Limit: limit, Remaining: remaining}, byFunc}
}

// NewRefusal returns the exact answer to a call that has room after d, for a [Func].
func NewRefusal(limit int64, d time.Duration) Answer {
	return Answer{policy.Decision{Limit: limit, RetryAfter: d, ResetAfter: d}, byFunc}
}
