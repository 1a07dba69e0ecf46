package table

import "fmt"

// Check compares the map with the index and the nursery, and returns an error for the first
// disagreement. It is for tests, when the writer has ended and no goroutine opens keys. Its time
// grows with the table. docs/decisions/0012 says why it is a method. While recovery is unfinished,
// it compares only the recovered shards with the index; the others may have dead entries. Unless a
// change of policy is under way, all words must be the present policy's.
func (t *Table[K]) Check() error {
	terms := t.terms.Load()
	stale := func(e *Entry[K]) bool {
		word := e.word.Load()
		return !t.changing && word < tentative && !terms.Current(word)
	}
	filings := make(map[*Entry[K]]int, t.index.Len())
	for f := range t.index.All() {
		filings[f.entry]++
	}

	pending := make(map[*Entry[K]]bool, len(t.pending))
	for _, e := range t.pending {
		pending[e] = true
	}

	filed, indexed := 0, 0
	keys := make(map[K]bool, t.places.taken())
	inMap := make(map[*Entry[K]]bool, t.places.taken())
	var err error
	fail := func(format string, args ...any) {
		if err == nil {
			err = fmt.Errorf("ral/table: "+format, args...)
		}
	}
	for i := range t.shards {
		s := t.shards[i].Load()
		if s == nil {
			continue
		}
		before := filed
		for e := range s.all() {
			filed++
			inMap[e] = true
			hash := t.hash(e.Key())
			owner, rest := t.shardOf(hash)
			// An eviction that a writer began and recovery will finish leaves the key for a new entry.
			begun := e.dead() && !t.isIndexed(i)
			switch {
			case keys[e.Key()] && !begun:
				fail("key %v has two entries", e.Key())
			case owner != i || !s.has(s.place(hash, rest), e):
				fail("key %v is filed where its hash does not lead", e.Key())
			case !e.dead() && s.find(s.place(hash, rest), e.Key()) != e:
				fail("key %v is filed and not found", e.Key())
			case e.word.Load() == tentative:
				fail("key %v is filed, but tentative", e.Key())
			case stale(e):
				fail("key %v has a word of another policy", e.Key())
			case t.isIndexed(i) && e.dead():
				fail("key %v is dead, but filed", e.Key())
			case t.isIndexed(i) && !pending[e] && filings[e] != 1:
				fail("key %v has %d index entries", e.Key(), filings[e])
			}
			if !begun {
				keys[e.Key()] = true
			}
			if t.isIndexed(i) && !pending[e] {
				indexed++
			}
		}
		if filed-before != t.filed[i] {
			fail("shard %d counts %d entries, has %d", i, t.filed[i], filed-before)
		}
	}
	if len(filings) != indexed || t.index.Len() != indexed {
		fail("%d entries in the index, %d in its part of the map", t.index.Len(), indexed)
	}

	landed := 0
	for i := range t.nursery {
		for n := t.nursery[i].Load(); n != nil; n = n.next.Load() {
			e := n.entry
			// The hashes behind the node, without their number.
			behind := n.next.Load().hashes() << (64 - hashBits) >> (64 - hashBits)
			if (bitOf(n.hash)|behind)&^n.list != 0 {
				fail("the list from key %v on lacks a hash", e.Key())
			}
			if e.dead() || inMap[e] {
				continue
			}
			landed++
			if keys[e.Key()] {
				fail("key %v has an entry in the nursery and another elsewhere", e.Key())
			}
			if stale(e) {
				fail("key %v has landed with a word of another policy", e.Key())
			}
			keys[e.Key()] = true
		}
	}
	if n := t.places.taken(); n != int64(filed+landed) || n > t.maxKeys {
		fail("counts %d entries of at most %d, has %d filed and %d landed", n, t.maxKeys, filed, landed)
	}
	if t.places.word.Load() >= uncertain {
		fail("callers are still about to land: Check was called too early")
	}
	return err
}
