package cell

import (
	"math"

	"github.com/ral-limiter/ral/internal/core/decide"
	"github.com/ral-limiter/ral/internal/core/underway"
	"github.com/ral-limiter/ral/policy"
	"github.com/ral-limiter/ral/table"
)

// This file and changelimit.go have all code that lowers a word: Refund, Keep, Reset and ChangeLimit. A call
// that lowers a word holds the entry's return lock from before it reads the word until it has swapped
// it, and announces by AddReturned how much it gives back. Takes go on meanwhile, except takes that hold
// the lock, too: see lockLog and advanceIn.

// resetUnits is counted as given back by a reset, so that earlier reservations give nothing back.
const resetUnits = 1 << 33

// Refund gives n units back to the key, or charges -n if n is below 0, and puts the key's state
// then into d. It is not counted.
func (c *Cell[K]) Refund(key K, n int64, d *policy.Decision) { c.RefundWith(nil, key, n, d) }

// RefundWith is Refund in units of another limit of the family; nil means the key's own.
func (c *Cell[K]) RefundWith(limit policy.Policy, key K, n int64, decision *policy.Decision) {
	if limit == nil && n >= 0 {
		if entry, _, now := c.locate(key); entry != nil && c.refundKnown(entry, now, n, decision) {
			return
		}
	}
	choice := c.orChosen(limit, key)
	if n < 0 {
		basis := c.take(key, &request{n: n, choice: choice, charge: true}, decision, nil)
		c.warn(key, basis.passed, decision)
		return
	}
	for {
		now := c.now()
		entry := c.known(key)
		if entry == nil {
			// A key without an entry has nothing to get back.
			lowerUnder(c.view.Terms(), choice.limit, 0, now, n, decision)
			return
		}
		if c.refund(entry, &choice, now, n, decision) {
			return
		}
		// The key was evicted meanwhile, or its limit changes.
		choice = c.orChosen(limit, key)
	}
}

// refundKnown is refund under the cell's own limit, with one locked operation less. It returns false if it has
// given nothing back, for refund to do so. An announcement too many does no harm.
func (c *Cell[K]) refundKnown(entry *table.Entry[K], now policy.Instant, n int64, decision *policy.Decision) bool {
	terms := c.view.Terms()
	word := entry.Word()
	state, ok := plain(terms, word)
	if !ok || terms.Refunder == nil {
		return false
	}
	next := lowerUnder(terms, nil, state, now, n, decision)
	switch {
	case next == state:
		return true
	case next > policy.MaxWord || !decision.Allowed || !entry.LockReturnOf(uint64(min(n, resetUnits))):
		return false
	}
	c.seam.Step("refund: undone")
	done := entry.Advance(word, next|terms.EpochBit)
	entry.UnlockReturn()
	return done
}

func (c *Cell[K]) refund(
	entry *table.Entry[K], choice *choice, now policy.Instant, n int64, decision *policy.Decision,
) (done bool) {
	c.lockReturn(entry)
	defer entry.UnlockReturn()
	if c.isOutdated(choice) {
		return false
	}
	limit := choice.limit
	for {
		word, terms := c.view.Read(entry)
		state, alive := terms.State(word)
		if !alive {
			return false
		}
		if state == 0 && n != 0 {
			now = max(now, c.view.Horizon())
		}
		next := lowerUnder(terms, limit, state, now, n, decision)
		switch {
		case n == 0 || next == state || !decision.Allowed:
			return true
		case next > policy.MaxWord:
			// A policy that breaks its contract must not break the table.
			*decision = policy.Decision{Limit: decision.Limit, RetryAfter: policy.Never}
			return true
		}
		entry.AddReturned(ownUnits(terms, limit, state, next, now, n))
		c.seam.Step("refund: undone")
		done := entry.Advance(word, next|terms.EpochBit)
		if done {
			return true
		}
	}
}

// lowerUnder is decide.Refund under limit, or the terms' own if nil; another family's refuses.
func lowerUnder(
	terms *table.Terms, limit policy.Policy, state uint64, now policy.Instant, n int64, decision *policy.Decision,
) (next uint64) {
	refunder := terms.Refunder
	switch {
	// This is decide.Refund, with Terms.Take in place of the policy's Take.
	case limit == nil && refunder != nil && n >= 0:
		next = refunder.Refund(state, now, n)
		terms.Take(next, now, 0, 0, decision)
		return next
	case limit == nil:
		limit = terms.Policy
	case !terms.ReadsWordsOf(limit):
		*decision = policy.Decision{RetryAfter: policy.Never}
		return state
	default:
		refunder, _ = limit.(policy.Refunder)
	}
	return decide.Refund(limit, refunder, state, now, n, decision)
}

// ownUnits returns how many units of the cell's own policy bring a word down from state to next, or
// further. One unit of a slower limit is worth many units of a faster limit.
func ownUnits(terms *table.Terms, limit policy.Policy, state, next uint64, now policy.Instant, n int64) uint64 {
	units := min(n, resetUnits)
	own := terms.Refunder
	if limit == nil || own == nil {
		return uint64(units)
	}
	for low := own.Refund(state, now, units); low > next && units < resetUnits; {
		units *= 2
		before := low
		if low = own.Refund(state, now, units); low == before {
			// The limit counts in windows, so there is no more to give back.
			break
		}
	}
	return uint64(units)
}

// Cancel gives all units back.
func (h *Held[K]) Cancel() { h.Keep(0) }

// Keep ends a take with n of its units used. It gives the others back as far as later takes keep
// their promised turns and the limit holds. n below 0 counts as 0; with all units, or more, nothing
// comes back. A second call does nothing. Under a policy.Occupier all units are released, whatever
// n is, since the call is over.
func (h *Held[K]) Keep(n int64) {
	level := h.level
	switch {
	case level == nil:
	case !h.cell.occupied:
		h.keep(n)
	default:
		h.level = nil
		if h.release(level); !h.cell.lines.Empty() {
			h.cell.lines.Wake(table.EntryOf[K](level).Key())
		}
	}
}

// keep is Keep, and wakes no call in line.
func (h *Held[K]) keep(n int64) {
	level, back := h.level, h.n-max(n, 0)
	h.level = nil
	if level != nil && h.cell.occupied {
		h.release(level)
		return
	}
	if level == nil || back <= 0 || back == h.n && h.cancelLatest(level) {
		return
	}
	entry := table.EntryOf[K](level)
	h.cell.lockReturn(entry)
	defer func() { entry.UnlockReturn() }()
	for own := uint64(0); ; {
		word, terms := h.cell.view.Read(entry)
		returned := (entry.Returned() - h.returned - own) & table.ReturnedMask
		if terms.Epoch != h.epoch || returned >= resetUnits {
			// The word of the take has another meaning now, or the key was reset.
			return
		}
		if entry.Moved() {
			to := h.cell.view.Successor(entry, terms)
			if to == nil {
				return
			}
			entry.UnlockReturn()
			// Units of this call may be counted in the successor or not.
			entry, own = to, 0
			h.cell.lockReturn(entry)
			continue
		}
		announced, done := h.settle(entry, terms, word, returned, back)
		if done {
			return
		}
		own += announced
	}
}

// cancelLatest gives back all units if no other call has changed the word since. Otherwise it returns false,
// and has done nothing. It calls no policy while it holds a lock.
func (h *Held[K]) cancelLatest(level *table.Level) bool {
	terms := h.cell.view.Terms()
	if terms.Epoch != h.epoch || level.Word() != h.after || level.Returned() != h.returned {
		return false
	}
	restorer, next := restorerOf(h.limit, terms), h.before
	switch {
	case restorer != nil:
		before, _ := terms.State(next)
		next = min(restorer.Restore(h.after&^terms.EpochBit, before, h.cell.now()), policy.MaxWord) | terms.EpochBit
	case h.remembered.Log == nil:
		return false
	}
	if !level.LockReturn() {
		return false
	}
	defer level.UnlockReturn()
	if level.Returned() != h.returned {
		return false
	}
	h.cell.seam.Step("cancel: judged")
	if restorer != nil {
		return level.Advance(h.after, next)
	}
	mark := underway.Mark{Word: h.after &^ terms.EpochBit, Epoch: h.epoch, Returned: h.returned}
	next, ok := h.remembered.Log.Undo(h.remembered.ID, mark)
	if ok = ok && level.Advance(h.after, next|terms.EpochBit); ok {
		mark.Word = next
		h.remembered.Log.Settled(mark)
	}
	return ok
}

// settle attempts to swap a word for one without back units of the take. The caller holds the
// entry's return lock. returned counts units that others gave back since the take, and announced
// counts the units that settle has added to Entry.Returned. done is false if another call was
// faster.
func (h *Held[K]) settle(
	entry *table.Entry[K], terms *table.Terms, word, returned uint64, back int64,
) (announced uint64, done bool) {
	cell, restorer := h.cell, restorerOf(h.limit, terms)
	mark := underway.Mark{Word: word &^ terms.EpochBit, Epoch: terms.Epoch, Returned: entry.Returned()}
	log, next, ok := h.remembered.Log, uint64(0), false
	if log != nil && log.Entry == &entry.Level && terms.Current(word) {
		next, ok = log.Settle(h.remembered.ID, mark, h.n-back)
		next |= terms.EpochBit
	}
	untouched := word == h.after && returned == 0
	switch {
	case ok:
	case untouched:
		log = nil
		if next, ok = h.replayWith(terms, h.n-back); ok && restorer != nil {
			before, _ := terms.State(next)
			next = min(restorer.Restore(mark.Word, before, cell.now()), policy.MaxWord) | terms.EpochBit
		}
	case restorer == nil:
		// A key in the table has a hash.
		hash, _ := cell.hash(entry.Key())
		log = cell.underway.Find(hash, &entry.Level)
	}
	if !ok {
		next = h.cancelLater(entry, terms, word, returned, back)
		if next == word || log != nil && !log.Correct(mark, next&^terms.EpochBit) {
			return 0, true
		}
	}
	if !ok || !untouched {
		announced = h.announce(entry, terms, word, next, cell.now(), back)
	}
	cell.seam.Step("cancel: judged")
	if !entry.Advance(word, next) {
		return announced, false
	}
	if log != nil {
		log.Settled(underway.Mark{Word: next &^ terms.EpochBit, Epoch: terms.Epoch, Returned: entry.Returned()})
	}
	return announced, true
}

// announce adds the units about to come back to Entry.Returned, and returns them.
func (h *Held[K]) announce(
	entry *table.Entry[K], terms *table.Terms, word, next uint64, now policy.Instant, back int64,
) (units uint64) {
	units = ownUnits(terms, h.limit, word&^terms.EpochBit, next&^terms.EpochBit, now, back)
	entry.AddReturned(units)
	return units
}

// replayWith returns the word as if the take had been of n units. ok is false if its turn would
// have differed: its units might lie in another window.
func (h *Held[K]) replayWith(terms *table.Terms, n int64) (next uint64, ok bool) {
	if n == 0 {
		return h.before, true
	}
	state, _ := terms.State(h.before)
	next, decision := h.policyUnder(terms).Take(state, h.takenAt, n, forever)
	return next | terms.EpochBit, decision.Allowed && decision.Wait == h.wait && next <= policy.MaxWord
}

// cancelLater returns the word after back units come back, although other calls changed it since.
func (h *Held[K]) cancelLater(entry *table.Entry[K], terms *table.Terms, word, returned uint64, back int64) uint64 {
	// Not before: some units of the word may have drained since.
	now, others := h.cell.now(), int64(returned)
	if (h.limit != nil || entry.HasForeignTurn()) && (word != h.after || returned > 0) {
		// Turns under other limits since are unknown. Assume the worst: everything was given back.
		others = math.MaxInt64
	}
	refunder, ok := h.policyUnder(terms).(policy.Refunder)
	state, alive := terms.State(word)
	if !ok || !alive || !terms.Current(word) {
		return word
	}
	after, _ := terms.State(h.after)
	next := refunder.Cancel(state, after, h.takenAt, now, back, others)
	if next > policy.MaxWord {
		return word
	}
	return next | terms.EpochBit
}

func (h *Held[K]) policyUnder(terms *table.Terms) policy.Policy {
	if h.limit != nil {
		return h.limit
	}
	return terms.Policy
}

// Reset forgets the key's use, including debts and promised turns. It reports whether anything
// still counted.
func (c *Cell[K]) Reset(key K) bool {
	lifted := false
	if blocks := c.blocks.Load(); blocks != nil {
		if lifted = blocks.Reset(key); lifted {
			defer c.lines.Wake(key)
		}
	}
	for {
		entry := c.known(key)
		if entry == nil {
			return lifted
		}
		if used, alive := c.reset(entry); alive {
			if c.occupied {
				defer c.lines.Wake(key)
			}
			return used || lifted
		}
	}
}

func (c *Cell[K]) reset(entry *table.Entry[K]) (used, alive bool) {
	c.lockReturn(entry)
	defer entry.UnlockReturn()
	for {
		word, terms := c.view.Read(entry)
		state, alive := terms.State(word)
		if !alive {
			return false, false
		}
		if state == 0 {
			return false, true
		}
		now, units, next := c.now(), uint64(resetUnits), uint64(0)
		used := terms.Policy.FreshAt(state) > now
		if terms.Occupier != nil {
			// A unit stands for a generation: see release.
			units, next = 1, terms.Occupier.Vacate(state, now)
		}
		entry.AddReturned(units)
		c.view.NoteReset()
		c.view.NoteReleased()
		c.seam.Step("reset: undone")
		done := entry.Advance(word, next|terms.EpochBit)
		if done {
			return used, true
		}
	}
}

// lockReturn acquires the entry's return lock. Its holders never block.
func (c *Cell[K]) lockReturn(entry *table.Entry[K]) {
	for !entry.LockReturn() {
		c.yieldToReturn(entry)
	}
}
