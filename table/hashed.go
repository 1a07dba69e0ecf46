package table

import (
	"cmp"
	"iter"
	"slices"
	"sync/atomic"

	"github.com/ral-limiter/ral/policy"
)

// HashSize is the length of a key's hash in a saved state, in bytes.
const HashSize = 16

// hashed holds the words of keys that are known by their hashes alone: those of a saved state
// that names no key. A word stays here until its key is opened, and then moves to the key's
// entry, once. The table has none of it, and no call looks further than one pointer, once all
// words have moved or mean the same as 0.
//
// How a word moves: the caller that makes an entry looks the key's place up here and notes it
// in the entry, before the entry is in the nursery. The entry is the key's only one when its
// second look has found no other: see the package comment. Only then, and before the entry
// may be taken from, a goroutine that meets it names it the owner of the place, by a
// compare-and-swap from a place without owner, and then swaps the entry's tentative word for
// the word of the place. Any goroutine may do the second step: the place of an owner does not
// change any more, so all would put the same word. A place has one owner for ever. So a key
// that has left the table and comes back, or was reset, finds nothing here.
//
// An entry that owns a place does not lose it. Another goroutine may kill it while it is
// tentative, but only if that found the key in the map, and then the owner is that entry, or
// one before it.
type hashed[K comparable] struct {
	// hash returns the hash of a key. It may run code of the user, so that only callers call
	// it, never the writer.
	hash   func(K) ([HashSize]byte, bool)
	places map[[HashSize]byte]int32 // in words
	hashes [][HashSize]byte         // of words
	words  []hashedPlace[K]
	left   atomic.Int64 // the words that have not moved

	// These belong to the writer. translated counts the words that are of the present policy,
	// and looked is the place that dropFresh comes to next.
	translated int
	looked     int
}

// hashedPlace holds the word of one key, nil if it has moved.
type hashedPlace[K comparable] = atomic.Pointer[hashedWord[K]]

// hashedWord is immutable.
type hashedWord[K comparable] struct {
	word    uint64 // as of an entry, with its epoch bit
	epoch   uint64 // of the terms that left it
	foreign bool   // see Entry.HasForeignTurn
	owner   *Entry[K]
}

// find returns one more than the key's place, 0 if it has none.
func (h *hashed[K]) find(key K) int {
	hash, ok := h.hash(key)
	if !ok {
		return 0
	}
	i, ok := h.places[hash]
	if !ok || h.words[i].Load() == nil {
		return 0
	}
	return int(i) + 1
}

// note remembers a place in an entry that no other goroutine knows yet. The count of returned
// units has room for it: it may begin anywhere.
func (e *Entry[K]) note(place int) { e.returned.Store(uint64(place) << returnedShift) }

// readHashed translates a word that has no owner, for the present terms. gone is true if the
// word has been replaced meanwhile.
func (t *Table[K]) readHashed(place *hashedPlace[K], w *hashedWord[K]) (r Reading, gone bool) {
	for {
		terms := t.terms.Load()
		t.stepPoint("hashed: the terms")
		if place.Load() != w {
			return r, true
		}
		// All words are of the present terms or of those before, unless these have changed.
		if w.epoch == terms.Epoch || w.epoch+1 == terms.Epoch {
			state, _ := terms.State(w.word)
			return Reading{terms, state, w.foreign}, false
		}
	}
}

// recall gives a tentative entry the word of its key, if there is one: see hashed. The entry has
// had its second look. An entry that is left tentative has none.
func (t *Table[K]) recall(h *hashed[K], e *Entry[K]) {
	// The count is that of the place for as long as the entry is tentative, so it comes first.
	noted := e.Returned()
	if noted == 0 || e.word.Load() != tentative {
		return
	}
	place := &h.words[noted-1]
	for {
		w := place.Load()
		t.stepPoint("recall: read")
		switch {
		case w == nil || w.owner != nil && w.owner != e:
			return
		case w.owner == nil:
			r, gone := t.readHashed(place, w)
			if gone {
				continue
			}
			t.stepPoint("recall: judged")
			owned := &hashedWord[K]{r.State | r.Terms.EpochBit, r.Terms.Epoch, w.foreign, e}
			if !place.CompareAndSwap(w, owned) {
				continue
			}
			t.stepPoint("recall: owned")
			w = owned
		}
		if w.foreign {
			e.MarkForeignTurn()
		}
		if e.word.CompareAndSwap(tentative, w.word) {
			t.stepPoint("recall: moved")
			place.Store(nil)
			t.moveHashed(h)
		}
		return
	}
}

// moveHashed counts a word that has moved or was forgotten. Without any left, nothing is looked
// up here any more.
func (t *Table[K]) moveHashed(h *hashed[K]) {
	if h.left.Add(-1) == 0 {
		t.hashed.CompareAndSwap(h, nil)
	}
}

// Hashed is the state of a key that is known by its hash alone, at one moment.
type Hashed[K comparable] struct {
	Reading
	t     *Table[K]
	h     *hashed[K]
	place *hashedPlace[K]
	word  *hashedWord[K]
}

// Replace replaces the state, by another one of the same terms, without an entry for the key. It
// returns false if the state has changed since, or the key has an entry by now. A state of 0
// forgets the key.
func (k Hashed[K]) Replace(state uint64) bool {
	var next *hashedWord[K]
	if state != 0 {
		next = &hashedWord[K]{state | k.Terms.EpochBit, k.Terms.Epoch, k.Foreign, nil}
	}
	k.t.stepPoint("hashed: judged")
	if !k.place.CompareAndSwap(k.word, next) {
		return false
	}
	if next == nil {
		k.t.moveHashed(k.h)
	}
	return true
}

// Hashed returns the state of a key whose word has not moved to an entry. ok is false if there is
// no such word. The key may have an entry then, also one that it had not when Hashed was called:
// look for that afterwards. LookBoth does both.
func (v View[K]) Hashed(key K) (k Hashed[K], ok bool) {
	if h := v.t.hashed.Load(); h != nil {
		return v.t.lookHashed(h, key)
	}
	return k, false
}

// lookHashed is View.Hashed.
func (t *Table[K]) lookHashed(h *hashed[K], key K) (k Hashed[K], ok bool) {
	i := h.find(key)
	if i == 0 {
		return k, false
	}
	return t.readPlace(h, &h.words[i-1])
}

// readPlace returns the state of a place. ok is false if its word has moved to an entry.
func (t *Table[K]) readPlace(h *hashed[K], place *hashedPlace[K]) (k Hashed[K], ok bool) {
	for {
		w := place.Load()
		t.stepPoint("hashed: read")
		if w == nil {
			return k, false
		}
		if e := w.owner; e != nil {
			// Calls that look for the entry do not see it while it is tentative.
			t.recall(h, e)
			return k, false
		}
		if r, gone := t.readHashed(place, w); !gone {
			return Hashed[K]{r, t, h, place, w}, true
		}
	}
}

// LookKnown returns the entry of the key, as Look does. If there is none, hashes is true if the
// key may have a word all the same, which LookBoth finds: it makes a call that finds an entry
// no slower.
func (v View[K]) LookKnown(hash uint64, key K) (e *Entry[K], hashes bool) {
	// First: when there is none left, each word had moved before the look for its entry.
	h := v.t.hashed.Load()
	v.t.stepPoint("look: hashes")
	e = v.Look(hash, key)
	return e, e == nil && h != nil
}

// LookBoth returns the entry of the key, as Look does. If there is none, it returns the state of
// a key whose word has not moved to an entry; ok is false if there is none either. It never
// waits.
func (v View[K]) LookBoth(hash uint64, key K) (e *Entry[K], k Hashed[K], ok bool) {
	e, hashes := v.LookKnown(hash, key)
	if !hashes {
		return e, k, false
	}
	if k, ok = v.Hashed(key); !ok {
		e = v.Look(hash, key) // it may have moved in between
	}
	return e, k, ok
}

// HashedLen returns the number of words that have not moved to an entry.
func (v View[K]) HashedLen() int {
	if h := v.t.hashed.Load(); h != nil {
		return int(h.left.Load())
	}
	return 0
}

// HashedPlaces returns the number of words that HashedAt knows of, moved ones included.
func (v View[K]) HashedPlaces() int {
	if h := v.t.hashed.Load(); h != nil {
		return len(h.words)
	}
	return 0
}

// HashedAt returns the state of the key of a place, which is below HashedPlaces. ok is false if its
// word has moved to an entry, or all have.
func (v View[K]) HashedAt(place int) (r Reading, ok bool) {
	h := v.t.hashed.Load()
	if h == nil {
		return r, false
	}
	k, ok := v.t.readPlace(h, &h.words[place])
	return k.Reading, ok
}

// AllHashed iterates over the states of keys that are known by their hashes alone. One whose word
// moves meanwhile is seen here, or All sees its entry if it begins later; or both do.
func (v View[K]) AllHashed() iter.Seq2[[HashSize]byte, Reading] {
	return func(yield func([HashSize]byte, Reading) bool) {
		h := v.t.hashed.Load()
		if h == nil {
			return
		}
		for i := range h.words {
			if k, ok := v.t.readPlace(h, &h.words[i]); ok && !yield(h.hashes[i], k.Reading) {
				return
			}
		}
	}
}

// Only the writer calls the methods below.

// translateHashed brings some words to the present policy, and reports whether all are. Those
// that have an owner are translated in its entry.
func (t *Table[K]) translateHashed() (all bool) {
	h := t.hashed.Load()
	if h == nil {
		return true
	}
	for budget := settleStep; budget > 0 && h.translated < len(h.words); budget-- {
		t.renewHashed(h, &h.words[h.translated])
		h.translated++
	}
	return h.translated == len(h.words)
}

// renewHashed brings a word to the present policy.
func (t *Table[K]) renewHashed(h *hashed[K], place *hashedPlace[K]) {
	for {
		w := place.Load()
		if w == nil || w.owner != nil || w.epoch == t.terms.Load().Epoch {
			return
		}
		r, gone := t.readHashed(place, w)
		switch {
		case gone:
		case (Hashed[K]{r, t, h, place, w}).Replace(r.State):
			return
		}
	}
}

// hashedPerSweep is the number of places that dropFresh looks at. It takes some 0.1 ms, and with
// a look a second, a million take 8 minutes.
const hashedPerSweep = 2048

// dropFresh forgets words that mean the same as 0, at some of the places.
func (t *Table[K]) dropFresh(now policy.Instant) {
	h := t.hashed.Load()
	if h == nil {
		return
	}
	for range min(hashedPerSweep, len(h.words)) {
		place := &h.words[h.looked]
		h.looked = (h.looked + 1) % len(h.words)
		w := place.Load()
		if w == nil || w.owner != nil {
			continue
		}
		r, gone := t.readHashed(place, w)
		if gone || r.Terms.Policy.FreshAt(r.State) > now {
			continue
		}
		t.forgetAt(now) // before the key is gone
		t.stepPoint("hashed: fresh")
		Hashed[K]{r, t, h, place, w}.Replace(0)
	}
}

// AddHashed adds the word of a key that is known by its hash alone, as Add does. A hash that was
// added before is replaced. Recall comes after the last one.
func (l *Loader[K]) AddHashed(hash [HashSize]byte, state uint64, foreign bool) {
	l.hashed = append(l.hashed, loadedHash{hash, state, foreign})
}

// loadedHash is a hash and its word.
type loadedHash struct {
	hash    [HashSize]byte
	state   uint64
	foreign bool
}

// Recall ends the adding of hashes. hash returns that of a key; ok is false for a key that has
// none. Callers call it when they open keys, any number of goroutines at once. If there are more
// than MaxKeys, those that owe least are left out, and what they owe is forgiven.
func (l *Loader[K]) Recall(hash func(K) (of [HashSize]byte, ok bool)) {
	t := l.t
	h := &hashed[K]{hash: hash, places: make(map[[HashSize]byte]int32, len(l.hashed))}
	kept := l.hashed[:0]
	for _, a := range l.hashed {
		if i, again := h.places[a.hash]; again {
			kept[i] = a
			continue
		}
		h.places[a.hash] = int32(len(kept))
		kept = append(kept, a)
	}
	l.hashed = nil
	if most := int(t.maxKeys); len(kept) > most {
		p := t.terms.Load().Policy
		slices.SortFunc(kept, func(a, b loadedHash) int {
			return cmp.Compare(p.FreshAt(b.state), p.FreshAt(a.state))
		})
		for _, a := range kept[most:] {
			delete(h.places, a.hash)
		}
		t.counters.Forgiven.Add(uint64(len(kept) - most))
		kept = kept[:most]
		for i, a := range kept {
			h.places[a.hash] = int32(i)
		}
	}
	if len(kept) == 0 {
		return
	}
	h.words, h.hashes = make([]hashedPlace[K], len(kept)), make([][HashSize]byte, len(kept))
	words := make([]hashedWord[K], len(kept))
	for i, a := range kept {
		words[i].word, words[i].foreign = a.state, a.foreign
		h.words[i].Store(&words[i])
		h.hashes[i] = a.hash
	}
	h.left.Store(int64(len(kept)))
	h.translated = len(kept)
	t.hashed.Store(h)
}
