package cell

import (
	"runtime"

	"github.com/ral-limiter/ral/policy"
	"github.com/ral-limiter/ral/table"
)

// Refund gives n units back to the key, for costs that are known only afterwards:
// take the estimate, then refund what was not needed. It never lifts a key above
// full, nor reaches into another window than the present one; a key that is not in
// the table has nothing to get back. n < 0 charges -n more, whether the limit allows
// it or not, which may leave a debt: the key is refused until that has drained.
//
// The decision tells how the key stands afterwards. It is not Allowed if nothing
// could be recorded: the policy is not a policy.Refunder, or the key is new and
// the table full or without a writer.
//
// Refund cannot know when the units were taken, nor who was promised a turn since. It
// trusts that they still count, and that nobody waits: turns that were promised behind
// the units stay where they are, so that the next may come too early by as much, and where
// the last of them is in a window that has yet to open, that is the one which has room
// again. Where either may be so, a Reservation's Cancel does know. Refund is not counted
// in the statistics, and exact in Queued mode too.
//
// n are units of the cell's own limit, also where they were taken by TakeWith: for
// those there is RefundWith.
func (c *Cell[K]) Refund(key K, n int64) policy.Decision { return c.RefundWith(nil, key, n) }

// RefundWith is Refund for units that were taken by TakeWith under p. nil is the
// cell's own policy; a policy of another family gives nothing back.
func (c *Cell[K]) RefundWith(p policy.Policy, key K, n int64) policy.Decision {
	d, _ := c.take(key, &ask{n: n, with: p, refund: true, exact: true})
	return d
}

// Reset forgets what the key has used, debts and promised turns included, and tells
// whether there was anything that still counted. Calls that wait in line keep their
// place. Cancelling a reservation from before does nothing any more: it was given back
// here.
func (c *Cell[K]) Reset(key K) bool {
	for {
		e := c.entry(key)
		if e == nil {
			return false
		}
		if used, ok := c.reset(e); ok {
			return used
		}
		// It was given up meanwhile: look whether it is back.
	}
}

func (c *Cell[K]) reset(e *table.Entry[K]) (used, ok bool) {
	c.beginUndo(e)
	defer e.UnlockReturn()
	for {
		word, terms := c.view.Read(e)
		state, alive := terms.State(word)
		if !alive {
			return false, false
		}
		if state == 0 {
			return false, true
		}
		used := terms.Policy.FreshAt(state) > c.now()
		e.AddReturned(everything)
		c.step("reset: undone")
		done := e.Advance(word, terms.EpochBit)
		runtime.KeepAlive(terms)
		if done {
			return used, true
		}
	}
}

// beginUndo waits until nobody else gives units back to the entry. Who does is
// computing, and does not wait for anything.
func (c *Cell[K]) beginUndo(e *table.Entry[K]) {
	for !e.LockReturn() {
		c.yieldToUndo(e)
	}
}
