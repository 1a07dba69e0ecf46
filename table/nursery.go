package table

import "sync/atomic"

// A slot of the nursery is a list of the entries to be filed. Callers push in front by
// compare-and-swap; only the writer takes entries out.
type slot[K comparable] = atomic.Pointer[node[K]]

// node is an entry in a slot's list. Its next is set before the push, and later by the writer
// alone. A removed node keeps it, so that a reader there still reaches the rest.
type node[K comparable] struct {
	entry *Entry[K]
	hash  uint64 // of the entry's key
	next  atomic.Pointer[node[K]]
}

func (t *Table[K]) slotOf(hash uint64) *slot[K] {
	return &t.nursery[hash&uint64(len(t.nursery)-1)]
}

// waiting returns the key's live entry in the list of n, or nil, and the number of nodes before it.
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
	// Callers can only have pushed in front of it.
	before := s.Load()
	for before.next.Load() != n {
		before = before.next.Load()
	}
	before.next.Store(next)
}
