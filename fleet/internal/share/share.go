package share

import (
	"fmt"
	"math"
	"time"

	"github.com/ral-limiter/ral/fleet/internal/slidinglog"
	"github.com/ral-limiter/ral/internal/core/shape"
	"github.com/ral-limiter/ral/policy"
)

// longest is the longest period that a limit that counts in windows can have.
const longest = 366 * 24 * time.Hour

// Of returns the limit that one of so many servers keeps by itself, such that all of them
// together keep to p: of the same kind, with the capacity divided, rounded down but at
// least 1, and the rate divided exactly. A limit that counts in windows and lets pass
// fewer units than there are servers becomes one of 1 in a longer window.
//
// What cannot be divided any more, because a share would have to last longer than a word
// holds, is divided by fewer: the shares are larger then, and never smaller than the
// limit divided so. The error is that p is none of those whose shape is known.
//
// Servers that begin afresh admit up to a capacity together at once, as one limit that
// begins afresh does; if there are more servers than capacity, one unit each.
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

// divider returns what makes the share of one of n servers.
func divider(p policy.Policy) (func(n int64) (policy.Policy, error), error) {
	if log, ok := p.(*slidinglog.Log); ok {
		return windows(log.Limit(), log.Per, policy.AtMost), nil
	}
	shaped, ok := p.(shape.Shaped)
	if !ok {
		return nil, fmt.Errorf("ral: a %T has no shares", p)
	}
	switch s := shaped.Shape(); s.Kind {
	case shape.Funnel:
		return func(n int64) (policy.Policy, error) {
			return policy.Funnel(max(s.Capacity/n, 1), s.Count, times(s.Per, n))
		}, nil
	case shape.Queue:
		return func(n int64) (policy.Policy, error) {
			return policy.Queue(max(s.Limit/n-1, 0), s.Count, times(s.Per, n))
		}, nil
	case shape.Bursty:
		return func(n int64) (policy.Policy, error) {
			return policy.Bursty(s.Count, times(s.Per, n), s.Capacity/n)
		}, nil
	case shape.FixedWindow:
		return windows(s.Limit, s.Per, policy.FixedWindow), nil
	case shape.SlidingWindow:
		return windows(s.Limit, s.Per, policy.SlidingWindow), nil
	case shape.AlignedWindow:
		return windows(s.Limit, s.Per, policy.AlignedWindow), nil
	}
	return nil, fmt.Errorf("ral: a %T has no shares", p)
}

// windows divides a limit of so many units in a period.
func windows(limit int64, per time.Duration, of func(int64, time.Duration) (policy.Policy, error)) func(int64) (policy.Policy, error) {
	return func(n int64) (policy.Policy, error) {
		if limit >= n {
			return of(limit/n, per)
		}
		return of(1, min(times(per, (n+limit-1)/limit), longest))
	}
}

// times multiplies a period, up to the longest that there is.
func times(per time.Duration, n int64) time.Duration {
	if int64(per) > math.MaxInt64/n {
		return math.MaxInt64
	}
	return per * time.Duration(n)
}
