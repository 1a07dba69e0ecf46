package cell

import (
	"github.com/ral-limiter/ral/internal/core/seam"
	"github.com/ral-limiter/ral/table"
)

// A simulation has the cell of any keys wait under its scheduler.
func init() {
	seam.Accept(func(c interface{ under(seam.Seam) }, s seam.Seam) { c.under(s) })
}

func (c *Cell[K]) under(s seam.Seam) {
	c.seam = s
	seam.Give(c.lines, s.Scheduler)
}

// yieldToReturn lets the goroutine that gives back to the entry go on.
func (c *Cell[K]) yieldToReturn(e *table.Entry[K]) {
	c.seam.Yield("undo: begin", func() bool {
		free := e.LockReturn()
		if free {
			e.UnlockReturn()
		}
		return free
	})
}
