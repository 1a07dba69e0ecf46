package simulation

import (
	"errors"
	"slices"
	"time"

	"github.com/ral-limiter/ral/engine"
)

// latestNow is the latest instant at which a decision can have been made: the limit holds as if the clock, when
// it goes back, stood still.
func (w *world) latestNow() int64 {
	return max(int64(w.now()), w.latest, int64(w.table.View().Horizon()))
}

// enters notes units that a call may take from now on.
func (w *world) enters(account *account, n int64) *units {
	u := &units{n: n, possible: never}
	account.units = append(account.units, u)
	return u
}

// uses notes that the call of the units has been admitted, or has extended them, no earlier than at the
// instant lo. After an admission it checks that no more units are in use than the limit says.
func (c *caller) uses(account *account, units *units, lo int64) {
	world := c.w
	units.reset = units.reset || account.resets > 0
	if world.stableSince(c) && !units.reset {
		units.certain, units.possible = lo+int64(world.limit.longest), world.latestNow()+int64(world.limit.longest+world.limit.part)
		if world.plan.changes > 0 {
			units.possible += int64(world.limit.longest) // another layout has longer parts
		}
	} else {
		units.certain, units.possible = 0, never
		if world.regime&1 == 0 {
			units.possible = world.latestNow() + 2*int64(maxLongest)
		}
	}
	admitted := units.taken == 0
	units.taken = world.steps
	inUse, isJudged := account.certain(world), world.stableSince(c)
	if !isJudged && world.regime&1 == 0 && account.switched && !world.plan.with && c.verb < wait {
		// The call's swap was the last event, so it is of the present limit.
		inUse, isJudged = inUse+units.n, true
	}
	if admitted && isJudged && !world.unsure() && inUse > world.limitOf(account).capacity {
		world.fail("key %s has %d units in use, where the limit is %v", account.name, inUse, world.limitOf(account))
	}
}

// unsure reports whether the limit of a key in use, or its units, are unknown.
func (w *world) unsure() bool { return w.closing || w.vague }

// stableSince reports whether one limit held since the call began.
func (w *world) stableSince(caller *caller) bool { return caller.regime == w.regime && w.regime&1 == 0 }

// certain returns how many units are in use for certain.
func (a *account) certain(w *world) (n int64) {
	now := w.latestNow()
	for _, units := range a.units {
		if now < units.certain {
			n += units.n
		}
	}
	return n
}

// perhaps returns how many units may have been in use at any time since a step and an instant.
func (a *account) perhaps(step int, instant int64) (n int64) {
	for _, units := range a.units {
		if units.gone >= step || units.gone == 0 && instant < units.possible {
			n += units.n
		}
	}
	return n
}

// refusedUse checks that units in use explain a refusal.
func (c *caller) refusedUse(account *account, n int64) {
	world, limit := c.w, c.w.limitOf(account)
	if world.unsure() || n > limit.capacity || !world.stableSince(c) || c.open+account.open > 0 || account.waits != c.waits {
		return
	}
	if used := account.perhaps(c.step, int64(world.instant(c.lo))); used+n <= limit.capacity {
		world.fail("%s is refused %d units on key %s, and at most %d are in use under %v", c.name, n, account.name, used, limit)
	}
}

// unknownUse checks a key that was answered without its word: a key in use is never given up.
func (c *caller) unknownUse(account *account) {
	world := c.w
	if world.unsure() || !world.stableSince(c) {
		return
	}
	now := world.latestNow()
	for _, units := range account.units {
		if units.taken > 0 && units.taken < c.step && now < units.certain {
			world.fail("key %s is answered without its word, and has %d units in use", account.name, account.certain(world))
		}
	}
}

// release ends the units of a call on one or several keys by one of the verbs that do.
func (c *caller) release(held held) {
	world := c.w
	c.begin(release, held.key, 0)
	var certain []int64
	for _, units := range held.units {
		certain = append(certain, units.certain)
		units.certain = 0
	}
	switch verb := world.random.n(4); {
	case held.out != nil && verb == 0:
		held.out.Cancel()
	case held.out != nil:
		held.out.Release()
	case verb == 0:
		held.r.Cancel()
	case verb == 1:
		held.r.Keep(int64(world.random.n(3)))
	default:
		held.r.Release()
		held.r.Release()
	}
	now := world.latestNow()
	for i, units := range held.units {
		inTime := now < certain[i] && world.stableSince(c) && !units.reset
		c.overstays(units, inTime)
		// A change of the limit may have merged parts. Then it may be uncertain where units of a part that has
		// left count, and they stay.
		if inTime || world.plan.changes == 0 && !units.changed || units.gone > 0 {
			units.end(world.steps)
		}
	}
	c.end()
}

// overstays notes what a release, or an extension in vain, may add to Stats.Overstayed.
func (c *caller) overstays(units *units, inTime bool) {
	world := c.w
	if inTime || units.taken == 0 {
		return
	}
	world.overstays++
}

// extend extends units of one call.
func (c *caller) extend(held *held) {
	world, units, account := c.w, held.units[0], c.w.accounts[held.key]
	c.begin(extend, held.key, 0)
	possible := units.possible
	units.possible = never
	ok := held.r.Extend()
	switch lo := int64(world.instant(c.lo)); {
	case ok && !world.unsure() && (units.gone > 0 && units.gone < c.step || world.stableSince(c) && lo >= possible):
		world.fail("%s extends units on key %s that have ended", c.name, account.name)
	case ok:
		c.uses(account, units, lo)
	default:
		inTime := world.latestNow() < units.certain && world.stableSince(c) && !units.reset && units.taken > 0
		if inTime && !world.unsure() {
			world.fail("%s cannot extend units on key %s, which are in use", c.name, account.name)
		}
		if units.possible = possible; !world.stableSince(c) {
			units.possible = world.latestNow() + 2*int64(maxLongest)
		}
		c.overstays(units, inTime)
		units.certain = 0
	}
	c.end()
}

// resetUse resets a key, and notes which units do not count any more.
func (c *caller) resetUse(number int) {
	world, account := c.w, c.w.accounts[number]
	c.begin(reset, number, 0)
	before := slices.Clone(account.units)
	for _, units := range before {
		units.reset, units.certain = true, 0
	}
	account.resets++
	world.engine.Reset(world.keys[number])
	account.resets--
	for _, units := range before {
		if units.taken > 0 && units.taken < c.step && !world.unsure() {
			units.end(world.steps)
		}
	}
	for _, units := range account.units[len(before):] {
		units.reset, units.certain = true, 0 // the reset may have come before the take, or after
	}
	c.end()
}

// changeOwn changes the limit of a key that PolicyFor chooses, in one step or in two. No unit in use changes by that.
func (c *caller) changeOwn(number int) {
	world, account := c.w, c.w.accounts[number]
	from, to := world.like(account), inFlight(&c.w.scheduler, int64(1+c.w.random.n(4)), c.w.limit.longest)
	keep := engine.Keep(world.random.n(2))
	publish := func() { account.own = to }
	world.regime |= 1
	c.begin(all, number, seamForever)
	var err error
	if account.switched = world.random.one(2); account.switched {
		err = world.engine.SwitchLimit(world.keys[number], from, to.whole(), publish, keep)
	} else {
		publish()
		err = world.engine.ChangeLimit(world.keys[number], from, to.whole(), keep)
	}
	if err != nil && !errors.Is(err, engine.ErrClosed) {
		world.fail("ChangeLimit: %v", err)
	}
	c.changed(err)
}

// carried notes that units in use count from the change of the longest time on, which the call has made.
func (c *caller) carried(from *limit) {
	world, to := c.w, c.w.limit
	if from.longest == to.longest {
		return
	}
	lo, hi := int64(world.instant(c.lo)), world.latestNow()
	for _, account := range world.accounts {
		for _, units := range account.units {
			if units.changed = true; hi < units.certain {
				units.certain = lo + int64(to.longest)
			} else {
				units.certain = 0
			}
			if lo < units.possible && (units.possible != never || units.taken > 0) {
				units.possible = hi + 2*int64(maxLongest)
			}
		}
	}
}

// checkUse compares a key at rest with the units that its callers have in use.
func (w *world) checkUse(i int) {
	account := w.accounts[i]
	if w.unsure() || w.regime&1 != 0 {
		return
	}
	decision := w.engine.Take(w.keys[i], 0)
	used, most := decision.Limit-decision.Remaining, account.perhaps(w.steps+1, int64(w.now()))
	if least := min(account.certain(w), decision.Limit); used < least || used > most {
		w.fail("at rest, at %v, key %s counts %d units in use, where callers have from %d to %d",
			time.Duration(w.now()), account.name, used, least, most)
	}
	if over := w.engine.Stats().Overstayed; over > w.overstays {
		w.fail("at rest, %d calls have overstayed by Stats, where callers know of %d", over, w.overstays)
	}
}

// releaseAll has all callers end what they hold, after which no units are in use but those without a handle.
func (w *world) releaseAll() {
	last := &caller{w: w, name: "last", until: never, cancel: never}
	last.actor = w.start(last.name, func() {
		for _, caller := range w.callers {
			for _, held := range caller.held {
				last.release(held)
			}
			caller.held = nil
		}
	})
	last.actor.caller = last
}

// maxLongest bounds the longest times of all runs.
const maxLongest = 16 * perUnit

// useUnits chooses the verbs of callers of units in use.
func (p *plan) useUnits(random *random) {
	if p.verbs == inLine {
		p.verbs[release] = 4
		return
	}
	p.verbs = [verbs]int{choke: 2, take: 1, peek: 1, sweep: 2, reserve: 7, release: 6, extend: 2}
	p.verbs[refund], p.verbs[reset], p.verbs[all] = random.n(2), 2*random.n(2), random.n(2)
	p.verbs[wait], p.verbs[takeAll] = 3*random.n(2), 3*random.n(2)
	if p.restart > 0 {
		p.verbs[save] = 1
	}
	p.chosen = p.chosen || random.one(3)
	if random.one(3) {
		p.changes = 1 + random.n(3)
	}
}
