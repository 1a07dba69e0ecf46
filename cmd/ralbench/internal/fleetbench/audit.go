package fleetbench

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/ral-limiter/ral/bench"
)

// span is an admitted call. It counts at an instant between its beginning and its end.
type span struct{ begin, end time.Duration }

// over returns the most by which admitted calls exceed capacity + rate × length in any window of
// time, or 0. Each call is taken to have come as early or late in its span as suits the limiter.
// The limit's figures times those in spans must be below 2^62.
//
// Only windows from the beginning of a call to the end of a call matter. If all calls that ended by
// an instant are known, the excess of a window that begins with call i is
//
//	calls that begin no sooner - rate × (that instant - begin[i]) - capacity
//
// A tree over the calls keeps the greatest excess. Each node holds the number of its ended calls,
// and the greatest excess of its part without the calls after it.
func over(limit bench.Limit, passed []span) int64 {
	calls := slices.Clone(passed)
	slices.SortFunc(calls, func(a, b span) int { return cmp.Compare(a.begin, b.begin) })
	byEnd := make([]int, len(calls))
	for i := range byEnd {
		byEnd[i] = i
	}
	slices.SortFunc(byEnd, func(a, b int) int { return cmp.Compare(calls[a].end, calls[b].end) })

	// All figures are times Per: whole numbers.
	leaves := 1
	for leaves < len(calls) {
		leaves *= 2
	}
	const none = math.MinInt64 / 2
	type node struct{ sum, best int64 }
	tree := make([]node, 2*leaves)
	for i := range tree {
		tree[i].best = none
	}
	worst := int64(0)
	for _, i := range byEnd {
		index := leaves + i
		tree[index] = node{int64(limit.Per), int64(limit.Per) + limit.Count*int64(calls[i].begin)}
		for index /= 2; index > 0; index /= 2 {
			left, right := tree[2*index], tree[2*index+1]
			tree[index] = node{left.sum + right.sum, max(left.best+right.sum, right.best)}
		}
		worst = max(worst, tree[1].best-limit.Count*int64(calls[i].end)-limit.Capacity*int64(limit.Per))
	}
	return (worst + int64(limit.Per) - 1) / int64(limit.Per)
}
