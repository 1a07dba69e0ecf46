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

// Rank orders keys by what they owe at one instant.
type Rank struct {
	Share float64        // of its limit that a key has used: 0 to 1
	Fresh policy.Instant // from which it owes nothing
	Tie   uint64         // a hash of the key, among equals
}

// Compare returns a number below 0 if r owes more than other.
func (r Rank) Compare(other Rank) int {
	return cmp.Or(-cmp.Compare(r.Share, other.Share), -cmp.Compare(r.Fresh, other.Fresh), -cmp.Compare(r.Tie, other.Tie))
}

// Owing is a key that owes.
type Owing[K comparable] struct {
	Rank
	Key      K
	Limit    policy.Policy
	State    uint64          // that describes what the key owes, to Limit
	Decision policy.Decision // of a look at that instant
}

// Owing returns up to n of the keys that owe something at an instant, those that owe most
// first, and how many there are in all. If after is not nil, it returns those that come
// after it. It holds no more than n of them at a time. It goes through the table as All
// does. A limit of another family describes no word: the cell's own stands in for it.
func (c *Cell[K]) Owing(n int, at policy.Instant, after *Rank) (most []Owing[K], total int) {
	if c.closed.Load() {
		return nil, 0
	}
	h := owingHeap[K]{}
	var terms *table.Terms
	var of int64
	for e, r := range c.view.All() {
		if r.State == 0 {
			continue
		}
		if r.Terms != terms {
			terms, of = r.Terms, shape.AtOnce(r.Terms.Policy)
		}
		limit, most := terms.Policy, of
		if chosen := c.Chosen(e.Key()); chosen != nil && terms.ReadsWordsOf(chosen) {
			limit, most = chosen, shape.AtOnce(chosen)
		}
		fresh := limit.FreshAt(r.State)
		if fresh <= at {
			continue
		}
		total++
		if n <= 0 {
			continue
		}
		o := Owing[K]{Rank: Rank{Fresh: fresh}, Limit: limit, State: r.State}
		_, o.Decision = limit.Take(r.State, at, 0, 0)
		o.Share = float64(most-o.Decision.Remaining) / float64(max(most, 1))
		// The hash is needed among equals alone.
		if full := len(h) == n; full && o.beyond(h[0].Rank) || after != nil && after.beyond(o.Rank) {
			continue
		}
		o.Key = e.Key()
		o.Tie = maphash.Comparable(c.tieSeed, o.Key) // it has a hash, as it is in the table
		switch {
		case after != nil && o.Compare(*after) <= 0:
		case len(h) < n:
			heap.Push(&h, o)
		case o.Compare(h[0].Rank) < 0:
			h[0] = o
			heap.Fix(&h, 0)
		}
	}
	slices.SortFunc(h, func(a, b Owing[K]) int { return a.Compare(b.Rank) })
	return h, total
}

// beyond reports whether r owes less than other, whatever their ties are.
func (r Rank) beyond(other Rank) bool {
	return r.Share < other.Share || r.Share == other.Share && r.Fresh < other.Fresh
}

// owingHeap is a heap with the key that owes least in front.
type owingHeap[K comparable] []Owing[K]

func (h owingHeap[K]) Len() int           { return len(h) }
func (h owingHeap[K]) Less(i, j int) bool { return h[i].Compare(h[j].Rank) > 0 }
func (h owingHeap[K]) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *owingHeap[K]) Push(x any)        { *h = append(*h, x.(Owing[K])) }

// Pop implements heap.Interface. Nothing is taken off.
func (h *owingHeap[K]) Pop() any { panic("cell: owingHeap.Pop") }
