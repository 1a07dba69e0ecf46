package part

import (
	"fmt"
	"math"
	"time"

	"github.com/ral-limiter/ral/fleet/internal/slidinglog"
	"github.com/ral-limiter/ral/internal/core/shape"
	"github.com/ral-limiter/ral/policy"
)

// maxPeriod is the longest period of a limit that counts in windows.
const maxPeriod = 366 * 24 * time.Hour

// Of returns a server's share of p, so that all servers together keep p. It has the same kind, the
// capacity divided, rounded down to at least 1, and the rate divided exactly. A limit that counts
// in windows with fewer units than servers becomes 1 in a longer window.
//
// If a word cannot hold such a share it is divided by fewer servers, and larger. The error is that
// the shape of p is unknown. Fresh servers together admit up to a capacity at once, like a fresh
// limit, but at least one unit each.
func Of(p policy.Policy, servers int) (policy.Policy, error) {
	divide, err := divider(p)
	if err != nil {
		return nil, err
	}
	for n := int64(max(servers, 1)); n > 1; n /= 2 {
		if part, err := divide(n); err == nil {
			return part, nil
		}
	}
	return divide(1)
}

// divider returns a function for the share of one of n servers.
func divider(limit policy.Policy) (func(n int64) (policy.Policy, error), error) {
	if log, ok := limit.(*slidinglog.Log); ok {
		return windows(log.Limit(), log.Per, policy.AtMost), nil
	}
	shaped, ok := limit.(shape.Shaped)
	if !ok {
		return nil, fmt.Errorf("ral: a %T has no shares", limit)
	}
	switch form := shaped.Shape(); form.Kind {
	case shape.Funnel:
		return func(n int64) (policy.Policy, error) {
			return policy.Funnel(max(form.Capacity/n, 1), form.Count, times(form.Per, n))
		}, nil
	case shape.Queue:
		return func(n int64) (policy.Policy, error) {
			return policy.Queue(max(form.Limit/n-1, 0), form.Count, times(form.Per, n))
		}, nil
	case shape.Bursty:
		return func(n int64) (policy.Policy, error) {
			return policy.Bursty(form.Count, times(form.Per, n), form.Capacity/n)
		}, nil
	case shape.FixedWindow:
		return windows(form.Limit, form.Per, policy.FixedWindow), nil
	case shape.SlidingWindow:
		return windows(form.Limit, form.Per, policy.SlidingWindow), nil
	case shape.AlignedWindow:
		return windows(form.Limit, form.Per, policy.AlignedWindow), nil
	}
	return nil, fmt.Errorf("ral: a %T has no shares", limit)
}

// windows divides limit units in a period.
func windows(limit int64, per time.Duration, window func(int64, time.Duration) (policy.Policy, error)) func(int64) (policy.Policy, error) {
	return func(n int64) (policy.Policy, error) {
		if limit >= n {
			return window(limit/n, per)
		}
		return window(1, min(times(per, (n+limit-1)/limit), maxPeriod))
	}
}

// times multiplies a period, up to the longest duration.
func times(per time.Duration, n int64) time.Duration {
	if int64(per) > math.MaxInt64/n {
		return math.MaxInt64
	}
	return per * time.Duration(n)
}
