package table

import (
	"math"
	"sync/atomic"
)

// The words that are above policy.MaxWord, but for the odd bit, mark an entry's
// stage.
const (
	// tentative stands for the word 0 until a second look has made sure that
	// the key has no other entry.
	tentative = math.MaxUint64 - 1
	// tombstone is the last word of an entry. Nothing is swapped for it.
	tombstone = math.MaxUint64
)

// Entry is one key and its word. All callers of a key meet the same entry for
// as long as it lives; see the package comment. Its methods may be called by
// any number of goroutines.
type Entry[K comparable] struct {
	word atomic.Uint64
	// undone counts the units that were given back, but for its lowest bits. One is set
	// while somebody gives back: see TryUndo. The other one stays set: see Mix.
	undone atomic.Uint64
	key    K
}

// Key returns the entry's key.
func (e *Entry[K]) Key() K { return e.key }

// Word returns the word as it stands. What it means, and under which terms it may be
// advanced, View.Read tells.
func (e *Entry[K]) Word() uint64 { return e.word.Load() }

// Advance swaps the word that a caller has read for the one that it decided on,
// and returns false when somebody else was faster. Success hands the caller
// what it took; there is nobody else to ask.
func (e *Entry[K]) Advance(old, next uint64) bool {
	return e.word.CompareAndSwap(old, next)
}

// TryUndo lets its caller be the only one who lowers the word, until EndUndo. The
// answer is false while somebody else is. Others go on taking, which brings no word back
// that there was, so that one which is found to be what it was has not been touched:
// otherwise units that were given back and taken again by others could be given back
// once more.
func (e *Entry[K]) TryUndo() bool {
	undone := e.undone.Load()
	return undone&undoing == 0 && e.undone.CompareAndSwap(undone, undone|undoing)
}

// EndUndo ends what TryUndo has begun.
func (e *Entry[K]) EndUndo() { e.undone.Add(^uint64(undoing - 1)) }

// Undo is for whoever is about to lower the word by giving units back, between TryUndo
// and EndUndo: after he has read the word, and before he swaps it, once for each
// attempt. Undone then tells those who took before that their units may not be where
// they were: it grows by as many units as were given back, or more.
func (e *Entry[K]) Undo(units uint64) { e.undone.Add(units << undoneShift) }

// Undone is for whoever takes and may want to give back: ask it before the word is
// read. It counts up to UndoneMask, and goes on from 0.
func (e *Entry[K]) Undone() uint64 { return e.undone.Load() >> undoneShift }

// Mix is for whoever was promised a turn under a limit other than the table's own, before
// he swaps the word.
func (e *Entry[K]) Mix() {
	if !e.Mixed() {
		e.undone.Or(mixed)
	}
}

// Mixed tells, once the word has been read, whether anybody's turn in it may have been
// promised under another limit.
func (e *Entry[K]) Mixed() bool { return e.undone.Load()&mixed != 0 }

// The bits of Entry.undone that do not count.
const (
	undoing = 1 << iota
	mixed

	undoneShift = iota
)

// UndoneMask is what Entry.Undone counts by.
const UndoneMask = 1<<(64-undoneShift) - 1

func (e *Entry[K]) dead() bool { return e.word.Load() == tombstone }
