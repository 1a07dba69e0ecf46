package table

import (
	"hash/maphash"

	"github.com/ral-limiter/ral/policy"
)

// View is a table without the methods that its writer has. Its zero value is of
// no use: a Table gives it. It may be copied, and used by any number of
// goroutines.
type View[K comparable] struct{ t *Table[K] }

// Status is what came of opening a key.
type Status int

const (
	// Found: the entry was there already.
	Found Status = iota
	// Landed: the entry is new, and in the nursery because of this call. The
	// caller sends a File command for it once its word is advanced.
	Landed
	// Full: the table has as many entries as it may.
	Full
)

// Seed returns the seed by which maphash.Comparable gives the hashes that Load,
// Look and Open take along with a key.
func (v View[K]) Seed() maphash.Seed { return v.t.seed }

// Load returns the filed entry of the key, or nil if there is none. It never
// waits and writes nothing. The entry may die at any time: State tells.
func (v View[K]) Load(hash uint64, key K) *Entry[K] { return v.t.find(hash, key) }

// Look returns the entry of the key, filed or landed, or nil if there is none.
// Unlike Open it opens no key. It never waits.
func (v View[K]) Look(hash uint64, key K) *Entry[K] {
	if e := v.t.find(hash, key); e != nil && !e.dead() {
		return e
	}
	v.t.between("look: not in the map")
	// A tentative entry stands for a key that was never used, whether or not
	// it will live: nothing to see.
	if p := waiting(v.t.slotOf(hash).Load(), key); p != nil && p.word.Load() <= policy.MaxWord {
		return p
	}
	v.t.between("look: not in the slot")
	// The entry may have moved from the nursery to the map in between.
	if e := v.t.find(hash, key); e != nil && !e.dead() {
		return e
	}
	return nil
}

// Open returns the entry of the key, landing a new one if there is none. It waits
// for nobody; if the status is Full, the writer has to make room first.
//
// A returned tentative entry has had its second look: it may be advanced from
// the word that it had. See the package comment for why that is right.
func (v View[K]) Open(hash uint64, key K) (e *Entry[K], status Status) {
	t := v.t
	slot := t.slotOf(hash)
	for {
		if e := t.find(hash, key); e != nil && !e.dead() {
			return e, Found
		}
		t.between("open: not in the map")
		head := slot.Load()
		if e := waiting(head, key); e != nil {
			t.between("open: in the slot")
			if t.confirm(hash, e) {
				return e, Found
			}
			continue
		}
		if !t.reserve() {
			return nil, Full
		}
		t.between("open: place taken")
		e := &Entry[K]{key: key}
		e.word.Store(tentative)
		n := &node[K]{entry: e}
		n.next.Store(head)
		if !slot.CompareAndSwap(head, n) {
			t.release()
			continue
		}
		t.between("open: pushed")
		// From here on everybody who would push another entry of the key meets e.
		if t.confirm(hash, e) {
			return e, Landed
		}
	}
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
	if other := t.find(hash, e.key); other == nil || other.dead() {
		return true
	}
	t.between("confirm: has another")
	// If this fails, the other entry may have died meanwhile, and e been landed by
	// somebody who looked after that. Whoever succeeds gives the place back.
	if !e.word.CompareAndSwap(tentative, tombstone) {
		return true
	}
	t.between("confirm: dead")
	t.release()
	t.stray.Store(true) // for the writer to take it out of its slot
	return false
}

// Len returns the number of entries, landed and filed. It is never above the
// table's MaxKeys.
func (v View[K]) Len() int { return int(v.t.entries.Load()) }

// Counters returns the writer's counters.
func (v View[K]) Counters() *Counters { return &v.t.counters }

// Stray tells the writer that the command to file an entry was lost.
func (v View[K]) Stray() { v.t.stray.Store(true) }

// reserve takes a place for one entry, if one is free. It never overshoots, not
// even for a moment, so that Len can be believed.
func (t *Table[K]) reserve() bool {
	for {
		n := t.entries.Load()
		if n >= t.maxKeys {
			return false
		}
		t.between("reserve: counted")
		if t.entries.CompareAndSwap(n, n+1) {
			return true
		}
	}
}

func (t *Table[K]) release() { t.entries.Add(-1) }

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
