package cell

import (
	"runtime"
	"sync/atomic"
	"time"

	"github.com/ral-limiter/ral/internal/seam"
	"github.com/ral-limiter/ral/policy"
	"github.com/ral-limiter/ral/table"
)

// takeUnfiled takes for a key that has no live entry in the map: it is in the
// nursery, or new, or cannot be recorded.
func (c *Cell[K]) takeUnfiled(
	hash uint64, hashed bool, key K, now policy.Instant, a *ask,
) (policy.Decision, taken[K]) {
	// A key that is not equal to itself would be opened again by every call.
	recordable := hashed && key == key //nolint:gocritic // false for NaN

	a.lost = !recordable
	wait := waiter{seam: c.seam}
	for {
		next, d := a.judge(c.view.Terms(), 0, now)
		records := d.Allowed && a.n != 0 && (!a.refund || next != 0)
		closed := c.closed.Load()
		// Most have something to record and can: they look and open in one.
		if !records || closed || !recordable || !c.writing() {
			if recordable && !closed {
				if e := c.view.Look(hash, key); e != nil {
					if d, t, ok := c.takeFrom(e, now, a); ok {
						return d, t
					}
					continue // it died meanwhile
				}
			}
			switch {
			case a.n == 0 || a.refund && next == 0:
				return d, taken[K]{}
			case !d.Allowed:
				return c.count(a, d), taken[K]{} // nothing to record
			}
			a.lost = true
			return c.unrecorded(a, d, c.whenUnavailable == Admit, c.openTimeout, &c.unavailable), taken[K]{}
		}

		e, status := c.view.Open(hash, key)
		if status == table.Found || status == table.Landed || status == table.Backlogged {
			// Before the take, so that a policy that panics leaves nothing behind.
			behind := status == table.Backlogged
			if status == table.Landed && !c.queue.TrySend(table.FileCommand(e, now)) {
				c.stray(e, now)
				behind = true
			}
			d, t, ok := c.takeFrom(e, now, a)
			if behind {
				runtime.Gosched() // the writer is far behind: let it run
			}
			if ok {
				return d, t
			}
			continue
		}
		switch {
		case status != table.Full || c.closed.Load(): // Close leaves no places behind
		case c.whenFull == AdmitNew:
			return c.unrecorded(a, d, true, c.idle, &c.full), taken[K]{}
		case c.whenFull == RefuseNew && !a.hasty:
			return c.unrecorded(a, d, false, c.idle, &c.full), taken[K]{}
		case c.whenFull == RefuseNew:
		// Again from time to time: a command may be lost with a writer.
		case wait.rounds%roomRounds == 0 || wait.rounds > yields:
			c.queue.TrySend(table.RoomCommand(key, now))
		}
		if a.hasty {
			return policy.Decision{Limit: d.Limit, RetryAfter: min(c.openTimeout, roomPause)}, taken[K]{}
		}
		if !wait.next(c.openTimeout) {
			return c.unrecorded(a, d, c.whenUnavailable == Admit, c.openTimeout, &c.unavailable), taken[K]{}
		}
		now = max(now, c.now()) // it has waited, and what it takes begins now
	}
}

// stray leaves an entry in the nursery because the queue was full. The writer
// looks for strays when it has emptied the queue; should it have done so
// already, the second try to send wakes it.
func (c *Cell[K]) stray(e *table.Entry[K], now policy.Instant) {
	c.view.NoteLostFiling()
	c.step("stray: told")
	c.queue.TrySend(table.FileCommand(e, now))
	c.step("stray: woken")
}

// unrecorded answers for a key that has no entry, and counts it in counter too. d is what
// the limit would tell a key that was never used. retry is a guess. A charge that cannot
// be recorded is refused in any case: letting it pass would say that it was.
func (c *Cell[K]) unrecorded(
	a *ask, d policy.Decision, admit bool, retry time.Duration, counter *atomic.Uint64,
) policy.Decision {
	if a.without = counter; !a.refund && !a.silent {
		counter.Add(1)
	}
	if !admit || a.refund {
		d = policy.Decision{Limit: d.Limit, RetryAfter: min(retry, policy.Never-1)}
	}
	return c.count(a, d)
}

// waiter waits for room in a full table: first by letting others run, which is all
// it takes when the writer is merely behind, then by sleeping.
type waiter struct {
	rounds int
	since  time.Time
	seam   seam.Scheduler
}

const (
	yields = 64
	// roomRounds is after how many yields room is asked for again.
	roomRounds = 16

	// roomPause is after how long the first in a line asks again.
	roomPause = 10 * time.Millisecond

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
	pause := min(left, maxSleep, minSleep<<min(max(w.rounds-yields, 0), 8))
	if w.seam != nil {
		if w.rounds <= yields {
			pause = 0
		}
		w.seam.Await("open: waits", pause, nil)
		return true
	}
	if w.rounds <= yields {
		runtime.Gosched() // which may take long, where many others run
		return true
	}
	time.Sleep(pause)
	return true
}
