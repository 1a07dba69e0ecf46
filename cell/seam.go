package cell

import (
	"github.com/ral-limiter/ral/internal/core/seam"
	"github.com/ral-limiter/ral/table"
)

func init() {
	seam.Accept(func(c interface{ under(seam.Seam) }, points seam.Seam) { c.under(points) })
}

func (c *Cell[K]) under(points seam.Seam) {
	c.seam, c.underway.Seam = points, points
	seam.Give(c.lines, points.Scheduler)
}

// yieldToReturn yields to the goroutine that gives back to the entry.
func (c *Cell[K]) yieldToReturn(entry *table.Entry[K]) {
	c.seam.Yield("undo: begin", seam.Free(entry.LockReturn, entry.UnlockReturn))
}
