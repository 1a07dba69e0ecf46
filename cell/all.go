package cell

import (
	"iter"

	"github.com/ral-limiter/ral/policy"
)

// All goes through the keys in the table, in no order, and tells how each stands,
// as Peek does. It stops nobody: keys that come or go meanwhile may or may not be
// seen, and one that goes and comes back may be seen twice.
func (c *Cell[K]) All() iter.Seq2[K, policy.Decision] {
	return func(yield func(K, policy.Decision) bool) {
		if c.closed.Load() {
			return
		}
		for e := range c.view.All() {
			word, terms := c.view.Read(e)
			now := c.now()
			state, alive := terms.State(word)
			if !alive {
				continue
			}
			a := ask{}
			if c.policyFor != nil {
				a.with = c.policyFor(e.Key())
			}
			if _, d := a.judge(terms, state, now); !yield(e.Key(), d) {
				return
			}
		}
	}
}
