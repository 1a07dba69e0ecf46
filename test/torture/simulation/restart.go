package simulation

import (
	"bytes"
	"errors"
	"slices"
	"time"

	"github.com/ral-limiter/ral/engine"
	"github.com/ral-limiter/ral/policy"
)

func (w *world) marks() []mark {
	marks := make([]mark, len(w.accounts))
	for i, account := range w.accounts {
		marks[i] = mark{account.epoch, len(account.takes), account.lowered, account.word, account.known && w.regime&1 == 0}
	}
	return marks
}

// saves notes the known content of the save that c has just ended.
func (c *caller) saves(state []byte, marks []mark) *saved {
	world, regime := c.w, c.regime
	if regime != world.regime || regime&1 != 0 {
		regime = -1
	}
	return &saved{
		state: state, marks: marks, began: c.since, ended: world.elapsed,
		read: world.instant(c.read), lo: world.instant(c.lo), hi: world.instant(c.hi), regime: regime,
	}
}

func (c *caller) save() {
	world := c.w
	var state bytes.Buffer
	marks := world.marks()
	switch err := world.engine.Save(&state); {
	case err == nil:
		world.saved = c.saves(state.Bytes(), marks)
	case !errors.Is(err, engine.ErrClosed) || !world.closing:
		world.fail("Save: %v", err)
	}
}

// restart ends the engine, with calls under way, and starts another. It loads the state of Close,
// or, after a kill, an earlier state. After a kill answers do not count.
func (c *caller) restart() {
	world := c.w
	kill := world.saved != nil && world.random.one(2)
	world.closing, world.restarting = true, true
	world.final.Reset()
	c.begin(all, 0, time.Minute)
	err := world.engine.Close()
	abandoned := errors.Is(err, engine.ErrAbandoned)
	if err != nil && !abandoned {
		world.fail("Close: %v", err)
	}
	from := c.saves(slices.Clone(world.final.Bytes()), nil)
	c.end()

	world.gate = true
	world.Await("restart: calls end", seamForever, func() bool {
		return !slices.ContainsFunc(world.actors, func(actor *actor) bool { return actor.own || actor.caller != nil && actor.caller.busy })
	})
	if abandoned {
		// The writer may have made keys leave while their last states were read.
		for _, account := range world.accounts {
			account.known, account.loose = false, true
		}
	}
	if world.regime&1 != 0 {
		world.settled()
	}
	if kill {
		from = world.saved
	} else {
		from.marks = world.marks()
	}
	world.load(from, kill)
	world.saved, world.gate = from, false
}

// load begins another engine with a state, and checks the result.
func (w *world) load(from *saved, kill bool) {
	config := w.config
	config.Policy = w.limit.whole()
	until := max(w.now(), w.table.View().Horizon()) // by the engine that has ended
	w.loading, w.begun = true, w.elapsed
	w.unread = w.ownClock
	began := w.elapsed
	next, err := engine.Load(bytes.NewReader(from.state), config, w.options()...)
	if err != nil {
		w.fail("Load: %v", err)
		return
	}
	w.engine = next
	w.loading, w.closing, w.restarting = false, false, false
	view := w.table.View()
	w.total, w.hand, w.dropped = counts{}, hand{}, 0
	w.forgiven = view.Counters().Forgiven.Load()
	clear(w.dead)
	clear(w.filed)
	w.counts()
	w.latest, w.overstays = 0, 0
	for _, account := range w.accounts {
		account.units = nil // a state has no units in use
	}
	for _, caller := range w.callers {
		caller.held = nil // reservations end with their engine
	}

	// No key has been forgotten since, so the horizon is the engine's first instant.
	w.first = view.Horizon()
	w.base = int64(w.first) - w.begun
	w.wentBack = w.wentBack || w.first < until
	lo, hi := from.lo+policy.Instant(began-from.ended), max(from.hi+policy.Instant(began-from.began), from.hi)
	if w.ownClock {
		// All limits here can be anchored, so instant 0 never lies earlier than before: the clock's
		// gain on the wall clock does not pass twice.
		lo = min(lo, from.read)
	}
	switch {
	case w.ownClock && w.first < from.read:
		w.fail("an engine begins at %v, and the one that was saved had come to %v", time.Duration(w.first), time.Duration(from.read))
	case w.first < lo || w.first > hi:
		w.fail("an engine begins at %v, which is not from %v to %v", time.Duration(w.first), time.Duration(lo), time.Duration(hi))
	}
	if w.forgiven > 0 && (w.roomy || !kill) {
		w.fail("%d keys are forgiven by Load", w.forgiven)
	}

	tie := max(began-int64(w.first), w.tie)
	if w.wentBack || w.limit.aligned && tie != w.tie {
		// A clock that went back may show a key that left as owing: the file has no horizon. If it
		// lost time, windows begin at other instants now.
		for _, account := range w.accounts {
			account.anew(false)
		}
	}
	w.tie = tie

	// Between two steps.
	actor := w.current
	w.current = nil
	for i, account := range w.accounts {
		if w.forgiven > 0 && view.Load(w.hashOf(w.keys[i]), w.keys[i]) == nil {
			account.anew(false)
		}
		w.compare(i, from.marks[i], kill, kill && from.regime != w.regime)
	}
	w.current = actor
}

// compare checks the debt of a key after a load and continues its account. A clean stop forgives
// nothing, a kill at most the units taken since the save began. A state of another limit is
// replaced as of the load, not as of the change: less or more of it may have drained.
func (w *world) compare(i int, mark mark, kill, translated bool) {
	account := w.accounts[i]
	owes, now := int64(0), int64(w.now())
	exact := w.limit.interval > 0 && w.regime&1 == 0 && !w.wentBack
	if exact {
		owes = int64(w.engine.Take(w.keys[i], 0).ResetAfter)
	}
	since := account.epoch == mark.epoch && account.lowered == mark.lowered
	floor, most := int64(0), never
	if account.known {
		most = max(account.word-now, 0)
	}
	switch {
	case !kill:
		if account.known {
			floor = most
		}
	case translated:
		most = never
	case !since:
		most = never // it may be loaded as before it was reset
	case mark.known:
		floor = max(mark.word-now, 0)
	}
	if exact && (owes < floor || owes > most) {
		w.fail("after a restart (a kill: %v), at %v, key %s owes for %v, where the reference says from %v to %v",
			kill, time.Duration(now), account.name, time.Duration(owes), time.Duration(floor), time.Duration(most))
	}
	// A take of several keys that was answered without one of their words is not in takes.
	if !kill || since && !translated && len(account.takes) == mark.takes && mark.known && account.known && account.word == mark.word {
		return
	}
	first := mark.takes
	if account.epoch != mark.epoch {
		first = 0
	}
	for j := first; j < len(account.takes); j++ {
		account.takes[j].n = 0 // it may be forgiven
	}
	account.known, account.loose = false, true
	if exact && owes > 0 {
		account.word, account.known = now+owes, true
	}
}
