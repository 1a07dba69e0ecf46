package simulation

import (
	"time"
)

// begin notes that a call begins, and how long it may take.
func (c *caller) begin(verb, number int, most time.Duration) {
	world := c.w
	c.busy, c.verb, c.number, c.since, c.excuse, c.most = true, verb, number, world.elapsed, 0, int64(most)
	c.lo, c.hi = world.rawClock(), world.rawClock()
	c.regime = world.regime
	account := world.accounts[number]
	c.epoch, c.known = account.epoch, account.known
	c.step, c.open, c.waits = world.steps, account.open, account.waits
	world.note(c.actor, names[verb])
}

func (c *caller) end() {
	c.late()
	c.busy = false
}

func (c *caller) late() {
	if c.busy && c.w.elapsed-c.since-c.excuse > c.most {
		c.w.fail("%s is in %s for %v, where %v are allowed", c.name, names[c.verb],
			time.Duration(c.w.elapsed-c.since-c.excuse), time.Duration(c.most))
	}
}

// latest is the latest instant at which the call can have been judged.
func (c *caller) latest() int64 { return int64(max(c.w.instant(c.hi), c.w.table.View().Horizon())) }

var names = [verbs]string{"choke", "take", "peek", "reserve", "cancel", "refund", "reset", "wait", "take all", "sweep", "all", "save", "release", "extend"}
