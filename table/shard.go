package table

import (
	"iter"
	"math/bits"
	"sync/atomic"
	"unsafe"
)

// A shard is a hash table of entries, changed by the writer alone and read by all goroutines
// without a lock. An entry stays in its slot until it leaves; growing and shrinking make a new
// shard. So a reader finds every entry that is in the shard during its whole search. An entry in a
// newer shard came after the search began.
type shard[K comparable] struct {
	buckets []bucket[K]
}

// A bucket fills a cache line. An entry that finds its bucket full is put into the next with room.
type bucket[K comparable] struct {
	// tags has a byte for each slot: 0 if it is free, or else a part of the entry's hash, which
	// spares a search most entries. The eighth byte counts the entries that found this bucket full
	// and are further on; at manyPassed it stays.
	tags  atomic.Uint64
	slots [slotsPerBucket]atomic.Pointer[Entry[K]]
}

const (
	slotsPerBucket = 7
	passedOne      = 1 << 56
	manyPassed     = 255

	lowBits = 0x0101010101010101
	// highBits are the high bits of the tags.
	highBits = 0x0080808080808080

	// A full shard, of keysPerShard keys, has fullShard buckets with five in seven slots taken: 13
	// bytes a key. A shard grows above fullBucket entries a bucket, and shrinks by half below an
	// eighth of that.
	minBuckets = 5
	fullShard  = 1280
	fullBucket = 6
)

func newShard[K comparable](buckets int) *shard[K] {
	return &shard[K]{make([]bucket[K], buckets)}
}

// A place is the first bucket to search for an entry, and its tag.
type place struct{ bucket, tag uint64 }

// place returns the place of a hash; rest is from shardOf. The tag uses other bits.
func (s *shard[K]) place(hash, rest uint64) place {
	bucket, _ := bits.Mul64(rest, uint64(len(s.buckets)))
	return place{bucket, max(hash&0xff, 1)}
}

// find returns the key's entry, or nil. The entry may have moved, and may die at any time.
func (s *shard[K]) find(place place, key K) *Entry[K] {
	for range s.buckets {
		bucket := &s.buckets[place.bucket]
		tags := bucket.tags.Load()
		for same := same(tags, place.tag); same != 0; same &= same - 1 {
			entry := bucket.slots[bits.TrailingZeros64(same)/8].Load()
			if entry != nil && entry.is(key) && entry.word.Load() != tombstone {
				return entry
			}
		}
		if tags < passedOne {
			return nil
		}
		place.bucket = s.next(place.bucket)
	}
	return nil
}

// same returns the high bit of each byte equal to the tag, and sometimes of the byte after it.
func same(tags, tag uint64) uint64 {
	differ := tags ^ tag*lowBits
	return (differ - lowBits) &^ differ & highBits
}

func (s *shard[K]) next(bucket uint64) uint64 {
	if bucket++; bucket == uint64(len(s.buckets)) {
		return 0
	}
	return bucket
}

func (s *shard[K]) all() iter.Seq[*Entry[K]] {
	return func(yield func(*Entry[K]) bool) {
		for i := range s.buckets {
			for j := range s.buckets[i].slots {
				if entry := s.buckets[i].slots[j].Load(); entry != nil && !yield(entry) {
					return
				}
			}
		}
	}
}

// Only the writer calls the methods below.

func (s *shard[K]) has(place place, entry *Entry[K]) bool {
	for range s.buckets {
		bucket := &s.buckets[place.bucket]
		tags := bucket.tags.Load()
		for same := same(tags, place.tag); same != 0; same &= same - 1 {
			if bucket.slots[bits.TrailingZeros64(same)/8].Load() == entry {
				return true
			}
		}
		if tags < passedOne {
			return false
		}
		place.bucket = s.next(place.bucket)
	}
	return false
}

// add adds a new entry. A slot must be free.
func (s *shard[K]) add(place place, entry *Entry[K]) {
	for {
		bucket := &s.buckets[place.bucket]
		tags := bucket.tags.Load()
		for i := range bucket.slots {
			if tags>>(8*i)&0xff == 0 {
				bucket.slots[i].Store(entry)
				bucket.tags.Store(tags | place.tag<<(8*i))
				return
			}
		}
		if tags>>56 != manyPassed {
			bucket.tags.Store(tags + passedOne)
		}
		place.bucket = s.next(place.bucket)
	}
}

func (s *shard[K]) drop(place place, entry *Entry[K]) {
	for {
		bucket := &s.buckets[place.bucket]
		tags := bucket.tags.Load()
		for i := range bucket.slots {
			if bucket.slots[i].Load() == entry {
				bucket.tags.Store(tags &^ (0xff << (8 * i)))
				bucket.slots[i].Store(nil)
				return
			}
		}
		if tags>>56 != manyPassed {
			bucket.tags.Store(tags - passedOne)
		}
		place.bucket = s.next(place.bucket)
	}
}

func (s *shard[K]) replace(place place, old, entry *Entry[K]) {
	for range s.buckets {
		bucket := &s.buckets[place.bucket]
		for i := range bucket.slots {
			if bucket.slots[i].Load() == old {
				bucket.slots[i].Store(entry)
				return
			}
		}
		place.bucket = s.next(place.bucket)
	}
}

// grown returns the number of buckets to which shard i grows: to 13 to 26, by i, then fourfold twice,
// and then to fullShard. By doubling, more keys are hashed again, and a new key took a tenth more
// processor time. All shards have about as many keys. So their sizes differ until they are full,
// lest all of them grow at the same time, and callers wait for the writer meanwhile.
func (t *Table[K]) grown(i, buckets int) int {
	switch {
	case buckets == minBuckets:
		return 13 + 13*i/len(t.shards)
	case 8*buckets <= fullShard:
		return 4 * buckets
	case buckets < fullShard:
		return fullShard
	}
	return 2 * buckets
}

func (t *Table[K]) insert(hash uint64, entry *Entry[K]) bool {
	i, rest := t.shardOf(hash)
	shard := t.shards[i].Load()
	switch {
	case shard == nil:
		shard = newShard[K](minBuckets)
		t.shards[i].Store(shard)
	case shard.has(shard.place(hash, rest), entry):
		return false
	case t.filed[i] >= fullBucket*len(shard.buckets):
		shard = t.resize(i, t.grown(i, len(shard.buckets)))
	}
	shard.add(shard.place(hash, rest), entry)
	t.filed[i]++
	return true
}

// remove takes a dead entry out of the map and returns its place. No fault point may come between
// the two: a writer that died there would leave the place taken.
func (t *Table[K]) remove(hash uint64, entry *Entry[K]) {
	i, rest := t.shardOf(hash)
	shard := t.shards[i].Load()
	if shard == nil || !shard.has(shard.place(hash, rest), entry) {
		// The shard was cleared.
		return
	}
	shard.drop(shard.place(hash, rest), entry)
	t.filed[i]--
	t.stepPoint("remove: unlinked")
	t.places.release()
	switch buckets := len(shard.buckets); {
	case t.filed[i] == 0:
		t.shards[i].Store(nil)
	case buckets > minBuckets && t.filed[i] < fullBucket*buckets/8:
		t.resize(i, max(buckets/2, minBuckets))
	}
}

// An unseenBucket has the layout of a bucket. Before any reader has it, plain stores are faster.
type unseenBucket[K comparable] struct {
	tags  uint64
	slots [slotsPerBucket]*Entry[K]
}

func (s *shard[K]) addUnseen(place place, entry *Entry[K]) {
	for {
		bucket := (*unseenBucket[K])(unsafe.Pointer(&s.buckets[place.bucket]))
		for i := range bucket.slots {
			if bucket.tags>>(8*i)&0xff == 0 {
				bucket.slots[i] = entry
				bucket.tags |= place.tag << (8 * i)
				return
			}
		}
		if bucket.tags>>56 != manyPassed {
			bucket.tags += passedOne
		}
		place.bucket = s.next(place.bucket)
	}
}

// resize copies a shard. Readers of the old shard find all its entries in it; they find later
// entries in their second look. All entries of a bucket are hashed before any is placed, so that
// cache misses overlap.
func (t *Table[K]) resize(i, buckets int) *shard[K] {
	resized := newShard[K](buckets)
	old := t.shards[i].Load()
	for j := range old.buckets {
		var entries [slotsPerBucket]*Entry[K]
		var places [slotsPerBucket]place
		for k := range entries {
			if entry := old.buckets[j].slots[k].Load(); entry != nil {
				hash := t.hash(entry.Key())
				_, rest := t.shardOf(hash)
				entries[k], places[k] = entry, resized.place(hash, rest)
			}
		}
		for k, entry := range entries {
			if entry != nil {
				resized.addUnseen(places[k], entry)
			}
		}
	}
	t.stepPoint("resize: copied")
	t.shards[i].Store(resized)
	return resized
}
