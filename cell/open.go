package cell

import (
	"runtime"
	"sync/atomic"
	"time"

	"github.com/ral-limiter/ral/policy"
	"github.com/ral-limiter/ral/table"
)

// takeUnfiled takes for a key that has no live entry in the map: it is in the
// nursery, or new, or cannot be recorded.
func (c *Cell[K]) takeUnfiled(
	hash uint64, hashed bool, key K, now policy.Instant, n int64, patience time.Duration,
) policy.Decision {
	// A key that is not equal to itself would be opened again by every call.
	recordable := hashed && key == key //nolint:gocritic // false for NaN

	var wait waiter
	for {
		if recordable && !c.closed.Load() {
			if e := c.view.Look(hash, key); e != nil {
				if d, ok := c.takeFrom(e, now, n, patience); ok {
					return d
				}
				continue // it died meanwhile
			}
		}
		_, d := c.policy.Take(0, now, n, patience)
		switch {
		case n == 0:
			return d
		case !d.Allowed:
			return c.count(d) // nothing to record
		case !recordable || !c.writing():
			return c.unrecorded(d, c.whenUnavailable == Admit, c.openTimeout, &c.unavailable)
		}

		e, status := c.view.Open(hash, key)
		if status == table.Found || status == table.Landed {
			// Before the take, so that a policy that panics leaves nothing behind.
			if status == table.Landed && !c.queue.TrySend(table.FileCommand(e, now)) {
				c.stray(e, now)
			}
			if d, ok := c.takeFrom(e, now, n, patience); ok {
				return d
			}
			continue
		}
		if status == table.Full {
			switch c.whenFull {
			case RefuseNew:
				return c.unrecorded(d, false, c.idle, &c.full)
			case AdmitNew:
				return c.unrecorded(d, true, 0, &c.full)
			}
			// Again from time to time: a command may be lost with a writer.
			if wait.rounds%roomRounds == 0 || wait.rounds > yields {
				c.queue.TrySend(table.RoomCommand(key, now))
			}
		}
		if !wait.next(c.openTimeout) {
			return c.unrecorded(d, c.whenUnavailable == Admit, c.openTimeout, &c.unavailable)
		}
	}
}

// stray leaves an entry in the nursery because the queue was full. The writer
// looks for strays when it has emptied the queue; should it have done so
// already, the second try to send wakes it. It is far behind, so let it run.
func (c *Cell[K]) stray(e *table.Entry[K], now policy.Instant) {
	c.view.Stray()
	c.queue.TrySend(table.FileCommand(e, now))
	runtime.Gosched()
}

// unrecorded answers for a key that has no entry, and counts it in counter too.
// d is what the limit would tell a key that was never used.
func (c *Cell[K]) unrecorded(d policy.Decision, admit bool, retry time.Duration, counter *atomic.Uint64) policy.Decision {
	counter.Add(1)
	if !admit {
		d = policy.Decision{Limit: d.Limit, RetryAfter: retry}
	}
	return c.count(d)
}

// waiter waits for room in a full table: first by letting others run, which is all
// it takes when the writer is merely behind, then by sleeping.
type waiter struct {
	rounds int
	since  time.Time
}

const (
	yields = 64
	// roomRounds is after how many yields room is asked for again.
	roomRounds = 16

	minSleep = 20 * time.Microsecond
	maxSleep = time.Millisecond
)

// next waits a little, and returns false when the waits have reached limit.
func (w *waiter) next(limit time.Duration) bool {
	if w.rounds == 0 {
		w.since = time.Now()
	}
	w.rounds++
	left := limit - time.Since(w.since)
	if left <= 0 {
		return false
	}
	if w.rounds <= yields {
		runtime.Gosched() // which may take long, where many others run
		return true
	}
	time.Sleep(min(left, maxSleep, minSleep<<min(w.rounds-yields, 8)))
	return true
}
