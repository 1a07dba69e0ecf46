package simulation

import (
	"github.com/ral-limiter/ral/policy"
)

func (w *world) now() policy.Instant {
	if !w.ownClock || w.engine == nil {
		return w.instant(w.elapsed)
	}
	return w.instant(w.rawClock())
}

// instant returns the engine's instant for a reading of the world's clock.
func (w *world) instant(raw int64) policy.Instant { return max(policy.Instant(raw+w.base), w.first) }

// over reports whether the engine is closing for good.
func (w *world) over() bool { return w.closing && !w.restarting }

func (w *world) rawClock() int64 {
	if w.stopped {
		return w.stoppage
	}
	return w.elapsed + w.offset
}

// readClock is the engine's clock. Other goroutines may run after it was read.
func (w *world) readClock() policy.Instant {
	if w.current != nil && !w.quiet && w.random.one(w.chaos.clock) {
		w.disturbClock()
	}
	now := policy.Instant(w.rawClock())
	if w.unread {
		w.unread, w.begun = false, int64(now)
	}
	if actor := w.current; actor != nil && actor.caller != nil {
		actor.caller.read = int64(now)
	}
	w.latest = max(w.latest, int64(w.instant(int64(now))))
	w.Step("clock")
	return now
}

func (w *world) disturbClock() {
	before := w.rawClock()
	switch w.random.n(4) {
	case 0:
		w.stopped, w.stoppage = true, before
	case 1:
		w.stopped = false
	case 2:
		w.offset += int64(1) << w.random.n(27)
	case 3:
		w.offset -= int64(1) << w.random.n(25)
	}
	now := w.rawClock()
	w.wentBack = w.wentBack || now < before
	for _, caller := range w.callers {
		caller.clock(now)
	}
}

func (c *caller) clock(now int64) {
	c.lo, c.hi = min(c.lo, now), max(c.hi, now)
}
