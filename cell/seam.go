package cell

import (
	"github.com/ral-limiter/ral/internal/core/seam"
	"github.com/ral-limiter/ral/table"
)

func init() {
	seam.Accept(func(c interface{ under(seam.Seam) }, s seam.Seam) { c.under(s) })
}

func (c *Cell[K]) under(s seam.Seam) {
	c.seam, c.underway.Seam = s, s
	seam.Give(c.lines, s.Scheduler)
}

// yieldToReturn yields to the goroutine that gives back to the entry.
func (c *Cell[K]) yieldToReturn(e *table.Entry[K]) {
	c.seam.Yield("undo: begin", seam.Free(e.LockReturn, e.UnlockReturn))
}
