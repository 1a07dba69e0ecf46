// Package binding finds the claim that decided a call on several keys, for package engine and
// module fleet. It does not know what a claim is, nor how claims are met.
package binding

import (
	"math"
	"time"

	"github.com/ral-limiter/ral/policy"
)

// Claim is the claim that decided, as far as decisions have been seen. New returns one. It is for
// one goroutine.
type Claim struct {
	// Index is that of the claim: of those refused the one that has to wait longest, of
	// those allowed the one with the least share of its limit left, the first of several.
	// It is -1 if there is none.
	Index int
	// RetryAfter is when the claim would be met, 0 if all claims are.
	RetryAfter time.Duration

	allowed bool
	share   float64 // that the claim has left
}

// New returns the claim that decides a call before any decision is seen. allowed reports
// whether all claims are met.
func New(allowed bool) Claim {
	return Claim{Index: -1, allowed: allowed, share: math.Inf(1)}
}

// See adds the decision on the claim of that index. atOnce is the most units that
// d.Remaining can be: see shape.AtOnce. It does not matter unless all claims are met.
func (c *Claim) See(index int, d *policy.Decision, atOnce int64) {
	switch {
	case c.allowed:
		if s := float64(d.Remaining) / float64(max(atOnce, 1)); s < c.share {
			c.share, c.Index = s, index
		}
	case !d.Allowed && d.RetryAfter > c.RetryAfter:
		c.RetryAfter, c.Index = d.RetryAfter, index
	}
}
