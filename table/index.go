package table

import (
	"cmp"
	"iter"
	"math"
	"slices"

	"github.com/google/btree"

	"github.com/ral-limiter/ral/policy"
)

// filing is an entry in the index. fresh is the instant from which it owes nothing, as last seen,
// or at which it was filed.
type filing[K comparable] struct {
	fresh policy.Instant
	entry *Entry[K]
}

// An index orders the filings by instant. The index belongs to the writer, and is a btree of leaves
// with up to leafSize filings each, of which only the first is sorted. Keys are mostly filed in
// order of time, and so appended to the same leaf. A btree of the filings themselves took 300 ns
// for each instead of 50, and 33 bytes instead of 16 to 23.
type index[K comparable] struct {
	leaves *btree.BTreeG[*leaf[K]]
	// last is the leaf of the last added filing, or nil.
	last *leaf[K]
	// sought is the search key of leafOf.
	sought leaf[K]
	n      int
}

// A leaf holds the filings from low to before high. The next leaf begins at high or later; an
// instant in between belongs to this leaf. If more than leafSize filings share an instant, several
// leaves have the same low, ordered by serial. All except the last are full, or were, and have no
// range: high is low.
type leaf[K comparable] struct {
	low, high policy.Instant
	serial    int
	// latest is at or after the latest filing.
	latest  policy.Instant
	filings []filing[K]
	// sorted is set while the earliest filing is at the end.
	sorted bool
}

const (
	// leafSize is the number of filings in a leaf. Sorting that many takes 60 us. A flood's keys
	// are filed slot by slot, and their instants jump about over some thousand filings. With leaves
	// of 256, four times as many fall outside the last leaf, and each costs a search of the btree.
	leafSize = 1024
	// A node of the btree has up to 2*leafDegree-1 leaves.
	leafDegree = 16
)

func newIndex[K comparable]() *index[K] {
	return &index[K]{leaves: btree.NewG(leafDegree, func(a, b *leaf[K]) bool {
		return a.low < b.low || a.low == b.low && a.serial < b.serial
	})}
}

func (x *index[K]) Len() int { return x.n }

func (x *index[K]) Min() (filing filing[K], ok bool) {
	first, ok := x.leaves.Min()
	if !ok {
		return filing, false
	}
	if !first.sorted {
		slices.SortFunc(first.filings, latestFirst)
		first.sorted = true
	}
	return first.filings[len(first.filings)-1], true
}

func (x *index[K]) DeleteMin() {
	if _, ok := x.Min(); !ok {
		return
	}
	first, _ := x.leaves.Min()
	end := len(first.filings) - 1
	first.filings[end] = filing[K]{}
	first.filings = first.filings[:end]
	if x.n--; end > 0 {
		return
	}
	x.leaves.DeleteMin()
	if x.last == first {
		x.last = nil
	}
}

// Add adds a filing. The entry must have no other.
func (x *index[K]) Add(f filing[K]) {
	leaf := x.leafOf(f.fresh)
	if len(leaf.filings) == leafSize {
		if right := x.split(leaf, f.fresh); f.fresh >= right.low {
			leaf = right
		}
	}
	// The first leaf of a table grows with its filings.
	if n := len(leaf.filings); n == cap(leaf.filings) {
		leaf.filings = append(make([]filing[K], 0, min(max(8, 2*n), leafSize)), leaf.filings...)
	}
	if leaf.sorted {
		at, _ := slices.BinarySearchFunc(leaf.filings, f, latestFirst)
		leaf.filings = slices.Insert(leaf.filings, at, f)
	} else {
		leaf.filings = append(leaf.filings, f)
	}
	leaf.latest = max(leaf.latest, f.fresh)
	x.last = leaf
	x.n++
}

// leafOf returns the leaf for a filing of that instant.
func (x *index[K]) leafOf(fresh policy.Instant) (l *leaf[K]) {
	if x.last != nil && x.last.low <= fresh && fresh < x.last.high {
		return x.last
	}
	x.sought.low, x.sought.serial = fresh, math.MaxInt
	x.leaves.DescendLessOrEqual(&x.sought, func(found *leaf[K]) bool {
		l = found
		return false
	})
	if l != nil {
		return l
	}
	// The filing is earlier than all others. Extend the first leaf.
	if first, ok := x.leaves.Min(); ok {
		first.low = fresh
		return first
	}
	l = &leaf[K]{low: fresh, high: math.MaxInt64, latest: fresh}
	x.leaves.ReplaceOrInsert(l)
	return l
}

// split makes room in a full leaf for a filing of the instant fresh, and returns the next leaf.
func (x *index[K]) split(l *leaf[K], fresh policy.Instant) (right *leaf[K]) {
	right = &leaf[K]{low: fresh, high: l.high, latest: l.latest, filings: make([]filing[K], 0, leafSize)}
	// Mostly the next filing is later than all others, and they stay together.
	if fresh <= l.latest {
		if low, ok := boundary(l.filings, fresh); ok {
			right.low = low
			stay := l.filings[:0]
			for _, filing := range l.filings {
				if filing.fresh < low {
					stay = append(stay, filing)
				} else {
					right.filings = append(right.filings, filing)
				}
			}
			clear(l.filings[len(stay):])
			l.filings = stay
		} else {
			// All are of the same instant. This full leaf loses its range.
			l.low = fresh
		}
	}
	if right.low == l.low {
		right.serial = l.serial + 1
	}
	l.high = right.low
	x.leaves.ReplaceOrInsert(right)
	return right
}

// boundary returns an instant that divides the filings and fresh about half and half, if they
// differ.
func boundary[K comparable](filings []filing[K], fresh policy.Instant) (low policy.Instant, ok bool) {
	// earliest and next are the least two different instants, if any differ.
	earliest, next := fresh, fresh
	for _, filing := range filings {
		switch {
		case filing.fresh < earliest:
			earliest, next = filing.fresh, earliest
		case filing.fresh > earliest && (next == earliest || filing.fresh < next):
			next = filing.fresh
		}
	}
	var sample [9]policy.Instant
	for i := range sample {
		sample[i] = filings[i*len(filings)/len(sample)].fresh
	}
	slices.Sort(sample[:])
	if median := sample[len(sample)/2]; median > earliest {
		return median, true
	}
	return next, next > earliest
}

func latestFirst[K comparable](a, b filing[K]) int { return cmp.Compare(b.fresh, a.fresh) }

func (x *index[K]) All() iter.Seq[filing[K]] {
	return func(yield func(filing[K]) bool) {
		x.leaves.Ascend(func(leaf *leaf[K]) bool {
			for _, filing := range leaf.filings {
				if !yield(filing) {
					return false
				}
			}
			return true
		})
	}
}
