package cell

import (
	"math"

	"github.com/ral-limiter/ral/policy"
	"github.com/ral-limiter/ral/table"
)

// This file releases units in use, of a policy.Occupier, and extends them.
//
// Until a key's first reset a release is one swap without a lock, since no word from before the
// reset comes back after it (Occupier.Vacate). Entry.Returned counts the resets of such a key, so
// it names the generation of its words. A take reads it after the word: a take on a word from after
// a reset then knows the reset. From the first reset on, releases, resets and takes that may be
// released hold the return lock, since a word may come back after a later reset. A release of units
// of another generation changes nothing.

// Extend moves the units of a take into the present part, as if they had been taken now. It returns false if
// they no longer count, or if nothing was recorded or the policy is no policy.Occupier.
func (h *Held[K]) Extend() bool {
	if h.level == nil || !h.cell.occupied {
		return false
	}
	return h.swap(h.level, policy.Occupier.Extend, true)
}

func (h *Held[K]) release(level *table.Level) {
	cell := h.cell
	if terms := cell.view.Terms(); terms.Epoch == h.epoch && h.returned == 0 && level.Returned() == 0 {
		word := level.Word()
		if word == h.after && (word^h.before)&terms.LayoutMask == 0 && h.before&^epochBit != 0 {
			// All calls since have released their units.
			cell.seam.Step("release: read")
			if level.Advance(word, h.before) {
				cell.view.NoteReleased()
				return
			}
			word = level.Word()
		}
		if state, ok := plain(terms, word); ok {
			cell.seam.Step("release: read")
			next, ok := terms.Occupier.Release(state, h.after^terms.EpochBit, math.MaxInt64, h.n)
			if ok && level.Advance(word, next|terms.EpochBit) {
				cell.view.NoteReleased()
				return
			}
		}
	}
	h.swap(level, policy.Occupier.Release, false)
}

// change is Occupier.Release or Occupier.Extend.
type change func(o policy.Occupier, word, taken uint64, now policy.Instant, n int64) (next uint64, ok bool)

// swap makes a change of the key's word. It returns false if the units no longer count, and counts
// the take as overstayed if they have ended by themselves. If the key was reset meanwhile, it only
// returns false.
func (h *Held[K]) swap(level *table.Level, change change, holds bool) bool {
	cell, entry := h.cell, table.EntryOf[K](level)
	for entry != nil {
		if entry.Returned() != h.returned {
			// The units count until the reset is over. A policy that calls the engine may hold the lock.
			if entry.LockReturn() || cell.seam.TryLock("release: after a reset", entry.LockReturn, entry.UnlockReturn) {
				entry.UnlockReturn()
			}
			return false
		}
		switch done, ok, hasEnded := h.trySwap(entry, change, holds); {
		case done && ok:
			cell.view.NoteReleased()
			return true
		case done && !hasEnded:
			return false
		case done:
			entry = nil
		case entry.Moved():
			entry = cell.known(entry.Key())
		}
	}
	if cell.overstayed.Add(1); cell.onOverstay != nil {
		cell.onOverstay(table.EntryOf[K](level).Key())
	}
	return false
}

// trySwap attempts a swap. done is false if another call was faster, or if the entry has moved. ok reports
// whether the units counted. hasEnded is false for units that did not count although their time had not passed:
// they were released before, by a copy of this Held, or the cell was closed.
func (h *Held[K]) trySwap(entry *table.Entry[K], change change, holds bool) (done, ok, hasEnded bool) {
	cell := h.cell
	if h.returned != 0 {
		cell.lockReturn(entry)
		defer entry.UnlockReturn()
		if entry.Returned() != h.returned {
			// swap finds out that the units do not count any more.
			return false, false, false
		}
	}
	word, terms := cell.view.Read(entry)
	if entry.Moved() {
		return false, false, false
	}
	state, alive := terms.State(word)
	taken := terms.Rewrites.Carried(h.after&^epochBit, h.epoch)
	if taken == 0 {
		return true, false, true
	}
	now := cell.now()
	next, ok := change(terms.Occupier, state, taken, now, h.n)
	if !alive || !ok {
		return true, false, terms.Policy.FreshAt(taken) <= now
	}
	cell.seam.Step("release: judged")
	if !entry.Advance(word, next|terms.EpochBit) {
		return false, false, false
	}
	if holds {
		h.level, h.epoch, h.after, h.takenAt = &entry.Level, terms.Epoch, next|terms.EpochBit, now
		// The word before is of other units: see release.
		h.before = 0
	}
	return true, true, false
}

// epochBit is the one bit that table.Terms.EpochBit may set in a word.
const epochBit = 1 << 63
