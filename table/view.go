package table

import (
	"hash/maphash"
	"iter"

	"github.com/ral-limiter/ral/policy"
)

// View is a table without the writer's methods. Table.View makes one; the zero value is not usable.
// A View may be copied, and any number of goroutines may use it.
type View[K comparable] struct{ t *Table[K] }

// Status is the result of opening a key.
type Status int

const (
	// Found: the entry existed, or is new in a slot behind others, to be filed with them.
	Found Status = iota
	// Landed: this call put an entry into an empty slot of the nursery. The caller sends a File
	// command. The entry may be tentative until the caller's Advance.
	Landed
	// Backlogged: as Found, and the slot is so long that the caller should let the writer run.
	Backlogged
	// Undecided: the table looks full, but callers are about to confirm or return a place. Try
	// again.
	Undecided
	// Full: the table has MaxKeys entries, all of other keys.
	Full
)

// Seed returns the seed of the hashes for Load, Look and Open, made by maphash.Comparable.
func (v View[K]) Seed() maphash.Seed { return v.t.seed }

// Terms returns the present terms. Read returns them with a word.
func (v View[K]) Terms() *Terms { return v.t.terms.Load() }

// Read returns an entry's word and the terms by which to read it.
func (v View[K]) Read(entry *Entry[K]) (word uint64, terms *Terms) {
	for {
		terms = v.t.terms.Load()
		v.t.stepPoint("read: the terms")
		word = entry.word.Load()
		v.t.stepPoint("read: the word")
		if terms.Current(word) || v.t.terms.Load() == terms {
			return word, terms
		}
	}
}

// Load returns the filed entry of the key, or nil. Load never waits and writes nothing. The entry
// may be dead, or die at any time: Terms.State reports that, and Look and Open return the live
// entry.
func (v View[K]) Load(hash uint64, key K) *Entry[K] { return v.t.filedEntry(hash, key) }

// Look returns the key's filed or landed entry, or nil. Look never waits.
func (v View[K]) Look(hash uint64, key K) *Entry[K] {
	if entry := v.t.find(hash, key); entry != nil {
		return entry
	}
	v.t.stepPoint("look: not in the map")
	// A tentative entry is of an unused key, whether or not it will live: there is nothing to see.
	if entry := waiting(v.t.slotOf(hash).Load(), hash, key); entry != nil && entry.word.Load() < tentative {
		return entry
	}
	v.t.stepPoint("look: not in the slot")
	// The entry may have moved from the nursery to the map.
	return v.t.find(hash, key)
}

// Seek is Look for keys that mostly have no entry: Seek searches the map once. Once is enough after
// the slot, because an entry is put into the map before it leaves its slot.
func (v View[K]) Seek(hash uint64, key K) *Entry[K] {
	if entry := waiting(v.t.slotOf(hash).Load(), hash, key); entry != nil && entry.word.Load() < tentative {
		return entry
	}
	v.t.stepPoint("seek: not in the slot")
	return v.t.find(hash, key)
}

// Open returns the key's entry, landing a new entry if there is none. Open never waits. If the
// status is Full, the writer has to make room first. A returned tentative entry has had its second
// look: the caller may advance it from its tentative word.
func (v View[K]) Open(hash uint64, key K) (e *Entry[K], status Status) {
	table := v.t
	slot := table.slotOf(hash)
	var n *node[K]
	for {
		if entry := table.find(hash, key); entry != nil {
			return entry, status
		}
		table.stepPoint("open: not in the map")
		head := slot.Load()
		if entry := waiting(head, hash, key); entry != nil {
			table.stepPoint("open: in the slot")
			if table.secondLook(hash, entry) {
				return entry, status
			}
			continue
		}
		table.stepPoint("open: not in the slot")
		switch table.places.take(table.maxKeys) {
		case Undecided:
			return nil, Undecided
		case Full:
			table.stepPoint("open: full")
			if !table.has(hash, key) {
				return nil, Full
			}
			// The last place went to this very key.
			continue
		}
		table.stepPoint("open: place taken")
		if n == nil {
			n = &node[K]{entry: newEntry(key, table.texts), hash: hash}
			n.entry.word.Store(tentative)
		}
		if resets := table.resets.Load(); resets != 0 && table.terms.Load().left != nil {
			// A take of a moved entry meets this one if the entry between them has left. If that was
			// reset, its count of resets was lower, so the take's release takes nothing here.
			n.entry.returned.Store(n.entry.returned.Load()&textMarks | resets<<returnedShift)
		}
		n.pushBefore(head)
		if !slot.CompareAndSwap(head, n) {
			table.places.cancel()
			continue
		}
		table.stepPoint("open: pushed")
		switch length := head.hashes().len(); {
		case head == nil:
			// The status is Landed even if this entry dies, since others may land behind it.
			status = Landed
		case length >= longSlot && status == Found && (length >= maxSlot || !table.running.Load()):
			status = Backlogged
		}
		alone := table.secondLook(hash, n.entry)
		table.places.confirm()
		if alone {
			return n.entry, status
		}
		n = nil
	}
}

func (t *Table[K]) has(hash uint64, key K) bool {
	if entry := waiting(t.slotOf(hash).Load(), hash, key); entry != nil {
		return true
	}
	t.stepPoint("has: not in the slot")
	return t.find(hash, key) != nil
}

// secondLook looks into the map for another entry of entry's key; entry was found in its slot. If it finds
// any, it marks entry dead and returns false. If entry is no longer tentative it returns true: another
// goroutine has judged entry, and its word holds the result.
func (t *Table[K]) secondLook(hash uint64, entry *Entry[K]) bool {
	if entry.word.Load() != tentative {
		return true
	}
	t.stepPoint("second look: tentative")
	if t.find(hash, entry.Key()) == nil {
		return true
	}
	t.stepPoint("second look: has another")
	// The swap fails if the other entry died and a later look landed entry. The goroutine that kills entry
	// returns its place. The place is uncertain from before the swap until it is returned, so that
	// no caller reports a full table in between.
	t.places.markUncertain()
	t.stepPoint("second look: in doubt")
	if !entry.word.CompareAndSwap(tentative, tombstone) {
		t.places.confirm()
		return true
	}
	t.stepPoint("second look: dead")
	t.places.cancel()
	// The writer is to take the entry out of its slot.
	t.lostFiling.Store(true)
	return false
}

// All iterates over the landed and filed entries with their states, in no order. All blocks no
// other goroutine. Entries that come or go meanwhile may be missed, and returned entries may die at
// any time. An entry that stays is returned once, even if a change of policy replaces it.
func (v View[K]) All() iter.Seq2[*Entry[K], Reading] {
	return func(yield func(*Entry[K], Reading) bool) {
		// The nursery first, so that no entry is missed that moves to the map.
		landed := map[K]bool{}
		for i := range v.t.nursery {
			for node := v.t.nursery[i].Load(); node != nil; node = node.next.Load() {
				// A tentative entry may not be the key's only entry.
				if node.entry.word.Load() >= tentative {
					continue
				}
				if reading, alive := v.State(node.entry); alive {
					landed[node.entry.Key()] = true
					if !yield(node.entry, reading) {
						return
					}
				}
				v.t.stepPoint("all: in a slot")
			}
			v.t.stepPoint("all: next slot")
		}
		for i := range v.t.shards {
			for entry, reading := range v.Filed(i) {
				if !landed[entry.Key()] && !yield(entry, reading) {
					return
				}
			}
		}
	}
}

// Shards returns the number of parts of the map. The number never changes.
func (v View[K]) Shards() int { return len(v.t.shards) }

// Filed is All for a part of the map, without the nursery. A key stays in its part.
func (v View[K]) Filed(shard int) iter.Seq2[*Entry[K], Reading] {
	return func(yield func(*Entry[K], Reading) bool) {
		s := v.t.shards[shard].Load()
		if s == nil {
			return
		}
		for entry := range s.all() {
			v.t.stepPoint("all: in a shard")
			// The entry may have been replaced, and then is not alive.
			if reading, alive := v.State(entry); alive && !yield(entry, reading) {
				return
			}
		}
	}
}

// Len returns the number of landed and filed entries, at most the table's MaxKeys.
func (v View[K]) Len() int { return int(v.t.places.taken()) }

// Full reports whether the table has no place for a new key.
func (v View[K]) Full() bool { return v.t.places.full(v.t.maxKeys) }

// Counters returns the writer's counters.
func (v View[K]) Counters() *Counters { return &v.t.counters }

// Horizon returns the latest instant at which a key was, or might have been, forgotten. A caller
// that opens a key anew takes from it at this instant at the earliest. Otherwise, if the caller
// read the clock before the key was forgotten, or the clock went back, the key would be fresh too
// early.
func (v View[K]) Horizon() policy.Instant { return policy.Instant(v.t.horizon.Load()) }

// Firm reports whether every key of a full table is firm at now, as the writer last saw it. A
// request for room is then in vain, so a caller need not wait for the answer. After NoteReset Firm
// reports false until the writer has looked again.
func (v View[K]) Firm(now policy.Instant) bool {
	// The writer clears firmUntil before reset.
	return !v.t.reset.Load() && now < policy.Instant(v.t.firmUntil.Load())
}

// NoteReleased tells the writer that a key may be in use no more, if all keys of a full table were,
// or if the writer is looking whether they are. A caller must call it after the word has changed:
// the writer sees either the word or the note.
func (v View[K]) NoteReleased() {
	if (v.t.firmUntil.Load() != 0 || v.t.looking.Load()) && !v.t.reset.Load() {
		v.t.reset.Store(true)
	}
}

// NoteReset tells the writer that a key will owe nothing. A caller must call it before the word
// changes: with Options.Firm the index takes the key for a firm key.
func (v View[K]) NoteReset() {
	if v.t.terms.Load().Occupier != nil {
		v.t.resets.Add(1)
	}
	if v.t.firm != 0 {
		v.t.reset.Store(true)
	}
}

// NoteLostFiling tells the writer that a command to file was lost.
func (v View[K]) NoteLostFiling() { v.t.lostFiling.Store(true) }

// Landed returns the number of live entries in the nursery. Landed looks at every slot.
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
