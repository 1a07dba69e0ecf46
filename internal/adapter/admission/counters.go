package admission

import (
	"sync/atomic"
	"time"

	"github.com/ral-limiter/ral/limits"
)

// Counters counts requests. The zero Counters is ready for use, and safe for concurrent use.
type Counters struct {
	by           [reasons]atomic.Uint64
	delayed      atomic.Uint64
	delayTime    atomic.Int64
	unsettled    atomic.Uint64
	shadowed     [MaxLimits]atomic.Uint64
	shadowFailed [MaxLimits]atomic.Uint64
}

// Count counts a request.
func (c *Counters) Count(verdict *limits.Verdict) {
	c.by[verdict.Reason].Add(1)
	if verdict.Waited > 0 {
		c.delayed.Add(1)
		c.delayTime.Add(int64(verdict.Waited))
	}
}

// By returns the number of requests with that reason.
func (c *Counters) By(reason limits.Reason) uint64 { return c.by[reason].Load() }

// Delayed returns the number of requests that waited, and the sum of their waits.
func (c *Counters) Delayed() (n uint64, all time.Duration) {
	return c.delayed.Load(), time.Duration(c.delayTime.Load())
}

// Unsettled returns the number of requests for which it is not certain that a charge counts.
func (c *Counters) Unsettled() uint64 { return c.unsettled.Load() }
