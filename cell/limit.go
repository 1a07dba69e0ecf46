package cell

import "github.com/ral-limiter/ral/policy"

// Limit returns the limit that holds for the key now, and whether it is the cell's own
// rather than one that engine.PolicyFor chose. It looks nothing up, takes nothing and
// never waits.
func (c *Cell[K]) Limit(key K) (p policy.Policy, own bool) {
	if p := c.chosen(key); p != nil {
		return p, false
	}
	return c.view.Terms().Policy, true
}
