package simulation

import (
	"slices"
	"time"

	"github.com/ral-limiter/ral/engine"
)

// anew begins another epoch. If known, the key owes nothing at its beginning.
func (a *account) anew(known bool) {
	a.epoch++
	a.takes, a.back, a.loose = a.takes[:0], 0, a.open > 0
	a.word, a.known = 0, known && a.open == 0
}

// took checks and records an admission whose swap was the last event. It returns its place in
// a.takes for the reservation, or -1.
func (w *world) took(account *account, j judged) (at int) {
	turn := int64(j.turn)
	account.known = account.known && w.regime&1 == 0
	if limit := w.limit; account.known && limit.interval > 0 {
		now := int64(j.now)
		drained := max(account.word, now) + j.n*limit.interval
		wait := max(drained-limit.capacity*limit.interval-now, 0)
		if wait != turn-now {
			w.fail("key %s is admitted %d units at %v to start %v later, where the reference says %v",
				account.name, j.n, time.Duration(now), time.Duration(turn-now), time.Duration(wait))
		}
		account.word = drained
	}
	return w.record(account, admission{j.n, turn, turn, false})
}

// record adds an admission, and checks all windows that end with it.
func (w *world) record(account *account, admission admission) (index int) {
	if w.limit.longest > 0 {
		return -1 // see units
	}
	if w.regime&1 != 0 {
		return -1 // the limit that judged it is unknown
	}
	if account.open > 0 && !admission.late {
		// Another call may have taken before, and not have returned yet.
		admission.late, admission.hi = true, max(admission.hi, int64(w.now()))
	}
	index = len(account.takes)
	account.takes = append(account.takes, admission)
	if !account.known || w.limit.interval == 0 {
		w.windows(account)
	}
	return index
}

// windows checks all windows that end with the newest admission or with the latest instant of any.
func (w *world) windows(account *account) {
	var buffer [64]admission
	takes := append(buffer[:0], account.takes...)
	latest, unsure := int64(0), int64(0)
	for i := range takes {
		if !w.limit.monotone {
			continue
		}
		// The limit holds as if the clock, when it goes back or is read early, stood still.
		t := &takes[i]
		switch {
		case t.late:
			unsure = max(unsure, t.hi)
		case t.n > 0:
			latest = max(latest, t.lo)
			t.lo, t.hi = latest, latest
		}
		t.hi = max(t.hi, latest, unsure)
	}
	newest := takes[len(takes)-1]
	end := newest.hi
	for range 2 {
		for _, first := range takes {
			if first.n == 0 || first.lo > newest.lo {
				continue
			}
			sum, begun := -account.back, first.lo
			for _, t := range takes {
				if t.n > 0 && t.lo >= first.lo && t.hi <= end { // skip cancelled
					sum += t.n
					begun = max(begun, t.lo)
				}
			}
			if w.limit.after {
				sum -= last(takes, first.lo, end, begun)
			}
			if most := w.limit.most(end - first.lo); sum > most {
				w.fail("key %s is admitted %d units from %v to %v, where %v allows %d: %v",
					account.name, sum, time.Duration(first.lo), time.Duration(end), w.limit, most, takes)
			}
		}
		for _, t := range takes {
			end = max(end, t.hi)
		}
	}
}

// last returns the units of the last admission between two instants. Several may be the last, if
// started at begun or later: it returns the largest.
func last(takes []admission, from, to, begun int64) (n int64) {
	for _, t := range takes {
		if t.lo >= from && t.hi <= to && t.hi >= begun {
			n = max(n, t.n)
		}
	}
	return n
}

// cancelled takes back the admission of a reservation, by its index in account.takes.
func (w *world) cancelled(account *account, epoch, index int) {
	account.known = false
	account.lowered++
	if epoch == account.epoch && index >= 0 && index < len(account.takes) {
		account.takes[index].n = 0
	}
}

// refunded notes units given back or charged.
func (w *world) refunded(account *account, n int64) {
	account.known = false
	account.lowered++
	account.back += max(n, 0)
}

// observe is called just before each point at which the writer may die.
func (w *world) observe(point string) {
	if w.over() || w.loading {
		return // the keys may be gone already
	}
	switch point {
	case "writer: received":
		w.given()
	case "writer: done":
		w.hand.done, w.hand.deaths = true, len(w.deaths)
	case "sweep: begin", "room: begin":
		w.doing = point
		// Until it is over no entry comes into the map, where a dead entry is not found.
		for i, key := range w.keys {
			w.filed[i] = w.table.View().Load(w.hashOf(key), key)
		}
	case "evict: dead":
		view := w.table.View()
		forgiven := view.Counters().Forgiven.Load()
		for i, entry := range w.filed {
			if entry == nil || entry.Word() != ^uint64(0) || w.dead[i] == entry {
				continue
			}
			w.dead[i] = entry
			if forgiven == w.forgiven {
				continue
			}
			w.forgiven++
			w.accounts[i].anew(true)
			w.mayForgive(w.accounts[i])
		}
		if forgiven != w.forgiven {
			w.fail("%d keys are forgiven, of which %d can be found", forgiven, w.forgiven)
		}
	}
}

// given checks that a command on which two writers died is not given to a third.
func (w *world) given() {
	hand := &w.hand
	if hand.done && !slices.ContainsFunc(w.deaths[hand.deaths:], func(death Death) bool { return death.Point == "writer: done" }) {
		hand.attempts = 0
	}
	if hand.done = false; hand.attempts > 0 {
		if dropped := w.engine.Stats().Dropped; dropped > w.dropped {
			w.dropped, hand.attempts = dropped, 0
		}
	}
	if hand.attempts++; hand.attempts > 2 {
		w.fail("a command is given out %d times", hand.attempts)
	}
}

func (w *world) mayForgive(account *account) {
	switch {
	case w.limit.longest > 0:
		w.fail("key %s is forgiven, and has units in use", account.name)
	case w.doing != "room: begin":
		w.fail("key %s is forgiven in %q", account.name, w.doing)
	case w.roomy:
		w.fail("key %s is forgiven, and there is room for all", account.name)
	case w.config.WhenFull != 0:
		w.fail("key %s is forgiven under %v", account.name, w.config.WhenFull)
	}
}

// atRest checks the world while no call is under way and the writer sleeps.
func (w *world) atRest() {
	if w.closing {
		return
	}
	if err := w.table.Check(); err != nil {
		w.fail("at rest: %v", err)
		return
	}
	now := w.now()
	for i, account := range w.accounts {
		if w.limit.longest > 0 {
			w.checkUse(i)
		}
		if w.limit.interval == 0 || w.regime&1 != 0 || account.open > 0 || w.wentBack {
			continue
		}
		decision := w.engine.Take(w.keys[i], 0)
		word := int64(now) + int64(decision.ResetAfter)
		if account.known && max(account.word-int64(now), 0) != int64(decision.ResetAfter) {
			w.fail("at rest, at %v, key %s owes for %v, where the reference says until %v",
				time.Duration(now), account.name, decision.ResetAfter, time.Duration(account.word))
		}
		if v := w.plan.verbs; v[wait]+v[cancel]+w.plan.changes == 0 && !account.loose {
			admitted := int64(0)
			for _, t := range account.takes {
				admitted += t.n
			}
			if int64(decision.ResetAfter) > admitted*w.limit.interval {
				w.fail("at rest, key %s owes for %v, and %d units were admitted", account.name, decision.ResetAfter, admitted)
			}
		}
		if !account.known && decision.ResetAfter > 0 {
			account.word, account.known = word, true
		}
	}
}

// counted compares the change of Stats with the answers of the call that just ended, counted as its
// last step. It returns how many were given without the key's word.
func (w *world) counted(admitted, refused uint64) (without uint64) {
	got := w.counts()
	if got.admitted != admitted || got.refused != refused {
		w.fail("a call is counted as %d admitted and %d refused, and was answered %d and %d",
			got.admitted, got.refused, admitted, refused)
	}
	// A key that is just leaving still has its place, so there may be no room for all.
	left := w.table.View().Counters().Evicted.Load() > 0
	// No key in use is given up.
	evicts := w.config.WhenFull == engine.EvictLeastDebt && w.limit.longest == 0
	if got.full > 0 && (w.roomy && !left || evicts) {
		w.fail("a call is answered as for a full table, with %d of %d keys, under %v",
			w.engine.Len(), w.config.MaxKeys, w.config.WhenFull)
	}
	// In 100µs a call waiting for room looks four times, and others may come first each time.
	contended := !w.roomy && w.config.OpenTimeout < time.Millisecond
	if chaos := w.chaos; got.unavailable > 0 && chaos.sleep+chaos.jump+chaos.refuse == 0 && len(w.deaths) == 0 && !w.closing && !contended {
		w.fail("a call is answered as for an unavailable table, although nothing is wrong")
	}
	if without = got.unavailable + got.full; without > admitted+refused {
		w.fail("%d of %d answers are without a word", without, admitted+refused)
	}
	return without
}

// counts returns the change since its last call.
func (w *world) counts() counts {
	stats := w.engine.Stats()
	now := counts{stats.Admitted, stats.Refused, stats.Unavailable, stats.Full}
	since := counts{
		now.admitted - w.total.admitted, now.refused - w.total.refused,
		now.unavailable - w.total.unavailable, now.full - w.total.full,
	}
	w.total = now
	return since
}

func (c *counts) add(more counts) {
	c.admitted += more.admitted
	c.refused += more.refused
	c.unavailable += more.unavailable
	c.full += more.full
}
