package cell

import (
	"runtime"
	"sync/atomic"
	"time"

	"github.com/ral-limiter/ral/policy"
	"github.com/ral-limiter/ral/table"
)

// ask is what one call asks of a key.
type ask struct {
	n        int64
	patience time.Duration
	// with is the limit that came with the call; nil is the cell's own.
	with policy.Policy
	// atOnce calls are refused rather than told to wait, also by a policy that makes
	// its callers wait.
	atOnce bool
	// refund gives n back instead of taking it.
	refund bool
	// exact calls advance the word themselves, in Queued mode too.
	exact bool
	// silent calls are not counted until their answer is final: see report.
	silent bool
	// hasty calls are refused rather than wait for room in a full table.
	hasty bool
	// after refuses what would start before that instant; 0 does not.
	after policy.Instant

	// What follows is found out on the way. without is the counter of answers
	// without the key's word, if this is one; lost tells that nothing can be
	// recorded for the key, now or later.
	without *atomic.Uint64
	lost    bool
}

// everything is counted as undone for a key that was reset. Whoever has taken from it
// before gets nothing back.
const everything = 1 << 33

// undoes is as how many units of the cell's own policy n units of with's are counted
// that brought a word down from state to next: as many as bring it down as far, or
// more. A unit of a slower limit is many of a faster one.
func undoes(terms *table.Terms, with policy.Policy, state, next uint64, now policy.Instant, n int64) uint64 {
	units := min(n, everything)
	own, ok := terms.Policy.(policy.Refunder)
	if with == nil || !ok {
		return uint64(units)
	}
	for low := own.Refund(state, now, units); low > next && units < everything; {
		units *= 2
		before := low
		if low = own.Refund(state, now, units); low == before {
			break // there is no more to give back: it is one that counts in windows
		}
	}
	return uint64(units)
}

// taken is what became of the word of a key that was taken from.
type taken[K comparable] struct {
	entry         *table.Entry[K] // nil if nothing was recorded
	terms         uint64          // their number
	before, after uint64
	at            policy.Instant
	undone        uint64 // what Entry.Returned said before
}

// judge decides for a key whose word says state.
func (a *ask) judge(terms *table.Terms, state uint64, now policy.Instant) (uint64, policy.Decision) {
	p := terms.Policy
	if a.with != nil {
		if p = a.with; !terms.ReadsWordsOf(p) {
			return state, policy.Decision{RetryAfter: policy.Never}
		}
	}
	if !a.refund {
		next, d := p.Take(state, now, a.n, a.patience)
		switch {
		case a.after != 0 && d.Allowed && now+policy.Instant(d.Wait) < a.after:
			next, d = state, policy.Decision{Limit: d.Limit, RetryAfter: time.Duration(a.after - now)}
		case !a.atOnce:
		case d.Allowed && d.Wait > 0:
			retry := d.Wait
			next, d = p.Take(state, now, 0, 0)
			d.Allowed, d.RetryAfter = false, retry
		case !d.Allowed && d.RetryAfter < policy.Never-time.Duration(max(now, 0)):
			// That is when it could join a queue. It would have to wait there as well.
			_, then := p.Take(state, now+policy.Instant(d.RetryAfter), a.n, a.patience)
			d.RetryAfter += then.Wait
		}
		return next, d
	}
	refunder, ok := p.(policy.Refunder)
	if !ok {
		return state, policy.Decision{RetryAfter: policy.Never}
	}
	next := refunder.Refund(state, now, a.n)
	_, d := p.Take(next, now, 0, 0)
	return next, d
}

// take does what a asks for.
func (c *Cell[K]) take(key K, a *ask) (policy.Decision, taken[K]) {
	if a.with == nil && !a.hasty { // who is hasty has chosen before
		a.with = c.chosen(key)
	}
	hash, ok := c.hash(key)
	now := c.now()
	if ok {
		if e := c.view.Load(hash, key); e != nil {
			if d, t, ok := c.takeFrom(e, now, a); ok {
				return d, t
			}
		}
	}
	return c.takeUnfiled(hash, ok, key, now, a)
}

// takeFrom takes from an entry. The answer is false if the entry is dead: nothing
// has been taken then, and the key must be looked up again.
func (c *Cell[K]) takeFrom(e *table.Entry[K], now policy.Instant, a *ask) (policy.Decision, taken[K], bool) {
	if a.refund && a.n > 0 {
		return c.giveBack(e, now, a)
	}
	return c.advance(e, now, a)
}

// giveBack is takeFrom for who gives units back.
func (c *Cell[K]) giveBack(e *table.Entry[K], now policy.Instant, a *ask) (policy.Decision, taken[K], bool) {
	c.beginUndo(e)
	defer e.UnlockReturn()
	return c.advance(e, now, a)
}

// advance does what takeFrom says.
func (c *Cell[K]) advance(e *table.Entry[K], now policy.Instant, a *ask) (policy.Decision, taken[K], bool) {
	for {
		undone := e.Returned()
		word, terms := c.view.Read(e)
		state, alive := terms.State(word)
		if !alive {
			return policy.Decision{}, taken[K]{}, false
		}
		if state == 0 && a.n != 0 && (!a.refund || a.n < 0) {
			// The key may have been used, drained and forgotten since now was
			// read. This entry does not remember what it took then, so that a
			// take dated back to then would be free.
			now = max(now, c.view.Horizon())
		}
		next, d := a.judge(terms, state, now)
		switch {
		case a.n == 0:
			return d, taken[K]{}, true
		case d.Allowed && next > policy.MaxWord:
			// A policy that breaks its contract must not break the table.
			return c.count(a, policy.Decision{Limit: d.Limit, RetryAfter: policy.Never}), taken[K]{}, true
		case !d.Allowed || a.refund && next == state:
			return c.count(a, d), taken[K]{}, true
		case c.admission == Queued && !a.exact && a.with == nil && c.writing():
			// Only a landed entry may be charged later on.
			plain := state | terms.EpochBit
			landed := word == plain || e.Advance(word, plain)
			runtime.KeepAlive(terms)
			if !landed {
				continue
			}
			if c.queue.Send(table.TakeCommand(e, now, a.n, a.patience), c.openTimeout) != nil {
				return c.unrecorded(a, d, c.whenUnavailable == Admit, c.openTimeout, &c.unavailable), taken[K]{}, true
			}
			return c.count(a, d), taken[K]{}, true
		}
		if a.refund && a.n > 0 {
			e.AddReturned(undoes(terms, a.with, state, next, now, a.n))
			c.step("refund: undone")
		}
		if a.with != nil && d.Wait > 0 {
			e.MarkForeignTurn()
		}
		t := taken[K]{e, terms.Epoch, state | terms.EpochBit, next | terms.EpochBit, now, undone}
		done := e.Advance(word, t.after)
		runtime.KeepAlive(terms)
		if done {
			return c.count(a, d), t, true
		}
		// Somebody else took meanwhile. Decide again, at the same instant.
	}
}

// count counts an answer that took the key's word into account.
func (c *Cell[K]) count(a *ask, d policy.Decision) policy.Decision {
	switch {
	case a.silent || a.refund:
	case d.Allowed:
		c.tally.mine().admitted.Add(1)
	default:
		c.tally.mine().refused.Add(1)
	}
	return d
}

// report counts a silent call. without is what its ask says.
func (c *Cell[K]) report(allowed bool, without *atomic.Uint64) {
	if without != nil {
		without.Add(1)
	}
	c.count(&ask{}, policy.Decision{Allowed: allowed})
}

// look tells what a would be answered, and records nothing.
func (c *Cell[K]) look(key K, a *ask) policy.Decision {
	if a.with == nil {
		a.with = c.chosen(key)
	}
	now := c.now()
	terms, state := c.standing(key)
	if state == 0 {
		now = max(now, c.view.Horizon())
	}
	_, d := a.judge(terms, state, now)
	return d
}

// standing returns what the key's word says, 0 if it has none, and how to read it.
func (c *Cell[K]) standing(key K) (terms *table.Terms, state uint64) {
	e := c.entry(key)
	if e == nil {
		return c.view.Terms(), 0
	}
	word, terms := c.view.Read(e)
	state, _ = terms.State(word)
	return terms, state
}

// entry returns the key's entry, or nil if it has none.
func (c *Cell[K]) entry(key K) *table.Entry[K] {
	hash, ok := c.hash(key)
	if !ok || c.closed.Load() {
		return nil
	}
	return c.view.Look(hash, key)
}
