// Package frequent finds the most frequent keys of a stream of any length, in bounded memory, by
// the space-saving algorithm of Metwally, Agrawal and El Abbadi (2005).
//
// It has a fixed number of counters, each for a key. A key without a counter takes over the lowest,
// with its count, which is remembered as the possible error. That is at most the sum of all weights
// divided by the number of counters. So a key with more than that always has a counter, whatever
// other keys come.
package frequent

import "math/bits"

// Counter counts a key. The key's true count is at most Count and at least Count-Over.
type Counter[K comparable] struct {
	Key         K
	Count, Over uint64
	// Last is the largest instant of the key that was added.
	Last int64
	hash uint64
	// slot is the place of the counter in Keys.slots.
	slot uint32
}

// Keys counts keys. New makes it. It is for one goroutine at a time.
type Keys[K comparable] struct {
	// counters is a heap with the lowest count in front.
	counters []Counter[K]
	// slots finds counters by hash: each holds a counter's index plus 1, or 0. A counter is in the
	// slot of its hash, or further on without a free slot between.
	slots []uint32
}

// New returns Keys with so many counters, 1 to 1<<20.
func New[K comparable](counters int) *Keys[K] {
	return &Keys[K]{
		counters: make([]Counter[K], 0, counters),
		slots:    make([]uint32, 2<<bits.Len(uint(counters))),
	}
}

// Add counts a key with a weight, at an instant. Equal keys must have equal hashes. It does not
// allocate.
func (k *Keys[K]) Add(hash uint64, key K, weight uint64, now int64) {
	slot, found := k.find(hash, key)
	i := 0
	switch {
	case found:
		i = int(k.slots[slot]) - 1
	case len(k.counters) < cap(k.counters):
		i = len(k.counters)
		k.counters = append(k.counters, Counter[K]{Key: key, Last: now, hash: hash})
		k.put(i, slot)
		k.up(i)
		i = int(k.slots[slot]) - 1
	default:
		lowest := k.counters[0].Count
		k.free(k.counters[0].slot)
		slot, _ = k.find(hash, key)
		k.counters[0] = Counter[K]{Key: key, Count: lowest, Over: lowest, Last: now, hash: hash}
		k.put(0, slot)
	}
	counter := &k.counters[i]
	counter.Count += weight
	counter.Last = max(counter.Last, now)
	k.down(i)
}

// All returns the counters, in no order. They change with the next Add or Clear, and must not be
// changed.
func (k *Keys[K]) All() []Counter[K] { return k.counters }

// Find returns the counter of another counter's key. If there is none, ok is false, and the counter
// bounds the count by Floor.
func (k *Keys[K]) Find(other *Counter[K]) (counter Counter[K], ok bool) {
	if slot, found := k.find(other.hash, other.Key); found {
		return k.counters[k.slots[slot]-1], true
	}
	return Counter[K]{Key: other.Key, Count: k.Floor(), Over: k.Floor(), hash: other.hash}, false
}

// Floor returns the most that a key without a counter can have counted.
func (k *Keys[K]) Floor() uint64 {
	if len(k.counters) < cap(k.counters) {
		return 0
	}
	return k.counters[0].Count
}

func (k *Keys[K]) Clear() {
	// The keys can then be collected.
	clear(k.counters)
	clear(k.slots)
	k.counters = k.counters[:0]
}

// find returns the slot of the key's counter, or the free slot for it.
func (k *Keys[K]) find(hash uint64, key K) (slot uint32, found bool) {
	for slot = k.home(hash); ; slot = k.next(slot) {
		place := k.slots[slot]
		if place == 0 {
			return slot, false
		}
		if counter := &k.counters[place-1]; counter.hash == hash && counter.Key == key {
			return slot, true
		}
	}
}

func (k *Keys[K]) home(hash uint64) uint32 { return uint32(hash) & uint32(len(k.slots)-1) }

func (k *Keys[K]) next(slot uint32) uint32 { return (slot + 1) & uint32(len(k.slots)-1) }

func (k *Keys[K]) put(i int, slot uint32) {
	k.counters[i].slot = slot
	k.slots[slot] = uint32(i) + 1
}

// free empties a slot, and moves those behind it that could not be found any more.
func (k *Keys[K]) free(slot uint32) {
	for next := k.next(slot); k.slots[next] != 0; next = k.next(next) {
		i := int(k.slots[next]) - 1
		home := k.home(k.counters[i].hash)
		// It stays if its home is behind the free slot, up to its own.
		if mask := uint32(len(k.slots) - 1); (next-home)&mask < (next-slot)&mask {
			continue
		}
		k.put(i, slot)
		slot = next
	}
	k.slots[slot] = 0
}

// up and down move a counter to its place after its count fell or grew.
func (k *Keys[K]) up(i int) {
	for i > 0 {
		parent := (i - 1) / 2
		if k.counters[parent].Count <= k.counters[i].Count {
			return
		}
		k.swap(i, parent)
		i = parent
	}
}

func (k *Keys[K]) down(i int) {
	for {
		child := 2*i + 1
		if child >= len(k.counters) {
			return
		}
		if right := child + 1; right < len(k.counters) && k.counters[right].Count < k.counters[child].Count {
			child = right
		}
		if k.counters[i].Count <= k.counters[child].Count {
			return
		}
		k.swap(i, child)
		i = child
	}
}

func (k *Keys[K]) swap(i, j int) {
	counters := k.counters
	counters[i], counters[j] = counters[j], counters[i]
	k.slots[counters[i].slot], k.slots[counters[j].slot] = uint32(i)+1, uint32(j)+1
}
