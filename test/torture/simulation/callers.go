package simulation

import (
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"time"

	"github.com/ral-limiter/ral/engine"
	"github.com/ral-limiter/ral/policy"
	"github.com/ral-limiter/ral/table"
)

// plain lists the verbs that the reference follows exactly.
var plain = [verbs]int{choke: 8, take: 3, peek: 1, sweep: 2}

// inLine lists verbs that keep the order of waiting calls.
var inLine = [verbs]int{choke: 2, take: 1, wait: 6, sweep: 1}

// maxAtOnce is the largest number of units of a call.
const maxAtOnce = 3

// newPlan plans the callers' calls. Half of the runs use the plainest verbs alone.
func newPlan(random *random) plan {
	p := plan{calls: 3 + random.n(10)}
	p.verbs = plain
	if random.one(2) {
		p.verbs[reserve], p.verbs[cancel] = 2*random.n(2), random.n(2)
		p.verbs[refund], p.verbs[reset] = random.n(2), random.n(2)
		p.verbs[wait], p.verbs[takeAll], p.verbs[all] = 3*random.n(2), 2*random.n(2), random.n(2)
	}
	if random.one(5) {
		p.changes = 1 + random.n(3)
	}
	p.close = random.one(12)
	p.with = random.one(4)
	if !p.close && random.one(6) {
		p.restart = uint64(4 + random.n(8))
		p.verbs[save] = 1 + random.n(3)
	}
	if p.chosen = random.one(8); p.chosen {
		p.changes = 0 // SetPolicy is refused
	}
	return p
}

func (w *world) call() {
	c := &caller{w: w, name: fmt.Sprintf("caller %d", len(w.callers)+1), until: never, cancel: never}
	number := len(w.callers)
	w.callers = append(w.callers, c)
	c.actor = w.start(c.name, func() {
		defer func() {
			c.busy, c.ended = false, true
			if r := recover(); r != nil {
				w.fail("%s panics: %v\n%s", c.name, r, debug.Stack())
			}
		}()
		for i := range w.plan.calls {
			if w.failure != "" {
				return
			}
			if number == 0 && i%2 == 1 && i/2 < w.plan.changes {
				for range 1 + w.random.n(2) {
					c.change()
				}
			}
			if number == 0 && w.plan.close && i == w.plan.calls/2 {
				c.shut()
			}
			if number == len(w.callers)-1 && w.random.one(w.plan.restart) {
				c.restart()
			}
			if w.gate {
				w.Await("caller: restart", seamForever, func() bool { return !w.gate })
			}
			c.once()
			if w.random.one(3) {
				w.Await("caller: rests", time.Duration(w.random.n(int(3*perUnit))), nil)
			}
		}
	})
	c.actor.caller = c
}

func (c *caller) once() {
	world := c.w
	sum := 0
	for _, often := range world.plan.verbs {
		sum += often
	}
	verb, pick := 0, world.random.n(sum)
	for pick >= world.plan.verbs[verb] {
		pick -= world.plan.verbs[verb]
		verb++
	}
	number := world.random.n(len(world.keys))
	if world.random.one(2) {
		number = 0 // a hot key
	}
	k, account := world.keys[number], world.accounts[number]
	timeout := world.config.OpenTimeout
	switch verb {
	case choke:
		c.begin(verb, number, timeout)
		c.answered(account, 1, 0, world.engine.Choke(k), nil)
	case take:
		n := int64(1 + world.random.n(maxAtOnce))
		with := world.plan.with && world.random.one(2)
		c.begin(verb, number, timeout)
		var decision policy.Decision
		if with {
			decision = world.engine.TakeWith(world.like(account), k, n)
		} else {
			decision = world.engine.Take(k, n)
		}
		c.answered(account, n, 0, decision.Allowed, nil)
	case peek:
		c.begin(verb, number, 0)
		if decision := world.engine.Take(k, 0); !decision.Allowed || decision.Remaining < 0 || decision.Remaining > decision.Limit {
			world.fail("Peek answers %+v", decision)
		}
	case reserve:
		n := int64(1 + world.random.n(2))
		patience := time.Duration(world.random.n(3)) * perUnit
		c.begin(verb, number, timeout)
		reservation := world.engine.Reserve(k, n, patience)
		c.answered(account, n, patience, reservation.Allowed, &reservation)
	case cancel:
		if len(c.held) == 0 {
			return
		}
		i := world.random.n(len(c.held))
		held := c.held[i]
		c.held = slices.Delete(c.held, i, i+1)
		c.begin(verb, held.key, 0)
		held.r.Cancel()
		if account := world.accounts[held.key]; c.regime == world.regime {
			world.cancelled(account, held.epoch, held.index)
		} else {
			account.known = false
		}
	case refund:
		n := int64(1 + world.random.n(2))
		c.begin(verb, number, timeout)
		decision := world.engine.Refund(k, n)
		switch {
		case decision.Allowed && world.limit.longest > 0:
			world.fail("%s is given back %d units in use of key %s without a take", c.name, n, account.name)
		case decision.Allowed:
			world.refunded(account, n)
		}
		account.known = account.known && !world.closing
	case reset:
		if world.limit.longest > 0 {
			c.resetUse(number)
			return
		}
		c.begin(verb, number, 0)
		done := world.engine.Reset(k)
		account.anew(done && !world.closing)
		account.loose = account.loose || !done || world.closing
	case wait:
		c.wait(number)
	case takeAll:
		c.takeAll(number)
	case sweep:
		c.begin(verb, number, 0)
		world.queue.TrySend(table.SweepCommand[key](world.now(), 1+world.random.n(3), nil))
	case all:
		c.begin(verb, number, 0)
		seen := map[key]int{}
		for key, decision := range world.engine.All() {
			if seen[key]++; decision.Remaining > decision.Limit {
				world.fail("All answers %+v", decision)
			}
		}
	case save:
		c.begin(verb, number, 0)
		c.save()
	case release, extend:
		if len(c.held) == 0 {
			return
		}
		i := world.random.n(len(c.held))
		held := &c.held[i]
		switch {
		case verb == release:
			ended := *held
			c.held = slices.Delete(c.held, i, i+1)
			c.release(ended)
		case held.out == nil:
			c.extend(held)
		}
		return
	}
	c.end()
}

// answered checks the answer to a call. The call's swap, if any, was the last event.
func (c *caller) answered(account *account, n int64, patience time.Duration, allowed bool, reservation *engine.Reservation[key]) {
	world := c.w
	without := world.answers(allowed)
	if !allowed {
		if world.closing && without {
			account.known, account.loose = false, true // its units may have been taken
		}
		switch {
		case world.limit.longest > 0 && without:
			c.unknownUse(account)
		case world.limit.longest > 0:
			c.refusedUse(account, n)
		case !without:
			c.refused(account, n, patience)
		}
		return
	}
	if without {
		if world.limit.longest > 0 {
			c.unknownUse(account)
		}
		return
	}
	j := c.actor.judged
	if j.n != n {
		world.fail("%s is allowed %d units, where the policy last allowed %d", c.name, n, j.n)
		return
	}
	if n := len(world.changes); n > 1 && j.read < world.changes[n-2] {
		world.fail("%s is allowed by a word that it read before the limit was changed twice", c.name)
	}
	index := -1
	var in []*units
	switch {
	case world.over():
		return
	case world.limit.longest > 0:
		units := world.enters(account, n)
		c.uses(account, units, int64(j.now))
		in = append(in, units)
	case c.regime != world.regime:
		account.known = false // it may have been judged under the limit before
	default:
		index = world.took(account, j)
	}
	if reservation != nil {
		if int64(reservation.Wait) != int64(j.turn-j.now) {
			world.fail("%s is told to wait %v, where the policy said %v", c.name, reservation.Wait, j.turn-j.now)
		}
		c.held = append(c.held, held{r: *reservation, key: slices.Index(world.accounts, account), epoch: account.epoch, index: index, units: in})
	}
}

// refused checks that the key owed too much at the earliest instant of the decision.
func (c *caller) refused(account *account, n int64, patience time.Duration) {
	world, limit := c.w, c.w.limit
	if world.closing || limit.interval == 0 || n > limit.capacity || c.regime != world.regime || world.regime&1 != 0 ||
		!c.known || !account.known || c.epoch != account.epoch {
		return
	}
	now := int64(world.instant(c.lo))
	if wait := max(account.word, now) + n*limit.interval - limit.capacity*limit.interval - now; wait <= int64(patience) {
		world.fail("%s is refused %d units on key %s after %v, which would have to wait %v at most, by the reference",
			c.name, n, account.name, time.Duration(now), time.Duration(wait))
	}
}

// answers counts an answer and reports whether it was given without the key's word.
func (w *world) answers(allowed bool) (without bool) {
	before := w.total
	if allowed {
		without = w.counted(1, 0) > 0
	} else {
		without = w.counted(0, 1) > 0
	}
	switch {
	case !w.restarting && w.total.unavailable > before.unavailable && allowed != (w.config.WhenUnavailable == engine.Admit):
		w.fail("a call without a writer is answered %v", allowed)
	case w.total.full > before.full && allowed != (w.config.WhenFull == engine.AdmitNew):
		w.fail("a call in a full table is answered %v", allowed)
	}
	return without
}

func (c *caller) takeAll(number int) {
	world := c.w
	other := (number + 1) % len(world.keys)
	claims := []engine.Claim{world.engine.Claim(world.keys[number], 1), world.engine.Claim(world.keys[other], 1)}
	involved := []int{number, other}
	if other == number {
		claims, involved = claims[:1], involved[:1]
	}
	var epochs [2]int
	var in []*units
	for i, x := range involved {
		account := world.accounts[x]
		in = append(in, world.enters(account, 1))
		account.open++
		account.known = false
		epochs[i] = account.epoch
	}
	regime := world.regime
	c.counts = counts{}
	c.begin(takeAll, number, 2*world.config.OpenTimeout)
	out := engine.TakeAll(claims...)
	var admitted, refused uint64
	for _, decision := range out.Decisions {
		switch {
		case out.Allowed:
			admitted++
		case !decision.Allowed:
			refused++
		}
	}
	c.counts.add(world.counts())
	got := c.counts
	if got.admitted != admitted || got.refused != refused {
		world.fail("TakeAll is counted as %d admitted and %d refused, and was answered %d and %d: %+v",
			got.admitted, got.refused, admitted, refused, out)
	}
	without := got.unavailable + got.full
	for i, x := range involved {
		account := world.accounts[x]
		account.open--
		account.known = false
		// Which key was answered without its word is unknown. A key taken from before the other
		// refused may not get all back: see Reservation.Cancel.
		account.loose = account.loose || without > 0 || !out.Allowed
		if !out.Allowed {
			account.lowered++ // nor need a state that was saved meanwhile be without it
		}
		switch units := in[i]; {
		case world.limit.longest == 0:
		case !out.Allowed:
			units.end(world.steps)
			world.overstays++
		case without > 0:
			units.certain, units.possible, units.taken, units.changed = 0, world.latestNow()+2*int64(maxLongest), world.steps, true
		default:
			c.uses(account, units, int64(world.instant(c.lo)))
		}
		if world.over() {
			continue
		}
		n := int64(0) // it may have taken all the same, and so moved a window on
		if out.Allowed && without == 0 && epochs[i] == account.epoch && regime == world.regime {
			n = 1
		}
		world.record(account, admission{n, int64(world.instant(c.lo)), c.latest(), true})
	}
	if world.limit.longest > 0 && out.Allowed && !world.over() {
		c.held = append(c.held, held{out: &out, key: number, units: in})
	}
}

// change replaces the limit: by its like, so that nothing changes, or by another of the family.
func (c *caller) change() {
	world := c.w
	before := world.limit
	switch {
	case before.longest > 0 && world.plan.chosen:
		c.changeOwn(world.random.n(len(world.keys)))
		return
	case before.interval == 0 && before.longest == 0:
		return
	}
	next, like := *before, !world.random.one(3)
	if !like {
		if before.longest > 0 {
			next = *inFlight(&world.scheduler, int64(1+world.random.n(3)), before.longest<<world.random.n(2))
			if next.longest > maxLongest {
				next = *inFlight(&world.scheduler, next.capacity, perUnit)
			}
		} else {
			next = *funnel(&world.scheduler, int64(1+world.random.n(3)), perUnit<<world.random.n(2))
		}
		world.regime |= 1 // it may be, if a change was asked for while the engine closed
	}
	c.begin(all, 0, seamForever)
	err := world.engine.SetPolicy(next.whole())
	if like {
		c.end()
		return
	}
	switch {
	case err == nil:
		world.limit = &next
		c.carried(before)
	case !errors.Is(err, engine.ErrClosed) && !errors.Is(err, engine.ErrUnavailable):
		world.fail("SetPolicy: %v", err)
	default:
		world.vague = true // it may have been made
	}
	c.changed(err)
}

// changed ends a change. If the engine is closing, the change may have been made, and is over with the engine.
func (c *caller) changed(err error) {
	if !errors.Is(err, engine.ErrClosed) || !c.w.restarting {
		c.w.settled()
	}
	c.end()
}

// settled notes that all calls from now on are judged by w.limit.
func (w *world) settled() {
	w.regime++
	for _, account := range w.accounts {
		account.anew(false)
	}
}

func (c *caller) shut() {
	c.w.closing = true
	c.begin(all, 0, time.Minute)
	if err := c.w.engine.Close(); err != nil && !errors.Is(err, engine.ErrAbandoned) {
		c.w.fail("Close: %v", err)
	}
	c.end()
}
