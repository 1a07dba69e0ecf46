// Package binding finds the claim that decided a call on several keys, for engine and fleet.
package binding

import (
	"fmt"
	"math"
	"time"

	"github.com/ral-limiter/ral/policy"
)

// Claim is the claim that decided, by the decisions seen so far. It is for a single goroutine.
type Claim struct {
	// Index is -1, or the first refused claim with the longest wait, or the first allowed claim
	// with the least share of its limit left.
	Index int
	// RetryAfter is when the claim would be met, 0 if all claims are.
	RetryAfter time.Duration

	allowed bool
	// left and atOnce are the claim's. Their ratio is the share that is left.
	left, atOnce float64
}

// New returns a Claim before any decision. allowed reports whether all claims are met.
func New(allowed bool) Claim {
	// The share is infinite.
	return Claim{Index: -1, allowed: allowed, left: 1}
}

// See adds the decision on the claim at index. atOnce is the most that decision.Remaining can be: see
// shape.AtOnce. It matters only if all claims are met.
func (c *Claim) See(index int, decision *policy.Decision, atOnce int64) {
	switch {
	case c.allowed:
		// Shares are compared without a division, which waits.
		if left, most := float64(decision.Remaining), float64(max(atOnce, 1)); left*c.atOnce < c.left*most {
			c.left, c.atOnce, c.Index = left, most, index
		}
	case !decision.Allowed && decision.RetryAfter > c.RetryAfter:
		c.RetryAfter, c.Index = decision.RetryAfter, index
	}
}

// Sum returns the units that two claims on a key ask for together: at most math.MaxInt64, and -1 if either
// asks for less than 0, which is refused.
func Sum(a, b int64) int64 {
	switch {
	case a < 0 || b < 0:
		return -1
	case a > math.MaxInt64-b:
		return math.MaxInt64
	}
	return a + b
}

// Text returns an outcome in words. index is the deciding claim's, or -1 without claims.
func Text(allowed bool, index int, retryAfter, waited time.Duration) string {
	text := "allowed"
	switch {
	case !allowed && retryAfter == policy.Never:
		text = "refused for ever"
	case !allowed:
		text = fmt.Sprintf("refused for %v", retryAfter)
	}
	if index >= 0 {
		text += fmt.Sprintf(" by claim %d", index)
	}
	if waited > 0 {
		text += fmt.Sprintf(", after %v in line", waited)
	}
	return text
}
