package table

import "fmt"

// Check compares the map with the index and the nursery, and returns an error for the first
// disagreement. Tests call it when the writer has ended and no goroutine opens keys. Its running
// time grows with the table. docs/decisions/0012 says why it is a method. While recovery is
// unfinished, Check compares only the recovered shards with the index; the others may have dead
// entries. Unless a change of policy is under way, all words must be the present policy's.
func (t *Table[K]) Check() error {
	terms := t.terms.Load()
	stale := func(entry *Entry[K]) bool {
		word := entry.word.Load()
		return !t.changing && word < tentative && !terms.Current(word)
	}
	filings := make(map[*Entry[K]]int, t.index.Len())
	for filing := range t.index.All() {
		filings[filing.entry]++
	}

	pending := make(map[*Entry[K]]bool, len(t.pending))
	for _, entry := range t.pending {
		pending[entry] = true
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
		shard := t.shards[i].Load()
		if shard == nil {
			continue
		}
		before := filed
		for entry := range shard.all() {
			filed++
			inMap[entry] = true
			hash := t.hash(entry.Key())
			owner, rest := t.shardOf(hash)
			// An eviction that a writer began and recovery will finish leaves the key for a new entry.
			begun := entry.dead() && !t.isIndexed(i)
			switch {
			case keys[entry.Key()] && !begun:
				fail("key %v has two entries", entry.Key())
			case owner != i || !shard.has(shard.place(hash, rest), entry):
				fail("key %v is filed where its hash does not lead", entry.Key())
			case !entry.dead() && shard.find(shard.place(hash, rest), entry.Key()) != entry:
				fail("key %v is filed and not found", entry.Key())
			case entry.word.Load() == tentative:
				fail("key %v is filed, but tentative", entry.Key())
			case stale(entry):
				fail("key %v has a word of another policy", entry.Key())
			case t.isIndexed(i) && entry.dead():
				fail("key %v is dead, but filed", entry.Key())
			case t.isIndexed(i) && !pending[entry] && filings[entry] != 1:
				fail("key %v has %d index entries", entry.Key(), filings[entry])
			}
			if !begun {
				keys[entry.Key()] = true
			}
			if t.isIndexed(i) && !pending[entry] {
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
		for node := t.nursery[i].Load(); node != nil; node = node.next.Load() {
			entry := node.entry
			// The hashes behind the node, without their number.
			behind := node.next.Load().hashes() << (64 - hashBits) >> (64 - hashBits)
			if (bitOf(node.hash)|behind)&^node.list != 0 {
				fail("the list from key %v on lacks a hash", entry.Key())
			}
			if entry.dead() || inMap[entry] {
				continue
			}
			landed++
			if keys[entry.Key()] {
				fail("key %v has an entry in the nursery and another elsewhere", entry.Key())
			}
			if stale(entry) {
				fail("key %v has landed with a word of another policy", entry.Key())
			}
			keys[entry.Key()] = true
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
