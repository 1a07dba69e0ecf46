package table

import (
	"math"
	"sync/atomic"
)

// The words that are above policy.MaxWord, except for the epoch bit, mark an entry's
// stage.
const (
	// tentative stands for the word 0 until a second look has found that the key has
	// no other entry.
	tentative = math.MaxUint64 - 2
	// moved is the last word of an entry that a change of policy has replaced by
	// another one of its key. No swap replaces it.
	moved = math.MaxUint64 - 1
	// tombstone is the last word of an entry that has left. No swap replaces it.
	tombstone = math.MaxUint64
)

// Entry is one key and its word. All callers of a key meet the same entry for
// as long as it lives; see the package comment. Its methods may be called by
// any number of goroutines.
type Entry[K comparable] struct {
	word atomic.Uint64
	// returned counts the units that were given back, above its two lowest bits. One
	// of these is set while a goroutine gives back: see LockReturn. The other stays
	// set: see MarkForeignTurn.
	returned atomic.Uint64
	key      K
}

// Key returns the entry's key.
func (e *Entry[K]) Key() K { return e.key }

// Word returns the current word. View.Read returns it together with the terms under
// which it may be advanced.
func (e *Entry[K]) Word() uint64 { return e.word.Load() }

// Advance swaps the word that a caller has read for the one that it decided on. It
// returns false if another caller was faster. Success hands the units to the caller;
// nothing else has to agree.
func (e *Entry[K]) Advance(old, next uint64) bool {
	return e.word.CompareAndSwap(old, next)
}

// LockReturn acquires the right to lower the word, until UnlockReturn. It returns
// false while another goroutine has it. Takes go on meanwhile. A take never recreates
// an earlier word, so with one goroutine at a time that lowers it, an unchanged word
// is an untouched word. Without the lock, units that were given back, and taken again
// by other calls, could be given back twice.
func (e *Entry[K]) LockReturn() bool {
	returned := e.returned.Load()
	return returned&returning == 0 && e.returned.CompareAndSwap(returned, returned|returning)
}

// UnlockReturn releases what LockReturn locked.
func (e *Entry[K]) UnlockReturn() { e.returned.Add(^uint64(returning - 1)) }

// AddReturned announces that the caller is about to lower the word by giving units
// back. Call it under LockReturn, after reading the word and before each attempt to
// swap it. Returned grows by at least as many units as are given back, so that
// earlier takers notice that their units may have moved.
func (e *Entry[K]) AddReturned(units uint64) { e.returned.Add(units << returnedShift) }

// Returned returns the number of units given back. It wraps to 0 after ReturnedMask.
// A caller that may want to give its units back reads it before the word.
func (e *Entry[K]) Returned() uint64 { return e.returned.Load() >> returnedShift }

// MarkForeignTurn records that a turn was promised under a limit other than the
// table's own. Call it before the swap of the word.
func (e *Entry[K]) MarkForeignTurn() {
	if !e.HasForeignTurn() {
		e.returned.Or(foreignTurn)
	}
}

// HasForeignTurn reports whether a turn in the word may have been promised under
// another limit. Call it after reading the word.
func (e *Entry[K]) HasForeignTurn() bool { return e.returned.Load()&foreignTurn != 0 }

// The bits of Entry.returned that do not count.
const (
	returning = 1 << iota
	foreignTurn

	returnedShift = iota
)

// ReturnedMask is the largest count of Entry.Returned.
const ReturnedMask = 1<<(64-returnedShift) - 1

// dead reports whether the entry has left or was replaced.
func (e *Entry[K]) dead() bool { return e.word.Load() > tentative }
