package cell

import "github.com/ral-limiter/ral/policy"

// Limit returns the limit that holds for the key now: the one that
// engine.PolicyFor chooses for it, or else the cell's own. It looks nothing up, takes
// nothing and never waits.
func (c *Cell[K]) Limit(key K) policy.Policy {
	if p := c.chosen(key); p != nil {
		return p
	}
	return c.view.Terms().Policy
}
