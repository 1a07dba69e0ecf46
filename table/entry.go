package table

import (
	"math"
	"sync/atomic"

	"github.com/ral-limiter/ral/policy"
)

// The words above policy.MaxWord mark an entry's stage.
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
	key  K
	// next chains the entries of different keys with the same hash. Written by
	// the writer alone; an entry that was unlinked keeps it, so that a reader
	// who stands on it still reaches the rest.
	next atomic.Pointer[Entry[K]]
}

// Key returns the entry's key.
func (e *Entry[K]) Key() K { return e.key }

// Word returns the word as it stands. Unless it is above policy.MaxWord, it may
// be given to a policy and to Advance at once; otherwise State tells what to do.
func (e *Entry[K]) Word() uint64 { return e.word.Load() }

// Advance swaps the word that a caller has read for the one that it decided on,
// and returns false when somebody else was faster. Success hands the caller
// what it took; there is nobody else to ask.
func (e *Entry[K]) Advance(old, next uint64) bool {
	return e.word.CompareAndSwap(old, next)
}

// State translates a word that was read from an entry into what a policy
// understands. ok is false for the tombstone: look the key up again.
func State(word uint64) (state uint64, ok bool) {
	if word <= policy.MaxWord {
		return word, true
	}
	return 0, word == tentative
}

func (e *Entry[K]) dead() bool { return e.word.Load() == tombstone }
