package table

import (
	"math"
	"sync/atomic"
	"unsafe"
)

// Words above policy.MaxWord, except for the epoch bit, mark an entry's stage.
const (
	// tentative stands for the word 0 until a second look has found no other entry of the key.
	tentative = math.MaxUint64 - 2
	// moved is the last word of an entry that a change of policy has replaced. No swap replaces it.
	moved = math.MaxUint64 - 1
	// tombstone is the last word of an entry that has left. No swap replaces it.
	tombstone = math.MaxUint64
)

// Entry is one key and its level. All callers of a key meet the same entry while it lives. Any
// number of goroutines may call its methods. newEntry makes it.
type Entry[K comparable] struct {
	// Level is the first field, so that EntryOf can find the entry of a level.
	Level
	// key is not used if a text stands in its place: see Key.
	key K
}

// Level is an Entry without its key. Any number of goroutines may call its methods.
type Level struct {
	word atomic.Uint64
	// returned counts units above two flag bits, see LockReturn and MarkForeignTurn, and the mark
	// of a text beside the level, see textMark.
	returned atomic.Uint64
}

// EntryOf returns the entry of a level, which must be of an Entry[K].
func EntryOf[K comparable](level *Level) *Entry[K] { return (*Entry[K])(unsafe.Pointer(level)) }

// Word returns the current word. View.Read returns it with the terms to advance it.
func (l *Level) Word() uint64 { return l.word.Load() }

// Advance swaps a word that a caller has read for its next. Advance returns false if another caller
// was faster. Success hands the units to the caller; nothing else has to agree.
func (l *Level) Advance(old, next uint64) bool {
	return l.word.CompareAndSwap(old, next)
}

// LockReturn acquires the right to lower the word, until UnlockReturn. LockReturn returns false
// while another goroutine has that right. Takes go on meanwhile. A take never recreates an earlier
// word, so with one goroutine at a time that lowers it, an unchanged word is an untouched word.
// Without the lock, units given back, and taken again by other calls, could be given back twice.
func (l *Level) LockReturn() bool {
	returned := l.returned.Load()
	return returned&returning == 0 && l.returned.CompareAndSwap(returned, returned|returning)
}

// LockReturnOf is LockReturn and AddReturned in one swap, after reading the word.
func (l *Level) LockReturnOf(units uint64) bool {
	returned := l.returned.Load()
	return returned&returning == 0 && l.returned.CompareAndSwap(returned, (returned+units<<returnedShift)|returning)
}

func (l *Level) UnlockReturn() { l.returned.Add(^uint64(returning - 1)) }

// AddReturned announces that the caller is about to lower the word. A caller must hold LockReturn,
// must have read the word, and must announce before each attempt to swap the word. Returned grows
// by at least the units given back, so that earlier takers notice that their units may have moved.
func (l *Level) AddReturned(units uint64) { l.returned.Add(units << returnedShift) }

// Returned returns the number of units given back. The count wraps to 0 after ReturnedMask. A
// caller that may give its units back must read the count before the word.
func (l *Level) Returned() uint64 { return l.returned.Load() >> returnedShift }

// MarkForeignTurn records that a turn was promised under another limit than the table's. A caller
// must call it before the swap of the word.
func (l *Level) MarkForeignTurn() {
	if !l.HasForeignTurn() {
		l.returned.Or(foreignTurn)
	}
}

// HasForeignTurn reports whether a turn in the word may have been promised under another limit.
// A caller must have read the word.
func (l *Level) HasForeignTurn() bool { return l.returned.Load()&foreignTurn != 0 }

const (
	// maxText is the length of the longest text beside a level. UUIDs have 36 bytes, IPv6 addresses
	// 39, and most API keys fewer than 60.
	maxText = 80
	// textBits hold a number up to 1 + maxText.
	textBits = 7
)

const (
	returning = 1 << iota
	foreignTurn
	// oneByte is the mark of one byte of the text beside the level.
	oneByte

	returnedShift = iota - 1 + textBits

	textMarks = (1<<textBits - 1) * oneByte
)

// textMark returns the bits of Level.returned for a text of that length beside the level. They never change,
// and are 0 if the entry has a key instead.
func textMark(length int) uint64 { return uint64(1+length) * oneByte }

// ReturnedMask is the largest count of Entry.Returned.
const ReturnedMask = 1<<(64-returnedShift) - 1

func (l *Level) dead() bool { return l.word.Load() > tentative }
