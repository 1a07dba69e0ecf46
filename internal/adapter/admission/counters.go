package admission

import (
	"sync/atomic"
	"time"

	"github.com/ral-limiter/ral/limits"
)

// Counters count requests. The zero Counters are ready for use, also concurrently.
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
func (c *Counters) By(r limits.Reason) uint64 { return c.by[r].Load() }

// Delayed returns how many requests waited, and for how long in all.
func (c *Counters) Delayed() (n uint64, all time.Duration) {
	return c.delayed.Load(), time.Duration(c.delayTime.Load())
}

// Unsettled returns the number of requests with uncertain charges.
func (c *Counters) Unsettled() uint64 { return c.unsettled.Load() }

// Shadowed returns, by the names of the tried limits, how many requests each would have refused, and how often it
// could not be decided or charged. Both are nil if no limit is tried.
func (d *Controller[R, S]) Shadowed(counters ...*Counters) (refused, failed map[string]uint64) {
	for i, parts := range d.parts {
		if parts == nil || !d.Tried(i) {
			continue
		}
		if refused == nil {
			refused, failed = map[string]uint64{}, map[string]uint64{}
		}
		for _, c := range counters {
			refused[parts.Name] += c.shadowed[i].Load()
			failed[parts.Name] += c.shadowFailed[i].Load()
		}
	}
	return refused, failed
}
