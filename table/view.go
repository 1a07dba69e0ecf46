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
	// Busy: the key's slot in the nursery holds the returned entry, which is of
	// another key. Its File command may be sent again; then try again.
	Busy
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
	if p := v.t.slotOf(hash).Load(); p != nil && p.key == key && p.word.Load() <= policy.MaxWord {
		return p
	}
	v.t.between("look: not in the slot")
	// The entry may have moved from the nursery to the map in between.
	if e := v.t.find(hash, key); e != nil && !e.dead() {
		return e
	}
	return nil
}

// Open returns the entry of the key, landing a new one if there is none. It
// never waits: if the status is Busy or Full, the writer has to act first.
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
		switch p := slot.Load(); {
		case p == nil:
			if !t.reserve() {
				return nil, Full
			}
			p = &Entry[K]{key: key}
			p.word.Store(tentative)
			t.between("open: place taken")
			if !slot.CompareAndSwap(nil, p) {
				t.release()
				continue
			}
			t.between("open: in the slot")
			// From here on p keeps any other entry of the key from being filed.
			if t.confirm(hash, p) {
				return p, Landed
			}
		case p.dead():
			t.between("open: met a dead one")
			slot.CompareAndSwap(p, nil)
		case p.key != key:
			return p, Busy
		case t.confirm(hash, p):
			return p, Found
		}
	}
}

// confirm takes the second look for an entry that was found in its slot. It
// returns false if the key has another, and marks this one dead then. An entry
// that is not tentative any more has been judged by others: that is true as well,
// and its word tells what they decided.
func (t *Table[K]) confirm(hash uint64, p *Entry[K]) bool {
	if p.word.Load() != tentative {
		return true // landed already, or dead, which the caller will notice
	}
	t.between("confirm: tentative")
	if e := t.find(hash, p.key); e == nil || e.dead() {
		return true
	}
	t.between("confirm: has another")
	// Whoever's swap succeeds gives the place back and empties the slot; nobody
	// does so twice. If it fails, p must stay in its slot: the other entry may have
	// died meanwhile, and p been landed by somebody who looked after that.
	if !p.word.CompareAndSwap(tentative, tombstone) {
		return true
	}
	t.between("confirm: dead")
	t.release()
	t.between("confirm: counted")
	t.slotOf(hash).CompareAndSwap(p, nil)
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
		if e := v.t.nursery[i].Load(); e != nil && !e.dead() {
			n++
		}
	}
	return n
}
