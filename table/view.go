package table

import (
	"hash/maphash"
	"iter"

	"github.com/ral-limiter/ral/policy"
)

// View is a table without the methods that its writer has. Its zero value is of
// no use: a Table gives it. It may be copied, and used by any number of
// goroutines.
type View[K comparable] struct{ t *Table[K] }

// Status is what came of opening a key.
type Status int

const (
	// Found: the entry was there already; or it is new and has landed in a slot of
	// the nursery where others wait, and will be filed with them.
	Found Status = iota
	// Landed: this call has put an entry into an empty slot of the nursery. The
	// caller sends a File command.
	Landed
	// Backlogged: as Found, and so many wait in the slot that the caller should let
	// the writer run.
	Backlogged
	// Undecided: it cannot be told whether the table is full, as other callers are just
	// about to take a place or to give it back. Try again.
	Undecided
	// Full: the table has as many entries as it may, all of other keys.
	Full
)

// Seed returns the seed by which maphash.Comparable gives the hashes that Load,
// Look and Open take along with a key.
func (v View[K]) Seed() maphash.Seed { return v.t.seed }

// Terms returns the policy that holds. Read returns it with a word.
func (v View[K]) Terms() *Terms { return v.t.terms.Load() }

// Load returns the filed entry of the key, or nil if there is none. It never
// waits and writes nothing. The entry may die at any time: Terms.State tells.
func (v View[K]) Load(hash uint64, key K) *Entry[K] { return v.t.find(hash, key) }

// Look returns the entry of the key, filed or landed, or nil if there is none.
// Unlike Open it opens no key. It never waits.
func (v View[K]) Look(hash uint64, key K) *Entry[K] {
	if e := v.t.find(hash, key); e != nil {
		return e
	}
	v.t.between("look: not in the map")
	// A tentative entry stands for a key that was never used, whether or not
	// it will live: nothing to see.
	if p, _ := waiting(v.t.slotOf(hash).Load(), hash, key); p != nil && p.word.Load() < tentative {
		return p
	}
	v.t.between("look: not in the slot")
	// The entry may have moved from the nursery to the map in between.
	return v.t.find(hash, key)
}

// Open returns the entry of the key, landing a new one if there is none. It waits
// for nobody; if the status is Full, the writer has to make room first.
//
// A returned tentative entry has had its second look: it may be advanced from
// the word that it had. See the package comment for why that is right.
func (v View[K]) Open(hash uint64, key K) (e *Entry[K], status Status) {
	t := v.t
	slot := t.slotOf(hash)
	var n *node[K]
	for {
		if e := t.find(hash, key); e != nil {
			return e, status
		}
		t.between("open: not in the map")
		head := slot.Load()
		e, length := waiting(head, hash, key)
		if e != nil {
			t.between("open: in the slot")
			if t.confirm(hash, e) {
				return e, status
			}
			continue
		}
		t.between("open: not in the slot")
		switch t.places.take(t.maxKeys) {
		case Undecided:
			return nil, Undecided
		case Full:
			t.between("open: full")
			if !t.has(hash, key) {
				return nil, Full
			}
			continue // the last place went to this very key
		}
		t.between("open: place taken")
		if n == nil {
			n = &node[K]{entry: &Entry[K]{key: key}, hash: hash}
			n.entry.word.Store(tentative)
		}
		n.next.Store(head)
		if !slot.CompareAndSwap(head, n) {
			t.places.giveBack()
			continue
		}
		t.between("open: pushed")
		// From here on everybody who would push another entry of the key meets it.
		switch {
		case head == nil:
			status = Landed // whatever becomes of this entry: others may join it
		case length >= longSlot && status == Found:
			status = Backlogged
		}
		alone := t.confirm(hash, n.entry)
		t.places.keep()
		if alone {
			return n.entry, status
		}
		n = nil
	}
}

// has tells whether the key has a live entry, filed, landed or tentative.
func (t *Table[K]) has(hash uint64, key K) bool {
	if e, _ := waiting(t.slotOf(hash).Load(), hash, key); e != nil {
		return true
	}
	t.between("has: not in the slot")
	return t.find(hash, key) != nil
}

// confirm takes the second look for an entry that was found in its slot. It
// returns false if the key has another, and marks this one dead then. An entry
// that is not tentative any more has been judged by others: that is true as well,
// and its word tells what they decided.
func (t *Table[K]) confirm(hash uint64, e *Entry[K]) bool {
	if e.word.Load() != tentative {
		return true
	}
	t.between("confirm: tentative")
	if t.find(hash, e.key) == nil {
		return true
	}
	t.between("confirm: has another")
	// If this fails, the other entry may have died meanwhile, and e been landed by
	// somebody who looked after that. Whoever succeeds gives the place back.
	// Its place is uncertain from before it is dead until it is free, whatever the
	// caller who took it finds: nobody is to take the table for full meanwhile.
	t.places.doubt()
	t.between("confirm: in doubt")
	if !e.word.CompareAndSwap(tentative, tombstone) {
		t.places.keep()
		return true
	}
	t.between("confirm: dead")
	t.places.giveBack()
	t.lostFiling.Store(true) // for the writer to take it out of its slot
	return false
}

// All goes through the entries, landed and filed, in no order. It stops nobody:
// entries that come or go meanwhile may or may not be seen, and seen ones may die at
// any time. An entry that is there all the time is seen once.
func (v View[K]) All() iter.Seq[*Entry[K]] {
	return func(yield func(*Entry[K]) bool) {
		// The nursery first: who moves from there to the map is not missed then.
		landed := map[*Entry[K]]bool{}
		for i := range v.t.nursery {
			for at := v.t.nursery[i].Load(); at != nil; at = at.next.Load() {
				// A tentative one may not be the key's only entry.
				if at.entry.word.Load() >= tentative {
					continue
				}
				landed[at.entry] = true
				if !yield(at.entry) {
					return
				}
				v.t.between("all: in a slot")
			}
			v.t.between("all: next slot")
		}
		for i := range v.t.shards {
			s := v.t.shards[i].Load()
			if s == nil {
				continue
			}
			for e := range s.all() {
				v.t.between("all: in a shard")
				if !landed[e] && !e.dead() && !yield(e) {
					return
				}
			}
		}
	}
}

// Len returns the number of entries, landed and filed. It is never above the
// table's MaxKeys.
func (v View[K]) Len() int { return int(v.t.places.taken()) }

// Counters returns the writer's counters.
func (v View[K]) Counters() *Counters { return &v.t.counters }

// Horizon returns the latest instant at which a key was forgotten, or might have been.
// Whoever opens a key anew takes from it no earlier: if he has read the clock before
// the key was forgotten, or the clock went back, the key would be fresh at a time when
// it was not.
func (v View[K]) Horizon() policy.Instant { return policy.Instant(v.t.horizon.Load()) }

// NoteLostFiling tells the writer that the command to file an entry was lost.
func (v View[K]) NoteLostFiling() { v.t.lostFiling.Store(true) }

// Landed returns how many entries are in the nursery. It looks at every slot.
func (v View[K]) Landed() (n int) {
	for i := range v.t.nursery {
		for at := v.t.nursery[i].Load(); at != nil; at = at.next.Load() {
			if !at.entry.dead() {
				n++
			}
		}
	}
	return n
}
