package table

import "sync/atomic"

// A slot of the nursery is a list of the entries that wait to be filed. Callers push
// in front of it, by compare-and-swap; only the writer takes entries out.
type slot[K comparable] = atomic.Pointer[node[K]]

// node is an entry in a slot's list. Its next is set before it is pushed, and then
// changed by the writer alone. A node that was taken out keeps it, so that a reader
// at that node still reaches the rest.
type node[K comparable] struct {
	entry *Entry[K]
	hash  uint64 // of the entry's key
	next  atomic.Pointer[node[K]]
}

func (t *Table[K]) slotOf(hash uint64) *slot[K] {
	return &t.nursery[hash&uint64(len(t.nursery)-1)]
}

// waiting returns the key's entry in the list that begins with n, or nil, and the
// number of nodes before it. It skips dead entries, which wait to be taken out.
func waiting[K comparable](n *node[K], hash uint64, key K) (e *Entry[K], length int) {
	for ; n != nil; n = n.next.Load() {
		if n.hash == hash && n.entry.key == key && !n.entry.dead() {
			return n.entry, length
		}
		length++
	}
	return nil, length
}

// unlink takes a node out of its slot. Only the writer calls it.
func (t *Table[K]) unlink(s *slot[K], n *node[K]) {
	next := n.next.Load()
	if s.CompareAndSwap(n, next) {
		return
	}
	t.stepPoint("unlink: not the first")
	// Callers have pushed in front of it, which is all that they can do.
	before := s.Load()
	for before.next.Load() != n {
		before = before.next.Load()
	}
	before.next.Store(next)
}
