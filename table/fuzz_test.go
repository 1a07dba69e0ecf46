package table

import (
	"slices"
	"testing"

	"github.com/ral-limiter/ral/policy"
)

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

// FuzzIndex adds filings, many at a time, and removes the earliest, beside a list.
//
// Promise: All due keys leave once, in order.
func FuzzIndex(f *testing.F) {
	f.Add([]byte{1, 200, 1, 200, 1, 0, 50, 2, 9, 0, 255})
	f.Add([]byte{9, 255, 9, 255, 9, 255, 0, 255, 8, 255, 0, 255, 0, 255})
	f.Add([]byte{128, 255, 127, 255, 1, 255, 255, 255, 0, 100, 64, 40, 0, 255})
	f.Fuzz(func(t *testing.T, steps []byte) {
		x := newIndex[int]()
		var list []policy.Instant
		at := policy.Instant(0)
		for step := range slices.Chunk(steps[:min(len(steps), 64)], 2) {
			times := int(step[len(step)-1])
			for range times {
				if step[0] == 0 { // the earliest leaves
					first, ok := x.Min()
					x.DeleteMin()
					if ok != (len(list) > 0) || ok && first.fresh != list[0] {
						t.Fatalf("the earliest is %d, %v; want the first of %v", first.fresh, ok, list)
					}
					list = list[min(1, len(list)):]
					continue
				}
				at += policy.Instant(int8(step[0]) / 2)
				x.Add(filing[int]{at, &Entry[int]{}})
				place, _ := slices.BinarySearch(list, at)
				list = slices.Insert(list, place, at)
			}
			whole(t, x)
			if x.Len() != len(list) {
				t.Fatalf("%d filings, want %d", x.Len(), len(list))
			}
		}
	})
}
