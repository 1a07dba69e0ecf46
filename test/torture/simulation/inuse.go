package simulation

import (
	"slices"
	"time"
)

// latestNow is the latest instant at which a decision can have been made: the limit holds as if the clock, when
// it goes back, stood still.
func (w *world) latestNow() int64 {
	return max(int64(w.now()), w.latest, int64(w.table.View().Horizon()))
}

// enters notes units that a call may take from now on.
func (w *world) enters(a *account, n int64) *units {
	u := &units{n: n, possible: never}
	a.units = append(a.units, u)
	return u
}

// uses notes that the call of the units has been admitted, or has extended them, no earlier than at the
// instant lo. After an admission it checks that no more units are in use than the limit says.
func (c *caller) uses(a *account, u *units, lo int64) {
	w := c.w
	u.reset = u.reset || a.resets > 0
	if w.stableSince(c) && !u.reset {
		u.certain, u.possible = lo+int64(w.limit.longest), w.latestNow()+int64(w.limit.longest+w.limit.part)
		if w.plan.changes > 0 {
			u.possible += int64(w.limit.longest) // another layout has longer parts
		}
	} else {
		u.certain, u.possible = 0, never
		if w.regime&1 == 0 {
			u.possible = w.latestNow() + 2*int64(maxLongest)
		}
	}
	admitted := u.taken == 0
	u.taken = w.steps
	if inUse := a.certain(w); admitted && w.stableSince(c) && !w.unsure() && inUse > w.limit.capacity {
		w.fail("key %s has %d units in use, where %v allows %d", a.name, inUse, w.limit, w.limit.capacity)
	}
}

// unsure reports whether the limit of a key in use, or its units, are unknown.
func (w *world) unsure() bool { return w.closing || w.vague }

// stableSince reports whether one limit held since the call began.
func (w *world) stableSince(c *caller) bool { return c.regime == w.regime && w.regime&1 == 0 }

// certain returns how many units are in use for certain.
func (a *account) certain(w *world) (n int64) {
	now := w.latestNow()
	for _, u := range a.units {
		if now < u.certain {
			n += u.n
		}
	}
	return n
}

// perhaps returns how many units may have been in use at any time since a step and an instant.
func (a *account) perhaps(step int, instant int64) (n int64) {
	for _, u := range a.units {
		if u.gone >= step || u.gone == 0 && instant < u.possible {
			n += u.n
		}
	}
	return n
}

// refusedUse checks that units in use explain a refusal.
func (c *caller) refusedUse(a *account, n int64) {
	w := c.w
	if w.unsure() || n > w.limit.capacity || !w.stableSince(c) || c.open+a.open > 0 || a.waits != c.waits {
		return
	}
	if used := a.perhaps(c.step, int64(w.instant(c.lo))); used+n <= w.limit.capacity {
		w.fail("%s is refused %d units on key %s, and at most %d are in use under %v", c.name, n, a.name, used, w.limit)
	}
}

// unknownUse checks a key that was answered without its word: a key in use is never given up.
func (c *caller) unknownUse(a *account) {
	w := c.w
	if w.unsure() || !w.stableSince(c) {
		return
	}
	now := w.latestNow()
	for _, u := range a.units {
		if u.taken > 0 && u.taken < c.step && now < u.certain {
			w.fail("key %s is answered without its word, and has %d units in use", a.name, a.certain(w))
		}
	}
}

// release ends the units of a call on one or several keys by one of the verbs that do.
func (c *caller) release(h held) {
	w := c.w
	c.begin(release, h.key, 0)
	var certain []int64
	for _, u := range h.units {
		certain = append(certain, u.certain)
		u.certain = 0
	}
	switch verb := w.random.n(4); {
	case h.out != nil && verb == 0:
		h.out.Cancel()
	case h.out != nil:
		h.out.Release()
	case verb == 0:
		h.r.Cancel()
	case verb == 1:
		h.r.Keep(int64(w.random.n(3)))
	default:
		h.r.Release()
		h.r.Release()
	}
	now := w.latestNow()
	for i, u := range h.units {
		inTime := now < certain[i] && w.stableSince(c) && !u.reset
		c.overstays(u, inTime)
		// A change of the limit may have merged parts. Then it may be uncertain where units of a part that has
		// left count, and they stay.
		if inTime || w.plan.changes == 0 && !u.changed || u.gone > 0 {
			u.end(w.steps)
		}
	}
	c.end()
}

// overstays notes what a release, or an extension in vain, may add to Stats.Overstayed.
func (c *caller) overstays(u *units, inTime bool) {
	w := c.w
	if inTime || u.taken == 0 {
		return
	}
	w.overstays++
}

// extend extends units of one call.
func (c *caller) extend(h *held) {
	w, u, a := c.w, h.units[0], c.w.accounts[h.key]
	c.begin(extend, h.key, 0)
	possible := u.possible
	u.possible = never
	ok := h.r.Extend()
	switch lo := int64(w.instant(c.lo)); {
	case ok && !w.unsure() && (u.gone > 0 && u.gone < c.step || w.stableSince(c) && lo >= possible):
		w.fail("%s extends units on key %s that have ended", c.name, a.name)
	case ok:
		c.uses(a, u, lo)
	default:
		inTime := w.latestNow() < u.certain && w.stableSince(c) && !u.reset && u.taken > 0
		if inTime && !w.unsure() {
			w.fail("%s cannot extend units on key %s, which are in use", c.name, a.name)
		}
		if u.possible = possible; !w.stableSince(c) {
			u.possible = w.latestNow() + 2*int64(maxLongest)
		}
		c.overstays(u, inTime)
		u.certain = 0
	}
	c.end()
}

// resetUse resets a key, and notes which units do not count any more.
func (c *caller) resetUse(number int) {
	w, a := c.w, c.w.accounts[number]
	c.begin(reset, number, 0)
	before := slices.Clone(a.units)
	for _, u := range before {
		u.reset, u.certain = true, 0
	}
	a.resets++
	w.engine.Reset(w.keys[number])
	a.resets--
	for _, u := range before {
		if u.taken > 0 && u.taken < c.step && !w.unsure() {
			u.end(w.steps)
		}
	}
	for _, u := range a.units[len(before):] {
		u.reset, u.certain = true, 0 // the reset may have come before the take, or after
	}
	c.end()
}

// carried notes that units in use count from the change of the longest time on, which the call has made.
func (c *caller) carried(from *limit) {
	w, to := c.w, c.w.limit
	if from.longest == to.longest {
		return
	}
	lo, hi := int64(w.instant(c.lo)), w.latestNow()
	for _, a := range w.accounts {
		for _, u := range a.units {
			if u.changed = true; hi < u.certain {
				u.certain = lo + int64(to.longest)
			} else {
				u.certain = 0
			}
			if lo < u.possible && (u.possible != never || u.taken > 0) {
				u.possible = hi + 2*int64(maxLongest)
			}
		}
	}
}

// checkUse compares a key at rest with the units that its callers have in use.
func (w *world) checkUse(i int) {
	a := w.accounts[i]
	if w.unsure() || w.regime&1 != 0 {
		return
	}
	d := w.engine.Take(w.keys[i], 0)
	used, most := d.Limit-d.Remaining, a.perhaps(w.steps+1, int64(w.now()))
	if least := min(a.certain(w), d.Limit); used < least || used > most {
		w.fail("at rest, at %v, key %s counts %d units in use, where callers have from %d to %d",
			time.Duration(w.now()), a.name, used, least, most)
	}
	if over := w.engine.Stats().Overstayed; over > w.overstays {
		w.fail("at rest, %d calls have overstayed by Stats, where callers know of %d", over, w.overstays)
	}
}

// releaseAll has all callers end what they hold, after which no units are in use but those without a handle.
func (w *world) releaseAll() {
	last := &caller{w: w, name: "last", until: never, cancel: never}
	last.actor = w.start(last.name, func() {
		for _, c := range w.callers {
			for _, h := range c.held {
				last.release(h)
			}
			c.held = nil
		}
	})
	last.actor.caller = last
}

// maxLongest bounds the longest times of all runs.
const maxLongest = 16 * perUnit

// useUnits chooses the verbs of callers of units in use.
func (p *plan) useUnits(r *random) {
	if p.verbs == inLine {
		p.verbs[release] = 4
		return
	}
	p.verbs = [verbs]int{choke: 2, take: 1, peek: 1, sweep: 2, reserve: 7, release: 6, extend: 2}
	p.verbs[refund], p.verbs[reset], p.verbs[all] = r.n(2), 2*r.n(2), r.n(2)
	p.verbs[wait], p.verbs[takeAll] = 3*r.n(2), 3*r.n(2)
	if p.restart > 0 {
		p.verbs[save] = 1
	}
	if !p.chosen && r.one(3) {
		p.changes = 1 + r.n(3)
	}
}
