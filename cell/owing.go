package cell

import (
	"cmp"
	"container/heap"
	"hash/maphash"
	"slices"

	"github.com/ral-limiter/ral/internal/core/shape"
	"github.com/ral-limiter/ral/policy"
	"github.com/ral-limiter/ral/table"
)

// Rank orders keys by their debt at one instant.
type Rank struct {
	// Share is the used share of the key's limit: 0 to 1.
	Share float64
	// Fresh is the instant from which the key owes nothing.
	Fresh policy.Instant
	// Tie is a hash of the key, among equals.
	Tie uint64
}

// Compare returns a number below 0 if r owes more than other.
func (r Rank) Compare(other Rank) int {
	return cmp.Or(-cmp.Compare(r.Share, other.Share), -cmp.Compare(r.Fresh, other.Fresh), -cmp.Compare(r.Tie, other.Tie))
}

// Owing is a key that owes: some of its used units still count against its limit.
type Owing[K comparable] struct {
	Rank
	Key   K
	Limit policy.Policy
	// State is the state of the key's word, which Limit reads.
	State uint64
	// Decision is the decision of a look at that instant.
	Decision policy.Decision
}

// Owing returns up to n keys that owe at an instant, most first, and the total of such keys. If
// after is not nil, it returns the keys that follow it. It holds n keys at a time, and walks the
// table as All does. The cell's own limit stands in for another family's.
func (c *Cell[K]) Owing(n int, instant policy.Instant, after *Rank) (most []Owing[K], total int) {
	if c.closed.Load() {
		return nil, 0
	}
	h := owingHeap[K]{}
	var terms *table.Terms
	var number int64
	for entry, reading := range c.view.All() {
		if reading.State == 0 {
			continue
		}
		if reading.Terms != terms {
			terms, number = reading.Terms, shape.AtOnce(reading.Terms.Policy)
		}
		limit, most := terms.Policy, number
		if choice := c.orChosen(nil, entry.Key()); choice.switched != nil {
			reading.Terms, reading.State, _ = c.currentUnder(entry.Key(), &choice)
			if choice.limit != nil && terms.ReadsWordsOf(choice.limit) {
				limit, most = choice.limit, shape.AtOnce(choice.limit)
			}
		}
		fresh := limit.FreshAt(reading.State)
		if fresh <= instant {
			continue
		}
		total++
		if n <= 0 {
			continue
		}
		owing := Owing[K]{Rank: Rank{Fresh: fresh}, Limit: limit, State: reading.State}
		_, owing.Decision = limit.Take(reading.State, instant, 0, 0)
		owing.Share = float64(most-owing.Decision.Remaining) / float64(max(most, 1))
		// Only equals need the hash.
		if full := len(h) == n; full && owing.beyond(h[0].Rank) || after != nil && after.beyond(owing.Rank) {
			continue
		}
		owing.Key = entry.Key()
		// A key in the table has a hash.
		owing.Tie = maphash.Comparable(c.tieSeed, owing.Key)
		switch {
		case after != nil && owing.Compare(*after) <= 0:
		case len(h) < n:
			heap.Push(&h, owing)
		case owing.Compare(h[0].Rank) < 0:
			h[0] = owing
			heap.Fix(&h, 0)
		}
	}
	slices.SortFunc(h, func(a, b Owing[K]) int { return a.Compare(b.Rank) })
	return h, total
}

// beyond reports whether r owes less than other, without their ties.
func (r Rank) beyond(other Rank) bool {
	return r.Share < other.Share || r.Share == other.Share && r.Fresh < other.Fresh
}

type owingHeap[K comparable] []Owing[K]

func (h owingHeap[K]) Len() int           { return len(h) }
func (h owingHeap[K]) Less(i, j int) bool { return h[i].Compare(h[j].Rank) > 0 }
func (h owingHeap[K]) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *owingHeap[K]) Push(x any)        { *h = append(*h, x.(Owing[K])) }

// Nothing is taken off the heap.
func (h *owingHeap[K]) Pop() any { panic("cell: owingHeap.Pop") }
