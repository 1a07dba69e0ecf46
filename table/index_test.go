package table

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/ral-limiter/ral/policy"
	"github.com/stretchr/testify/require"
)

// whole checks that the leaves' ranges follow one another and hold their filings.
func whole(t *testing.T, x *index[int]) {
	t.Helper()
	n, before := 0, (*leaf[int])(nil)
	x.leaves.Ascend(func(l *leaf[int]) bool {
		require.NotEmpty(t, l.filings)
		require.LessOrEqual(t, len(l.filings), leafSize)
		require.LessOrEqual(t, cap(l.filings), leafSize, "a leaf must keep no room to spare")
		if before != nil {
			require.LessOrEqual(t, before.high, l.low)
			require.LessOrEqual(t, slices.MaxFunc(before.filings, latestLast).fresh, slices.MinFunc(l.filings, latestLast).fresh)
		}
		if l.sorted {
			require.True(t, slices.IsSortedFunc(l.filings, latestFirst))
		}
		for _, f := range l.filings {
			if f.fresh < l.low || f.fresh > l.latest {
				t.Fatalf("a filing of %d in the leaf from %d to %d, the latest %d", f.fresh, l.low, l.high, l.latest)
			}
		}
		for _, f := range l.filings[len(l.filings):cap(l.filings)] {
			if f.entry != nil {
				t.Fatal("an entry that left is kept alive")
			}
		}
		n, before = n+len(l.filings), l
		return true
	})
	require.Equal(t, n, x.Len())
}

func latestLast(a, b filing[int]) int { return -latestFirst(a, b) }

func TestIndexKeepsALeafOfAGoneRange(t *testing.T) {
	x := newIndex[int]()
	add := func(fresh ...policy.Instant) {
		for _, f := range fresh {
			x.Add(filing[int]{f, &Entry[int]{}})
		}
	}
	add(3)
	for range leafSize - 1 {
		add(5)
	}
	x.DeleteMin()
	add(5, 5, 4, 4, 5, 3)
	whole(t, x)
	for _, want := range []policy.Instant{3, 4, 4, 5} {
		f, _ := x.Min()
		require.Equal(t, want, f.fresh)
		x.DeleteMin()
	}
	require.Equal(t, leafSize+1, x.Len())
}

// Filings come in any order while the earliest leave: all leave in order, once.
func TestIndexGivesFilingsInOrder(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for name, fresh := range map[string]func(i int64) int64{
		"one after the other":     func(i int64) int64 { return i },
		"backwards":               func(i int64) int64 { return -i },
		"at random":               func(int64) int64 { return random.Int64N(1 << 30) },
		"all at once":             func(int64) int64 { return 7 },
		"one for long, then less": func(i int64) int64 { return 7 - i/1000 },
		"at a few instants":       func(int64) int64 { return random.Int64N(3) },
		"forward in jumps":        func(i int64) int64 { return i / 700 },
		"mostly forward":          func(i int64) int64 { return i - random.Int64N(3)*random.Int64N(1000) },
		"now and then the latest": func(i int64) int64 { return i*(i%2) + 5000 },
		"far apart":               func(int64) int64 { return math.MaxInt64 >> random.IntN(63) },
		"from both ends":          func(i int64) int64 { return i * (1 - i%2*2) },
	} {
		t.Run(name, func(t *testing.T) {
			x := newIndex[int]()
			_, ok := x.Min()
			require.False(t, ok)
			// An empty index has nothing to delete.
			x.DeleteMin()
			var is []policy.Instant
			entries := map[*Entry[int]]bool{}
			leave := func() {
				f, ok := x.Min()
				require.True(t, ok)
				require.Equal(t, slices.Min(is), f.fresh)
				require.True(t, entries[f.entry])
				delete(entries, f.entry)
				at := slices.Index(is, f.fresh)
				is[at] = is[len(is)-1]
				is = is[:len(is)-1]
				x.DeleteMin()
			}
			for i := range 4000 {
				f := filing[int]{policy.Instant(fresh(int64(i))), &Entry[int]{key: i}}
				x.Add(f)
				is, entries[f.entry] = append(is, f.fresh), true
				// Remove some now and then, and sometimes all except a few.
				for left := len(is); left > 0 && (random.IntN(4) == 0 || i%1500 == 1499 && left > 10); left-- {
					leave()
				}
				if i%100 == 0 {
					whole(t, x)
				}
			}
			seen := 0
			for f := range x.All() {
				require.True(t, entries[f.entry])
				seen++
			}
			require.Equal(t, len(is), seen)
			whole(t, x)
			for len(is) > 0 {
				leave()
			}
			_, ok = x.Min()
			require.False(t, ok)
			require.Zero(t, x.leaves.Len())
		})
	}
}

// Filings in order fill their leaves, and others at least half.
func TestIndexFillsItsLeaves(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	for name, c := range map[string]struct {
		fresh func(i int64) int64
		fill  float64
	}{
		"one after the other": {func(i int64) int64 { return i }, 0.99},
		"all at once":         {func(int64) int64 { return 7 }, 0.99},
		"at random":           {func(int64) int64 { return random.Int64N(1 << 40) }, 0.6},
		"backwards":           {func(i int64) int64 { return -i }, 0.4},
	} {
		t.Run(name, func(t *testing.T) {
			x := newIndex[int]()
			for i := range 100_000 {
				x.Add(filing[int]{policy.Instant(c.fresh(int64(i))), &Entry[int]{}})
			}
			whole(t, x)
			require.Greater(t, 100_000/float64(leafSize*x.leaves.Len()), c.fill)
		})
	}
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
		instant := policy.Instant(0)
		for step := range slices.Chunk(steps[:min(len(steps), 64)], 2) {
			times := int(step[len(step)-1])
			for range times {
				// Deletes the earliest leaves.
				if step[0] == 0 {
					first, ok := x.Min()
					x.DeleteMin()
					if ok != (len(list) > 0) || ok && first.fresh != list[0] {
						t.Fatalf("the earliest is %d, %v; want the first of %v", first.fresh, ok, list)
					}
					list = list[min(1, len(list)):]
					continue
				}
				instant += policy.Instant(int8(step[0]) / 2)
				x.Add(filing[int]{instant, &Entry[int]{}})
				place, _ := slices.BinarySearch(list, instant)
				list = slices.Insert(list, place, instant)
			}
			whole(t, x)
			if x.Len() != len(list) {
				t.Fatalf("%d filings, want %d", x.Len(), len(list))
			}
		}
	})
}
