package table

import (
	"iter"
	"math/bits"
	"sync/atomic"
)

// A shard is a hash table of entries that one goroutine changes, the writer, and
// that all others read without a lock. An entry stays in the slot that it was put
// into until it leaves; growing and shrinking make a new shard. So whoever looks
// into a shard finds every entry that was there when he began and is there when
// he ends, and what came to a newer shard meanwhile came after he began.
type shard[K comparable] struct {
	buckets []bucket[K]
}

// A bucket is as large as a cache line: a word of tags and seven slots. An entry whose own
// bucket is full is put into the next one that is not.
type bucket[K comparable] struct {
	// tags has a byte for each slot, 0 if it is free and otherwise a part of the
	// entry's hash, so that hardly any other entry is looked at than the one that
	// is looked for. The eighth byte counts the entries that found this bucket
	// full and are further on; once it says manyPassed, it goes on saying so.
	tags  atomic.Uint64
	slots [slotsPerBucket]atomic.Pointer[Entry[K]]
}

const (
	slotsPerBucket = 7
	passedOne      = 1 << 56
	manyPassed     = 255

	lowBits  = 0x0101010101010101
	highBits = 0x0080808080808080 // of the tags

	// Doubling from leastBuckets on, a shard of keysPerShard keys has 1,280
	// buckets, of which five in seven slots are taken: 13 bytes a key. It grows
	// when there are more than fullBucket entries a bucket, and shrinks below an
	// eighth of that.
	leastBuckets = 5
	fullBucket   = 6
)

func newShard[K comparable](buckets int) *shard[K] {
	return &shard[K]{make([]bucket[K], buckets)}
}

// A place is where an entry is looked for first, and by which tag.
type place struct{ bucket, tag uint64 }

// place takes what is left of the hash once the shard has been chosen by it: see
// shardOf. The tag is of bits that neither choice makes use of.
func (s *shard[K]) place(hash, rest uint64) place {
	bucket, _ := bits.Mul64(rest, uint64(len(s.buckets)))
	return place{bucket, max(hash&0xff, 1)}
}

// find returns the live entry of the key, or nil. It may die at any time.
func (s *shard[K]) find(p place, key K) *Entry[K] {
	for range s.buckets {
		b := &s.buckets[p.bucket]
		tags := b.tags.Load()
		for same := same(tags, p.tag); same != 0; same &= same - 1 {
			e := b.slots[bits.TrailingZeros64(same)/8].Load()
			if e != nil && e.key == key && !e.dead() {
				return e
			}
		}
		if tags < passedOne {
			return nil
		}
		p.bucket = s.next(p.bucket)
	}
	return nil
}

// same returns the high bit of each byte of tags that is the tag, and now and then
// that of one which follows such a byte.
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

// all goes through the entries, dead ones too.
func (s *shard[K]) all() iter.Seq[*Entry[K]] {
	return func(yield func(*Entry[K]) bool) {
		for i := range s.buckets {
			for j := range s.buckets[i].slots {
				if e := s.buckets[i].slots[j].Load(); e != nil && !yield(e) {
					return
				}
			}
		}
	}
}

// The rest is the writer's.

// has tells whether this very entry is in the shard.
func (s *shard[K]) has(p place, e *Entry[K]) bool {
	for range s.buckets {
		b := &s.buckets[p.bucket]
		tags := b.tags.Load()
		for same := same(tags, p.tag); same != 0; same &= same - 1 {
			if b.slots[bits.TrailingZeros64(same)/8].Load() == e {
				return true
			}
		}
		if tags < passedOne {
			return false
		}
		p.bucket = s.next(p.bucket)
	}
	return false
}

// add puts an entry in that is not there yet. There must be a slot free.
func (s *shard[K]) add(p place, e *Entry[K]) {
	for {
		b := &s.buckets[p.bucket]
		tags := b.tags.Load()
		for i := range b.slots {
			if tags>>(8*i)&0xff == 0 {
				b.slots[i].Store(e)
				b.tags.Store(tags | p.tag<<(8*i))
				return
			}
		}
		if tags>>56 != manyPassed {
			b.tags.Store(tags + passedOne)
		}
		p.bucket = s.next(p.bucket)
	}
}

// drop takes out an entry that is there.
func (s *shard[K]) drop(p place, e *Entry[K]) {
	for {
		b := &s.buckets[p.bucket]
		tags := b.tags.Load()
		for i := range b.slots {
			if b.slots[i].Load() == e {
				b.tags.Store(tags &^ (0xff << (8 * i)))
				b.slots[i].Store(nil)
				return
			}
		}
		if tags>>56 != manyPassed {
			b.tags.Store(tags - passedOne)
		}
		p.bucket = s.next(p.bucket)
	}
}

// insert puts an entry into the map. It returns false if it is there already.
func (t *Table[K]) insert(hash uint64, e *Entry[K]) bool {
	i, rest := t.shardOf(hash)
	s := t.shards[i].Load()
	switch {
	case s == nil:
		s = newShard[K](leastBuckets)
		t.shards[i].Store(s)
	case s.has(s.place(hash, rest), e):
		return false
	case t.filed[i] >= fullBucket*len(s.buckets):
		s = t.resize(i, 2*len(s.buckets))
	}
	s.add(s.place(hash, rest), e)
	t.filed[i]++
	return true
}

// remove takes a dead entry out of the map and gives its place back. Nothing may
// come between the two: a writer who died there would leave the place taken.
func (t *Table[K]) remove(hash uint64, e *Entry[K]) {
	i, rest := t.shardOf(hash)
	s := t.shards[i].Load()
	if s == nil || !s.has(s.place(hash, rest), e) {
		return // cleared
	}
	s.drop(s.place(hash, rest), e)
	t.filed[i]--
	t.between("remove: unlinked")
	t.places.free()
	switch buckets := len(s.buckets); {
	case t.filed[i] == 0:
		t.shards[i].Store(nil)
	case buckets > leastBuckets && t.filed[i] < fullBucket*buckets/8:
		t.resize(i, buckets/2)
	}
}

// resize copies a shard into a new one. Readers of the old one find in it all that
// was there; what came later they find when they take their second look.
func (t *Table[K]) resize(i, buckets int) *shard[K] {
	resized := newShard[K](buckets)
	for e := range t.shards[i].Load().all() {
		hash := t.hash(e.key)
		_, rest := t.shardOf(hash)
		resized.add(resized.place(hash, rest), e)
	}
	t.between("resize: copied")
	t.shards[i].Store(resized)
	return resized
}
