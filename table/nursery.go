package table

import "sync/atomic"

// A slot of the nursery is a list of the entries to be filed. Callers push in front by
// compare-and-swap; only the writer takes entries out.
type slot[K comparable] = atomic.Pointer[node[K]]

// node is an entry in a slot's list. Its next is set before the push, and later by the writer
// alone. A removed node keeps it, so that a reader there still reaches the rest.
type node[K comparable] struct {
	entry *Entry[K]
	// hash is the hash of the entry's key.
	hash uint64
	// list has the hashes of this node and of those behind it, removed or not.
	list hashes
	next atomic.Pointer[node[K]]
}

// hashes are the number of hashes in a list, above hashBits, and a bit for each. A caller of a new
// key reads them in the first node, and need not load the others, which other processors have
// written. That saved a twentieth of a new key's processor time.
type hashes uint64

const (
	hashBits = 56
	countOne = 1 << hashBits
	// From manyHashes on the number stays.
	manyHashes = 255
)

// bitOf takes bits that the nursery's slots do not share.
func bitOf(hash uint64) hashes { return 1 << (hash >> maxNurseryBits & 0xffff * hashBits >> 16) }

// len returns the number of hashes, at most manyHashes.
func (h hashes) len() int { return int(h >> hashBits) }

func (h hashes) add(hash uint64) hashes {
	if h.len() < manyHashes {
		h += countOne
	}
	return h | bitOf(hash)
}

// hashes returns the hashes of the list of n, none if it is nil.
func (n *node[K]) hashes() hashes {
	if n == nil {
		return 0
	}
	return n.list
}

// pushBefore makes head, which may be nil, the rest of n's list.
func (n *node[K]) pushBefore(head *node[K]) {
	n.list = head.hashes().add(n.hash)
	n.next.Store(head)
}

func (t *Table[K]) slotOf(hash uint64) *slot[K] {
	return &t.nursery[hash&uint64(len(t.nursery)-1)]
}

// waiting returns the key's live entry in the list of node, or nil.
func waiting[K comparable](node *node[K], hash uint64, key K) *Entry[K] {
	if node.hashes()&bitOf(hash) == 0 {
		return nil
	}
	for ; node != nil; node = node.next.Load() {
		if node.hash == hash && node.entry.is(key) && !node.entry.dead() {
			return node.entry
		}
	}
	return nil
}

// unlink takes a node out of its slot. Only the writer calls it.
func (t *Table[K]) unlink(slot *slot[K], node *node[K]) {
	next := node.next.Load()
	if slot.CompareAndSwap(node, next) {
		return
	}
	t.stepPoint("unlink: not the first")
	// Callers can only have pushed in front of it.
	before := slot.Load()
	for before.next.Load() != node {
		before = before.next.Load()
	}
	before.next.Store(next)
}
