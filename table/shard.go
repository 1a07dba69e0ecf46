package table

import "github.com/puzpuzpuz/xsync/v3"

// A shard maps the hash of a key to the chain of entries that have it: its own
// hash function is the identity. Only the writer changes a shard.
type shard[K comparable] = xsync.MapOf[uint64, *Entry[K]]

func newShard[K comparable]() *shard[K] {
	return xsync.NewMapOfWithHasher[uint64, *Entry[K]](func(hash, _ uint64) uint64 { return hash })
}

// insert puts an entry into the map, ahead of others with the same hash. It
// returns false if it is there already.
func (t *Table[K]) insert(i int, hash uint64, e *Entry[K]) bool {
	s := t.shards[i].Load()
	if s == nil {
		s = newShard[K]()
		t.shards[i].Store(s)
	}
	head, _ := s.Load(hash)
	for at := head; at != nil; at = at.next() {
		if at == e {
			return false
		}
	}
	e.setNext(head)
	s.Store(hash, e)
	return true
}

// remove takes a dead entry out of the map and gives its place back. Nothing may
// come between the two: a writer who died there would leave the place taken.
func (t *Table[K]) remove(i int, hash uint64, e *Entry[K]) {
	s := t.shards[i].Load()
	if s == nil {
		return // cleared
	}
	head, _ := s.Load(hash)
	next := e.next()
	switch {
	case head != e:
		before := head
		for before.next() != e {
			before = before.next()
		}
		before.setNext(next)
	case next != nil:
		s.Store(hash, next)
	default:
		s.Delete(hash)
	}
	t.between("remove: unlinked")
	t.places.free()
	if t.removed[i]++; t.removed[i] >= removalsPerShard {
		t.compact(i)
	}
}

// compact copies a shard into a new map. A bucket of an xsync map that once
// overflowed stays long: after some generations of keys a full table would take
// a fifth more than it did at first, and an emptied one would keep half of it.
// Readers of the old map find in it all that was there; what came later they
// find when they take their second look.
func (t *Table[K]) compact(i int) {
	t.removed[i] = 0
	var compact *shard[K]
	t.shards[i].Load().Range(func(hash uint64, head *Entry[K]) bool {
		if compact == nil {
			compact = newShard[K]()
		}
		compact.Store(hash, head)
		return true
	})
	t.between("compact: copied")
	t.shards[i].Store(compact) // nil if nobody is left
}
