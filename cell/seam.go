package cell

import (
	"context"
	"runtime"
	"sync"
	"time"

	"github.com/ral-limiter/ral/internal/seam"
	"github.com/ral-limiter/ral/table"
)

// What follows lets a simulation come between; see package seam. None of it is on the
// way of Choke.

func (c *Cell[K]) step(point string) {
	if c.seam != nil {
		c.seam.Step(point)
	}
}

// lock locks mu.
func (c *Cell[K]) lock(mu *sync.Mutex) {
	if c.seam != nil {
		c.seam.Await("line: lock", seam.Forever, func() bool {
			free := mu.TryLock()
			if free {
				mu.Unlock()
			}
			return free
		})
	}
	mu.Lock()
}

// yieldToReturn lets the goroutine that gives back to the entry go on.
func (c *Cell[K]) yieldToReturn(e *table.Entry[K]) {
	if c.seam != nil {
		c.seam.Await("undo: begin", seam.Forever, func() bool {
			free := e.LockReturn()
			if free {
				e.UnlockReturn()
			}
			return free
		})
		return
	}
	runtime.Gosched()
}

// sleep is time.Sleep.
func (c *Cell[K]) sleep(pause time.Duration) {
	if c.seam != nil {
		c.seam.Await("sleep", pause, nil)
		return
	}
	time.Sleep(pause)
}

// sleepUntilWoken is what a call in line does until something changes for it.
func (c *Cell[K]) sleepUntilWoken(ctx context.Context, w *waiting[K], pause time.Duration) (cancel, closed bool) {
	c.seam.Await("wait: sleeps", pause, func() bool {
		return len(w.signal) > 0 || ctx.Err() != nil || c.closed.Load()
	})
	select {
	case <-w.signal:
	default:
	}
	return ctx.Err() != nil, c.closed.Load()
}
