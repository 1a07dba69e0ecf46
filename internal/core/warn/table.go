package warn

import (
	"iter"
	"sync/atomic"
)

// Table remembers for which keys and shares a warning was given, and until when. The zero Table is
// empty. A Table is safe for concurrent use. It has 32 KiB for 4,096 warnings, and forgets some
// if there are more at a time: those that end first. A warning that is forgotten may be repeated.
// A warning is lost, with a chance of 1 in 16,384, if a key of the same set has the same tag.
type Table struct {
	// slots hold warnings in sets of half a cache line: the tag of a key and share in the highest 16
	// bits, and below them the end in units of 2,048 ns.
	slots [4096]atomic.Uint64
}

const (
	slotsOfSet = 4
	endBits    = 48
	// An end is kept in units of 1<<endUnit ns, for 18 years.
	endUnit   = 11
	endMask   = 1<<endBits - 1
	latestEnd = 1<<(endBits+endUnit) - 1
)

// Fresh iterates over the passed shares of a key for which First is true.
func (t *Table) Fresh(shares Shares, passed Set, hash uint64, now, end int64) iter.Seq[float64] {
	return func(yield func(float64) bool) {
		for i, share := range shares {
			if passed&(1<<i) != 0 && t.First(hash, i, now, end) && !yield(share) {
				return
			}
		}
	}
}

// First reports whether no warning was given for the share of the key, or the last has ended. If so
// First records one until the instant end, rounded down to a unit, so that a new period is never
// silent. One of several calls at once gets true.
func (t *Table) First(hash uint64, share int, now, end int64) bool {
	// The sum leads to another set, and to another tag.
	hash += uint64(share+1) * 0x9e3779b97f4a7c15
	tag := hash >> endBits
	set := t.slots[hash%uint64(len(t.slots)/slotsOfSet)*slotsOfSet:][:slotsOfSet]
	present := uint64(max(now, 0)) >> endUnit
	for {
		slot, word := &set[0], set[0].Load()
		for i := 1; i < slotsOfSet && word>>endBits != tag; i++ {
			if other := set[i].Load(); other>>endBits == tag || other&endMask < word&endMask {
				slot, word = &set[i], other
			}
		}
		if word>>endBits == tag && word&endMask > present {
			return false
		}
		if slot.CompareAndSwap(word, tag<<endBits|uint64(min(max(end, 0), latestEnd))>>endUnit) {
			return true
		}
	}
}
