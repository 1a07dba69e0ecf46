package table

import (
	"math/rand/v2"
	"slices"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"
)

// put puts a live entry into the map, as the writer does.
func (r rig[K]) put(key K) *Entry[K] {
	r.t.Helper()
	e := &Entry[K]{key: key}
	require.True(r.t, r.insert(r.hash(key), e))
	return e
}

func (r rig[K]) pull(e *Entry[K]) {
	e.word.Store(tombstone)
	r.remove(r.hash(e.Key()), e)
}

// newMap is a table with its map in use alone: nothing is counted or indexed.
func newMap[K comparable](t *testing.T, maxKeys int, hasher func(K) uint64) rig[K] {
	r := rig[K]{New[K](Options{Policy: newRig[K](t, Options{}).terms.Load().Policy, Idle: 1, MaxKeys: maxKeys}), t}
	r.hasher = hasher
	return r
}

// Keys with colliding hashes come and go, over many sizes of the map.
func TestMapHoldsTheEntriesOfAPlainMap(t *testing.T) {
	for name, hasher := range map[string]func(int) uint64{
		"hashes differ":            nil,
		"few hashes":               func(key int) uint64 { return uint64(key%50) << 58 },
		"one bucket, tags differ":  func(key int) uint64 { return uint64(key) },
		"one hash":                 func(int) uint64 { return 0 },
		"all share bucket and tag": func(key int) uint64 { return uint64(key) << 20 },
	} {
		t.Run(name, func(t *testing.T) {
			r := newMap(t, 1, hasher)
			random := rand.New(rand.NewPCG(1, 2))
			const most = 700
			is := map[int]*Entry[int]{}
			for phase := range 6 {
				for range 3000 {
					key := random.IntN(most)
					e, in := is[key]
					switch {
					case !in && (phase%2 == 0 || random.IntN(8) == 0):
						is[key] = r.put(key)
					case in && (phase%2 == 1 || random.IntN(8) == 0):
						r.pull(e)
						delete(is, key)
					case in:
						require.False(t, r.insert(r.hash(key), e), "an entry was inserted twice")
					}
				}
				if phase == 5 {
					for key, e := range is {
						r.pull(e)
						delete(is, key)
					}
				}
				for key := range most {
					require.Same(t, is[key], r.find(r.hash(key), key), "key %d of %d was not found", key, len(is))
				}
				r.passed()
				require.Equal(t, len(is), r.filed[0])
				if s := r.shards[0].Load(); s != nil {
					n := 0
					for e := range s.all() {
						require.Same(t, is[e.Key()], e)
						n++
					}
					require.Equal(t, len(is), n)
					require.LessOrEqual(t, n, fullBucket*len(s.buckets))
					if len(s.buckets) > minBuckets {
						require.GreaterOrEqual(t, n, fullBucket*len(s.buckets)/8)
					}
				}
			}
			require.Nil(t, r.shards[0].Load(), "no entry must be left")
		})
	}
}

func TestUnseenBucketLiesAsABucket(t *testing.T) {
	var seen bucket[string]
	var unseen unseenBucket[string]
	require.Equal(t, unsafe.Offsetof(seen.tags), unsafe.Offsetof(unseen.tags))
	require.Equal(t, unsafe.Sizeof(seen.tags), unsafe.Sizeof(unseen.tags))
	require.Equal(t, unsafe.Offsetof(seen.slots), unsafe.Offsetof(unseen.slots))
	require.Equal(t, unsafe.Sizeof(seen.slots), unsafe.Sizeof(unseen.slots))
	require.LessOrEqual(t, unsafe.Sizeof(unseen), unsafe.Sizeof(seen))
}

// So many keys of one hash that the buckets lose count of passing entries.
func TestMapLosesCountSafely(t *testing.T) {
	for name, keys := range map[string]int{
		"adding": 3 * manyPassed,
		// The last key has the map copied.
		"growing": 4*13*fullBucket + 1,
	} {
		t.Run(name, func(t *testing.T) {
			r := newMap(t, 1, func(int) uint64 { return 0 })
			var entries []*Entry[int]
			for key := range keys {
				entries = append(entries, r.put(key))
			}
			last := entries[len(entries)-1]
			for _, e := range entries[:len(entries)-1] {
				r.pull(e)
				require.Same(t, last, r.find(0, last.Key()))
			}
		})
	}
}

// passed compares the buckets' counts with the entries outside their own bucket.
func (r rig[K]) passed() {
	s := r.shards[0].Load()
	if s == nil {
		return
	}
	want := make([]uint64, len(s.buckets))
	for i := range s.buckets {
		for j := range s.buckets[i].slots {
			if e := s.buckets[i].slots[j].Load(); e != nil {
				hash := r.hash(e.Key())
				_, rest := r.shardOf(hash)
				for at := s.place(hash, rest).bucket; at != uint64(i); at = s.next(at) {
					want[at]++
				}
			}
		}
	}
	for i := range s.buckets {
		if n := s.buckets[i].tags.Load() >> 56; n != manyPassed {
			require.Equal(r.t, want[i], n, "bucket %d has another number of entries than expected", i)
		}
	}
}

// FuzzMap puts and removes keys with colliding hashes beside a plain map.
func FuzzMap(f *testing.F) {
	f.Add(uint8(0), []byte("abcdefghijklmnopqrstuvwxyz"))
	f.Add(uint8(64), []byte("abababcdcdcdabcdefghefghijklmnopijklmnop"))
	f.Add(uint8(56), slices.Repeat([]byte{1, 2, 3, 4, 5, 6, 7, 8, 9, 1, 3, 5}, 30))
	f.Fuzz(func(t *testing.T, shift uint8, keys []byte) {
		r := newMap(t, 1, func(key byte) uint64 { return uint64(key) << (shift % 72) })
		is := map[byte]*Entry[byte]{}
		for _, key := range keys {
			if e := is[key]; e == nil {
				is[key] = r.put(key)
			} else {
				r.pull(e)
				delete(is, key)
			}
			for _, near := range []byte{key - 1, key, key + 1} {
				if got := r.find(r.hash(near), near); got != is[near] {
					t.Fatalf("key %d of %d: %p, want %p", near, len(is), got, is[near])
				}
			}
		}
		for key := range 256 {
			if got := r.find(r.hash(byte(key)), byte(key)); got != is[byte(key)] {
				t.Fatalf("key %d of %d: %p, want %p", key, len(is), got, is[byte(key)])
			}
		}
		r.passed()
	})
}

// Keys with equal hashes are told apart by themselves. With 64-bit hashes only these tests see
// that.

func newAlike(t *testing.T) rig[string] {
	r := newRig[string](t, Options{})
	r.hasher = oneHash[string]
	return r
}

// Promise: Different keys never share a bucket, even with equal hashes.
func TestAllKeysOfAHashAreHeld(t *testing.T) {
	r := newAlike(t)
	for _, key := range []string{"a", "b", "c"} {
		r.add(key, 1)
	}
	for _, key := range []string{"a", "b", "c"} {
		e := r.View().Load(7, key)
		require.NotNil(t, e, key)
		require.Equal(t, key, e.Key())
		require.False(t, r.take(e, 2), "the entry must keep its own word")
	}
	require.Nil(t, r.View().Load(7, "d"))
	require.Equal(t, 3, r.View().Len())
}

// Promise: The index files each key once.
func TestEachKeyOfAHashHasOneFiling(t *testing.T) {
	r := newRig[int](t, Options{MaxKeys: 200})
	r.hasher = oneHash[int]
	for key := range 100 {
		r.add(key, 1)
	}
	require.Equal(t, 100, r.index.Len())
	require.NoError(t, r.Check())
	r.Recover()
	r.settle(1)
	require.Equal(t, 100, r.index.Len())
	require.NoError(t, r.Check())
	require.Equal(t, 100, r.sweep(2*hour))
}
