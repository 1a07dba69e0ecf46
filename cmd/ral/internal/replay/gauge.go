package replay

import (
	"cmp"
	"maps"
	"math"
	"math/bits"
	"slices"
)

// A gauge is a limit so high that it admits nearly every request. Until a key's first refusal, its words are the same
// under each limit that differs only in capacity. So a key is refused under a capacity exactly if its need, the most
// units that it ever used of the gauge, is above that capacity.

// Beyond is the need of a key that the gauge itself refused.
const Beyond = math.MaxUint32

// maxPlans bounds the plans of keys.
const maxPlans = 16

// Need is what a key of a plan needs.
type Need struct {
	Plan  uint8 // an index of Result.Plans
	Units uint32
}

// Needs has the number of keys by their need.
type Needs map[Need]int64

// maxNeeds is how many needs of keys are kept exactly.
const maxNeeds = 1 << 16

// add counts a key. Beyond maxNeeds a new need is rounded up, by less than a 256th, so that they take bounded memory.
func (n Needs) add(need Need) {
	if _, ok := n[need]; !ok && len(n) >= maxNeeds && need.Units < Beyond {
		step := uint32(1) << max(bits.Len32(need.Units)-9, 0)
		need.Units = min(need.Units|(step-1), Beyond-1)
	}
	n[need]++
}

// RefusedBy returns the number of a plan's keys that a capacity refuses.
func (n Needs) RefusedBy(plan int, capacity int64) (keys int64) {
	for need, count := range n {
		if int(need.Plan) == plan && int64(need.Units) > capacity {
			keys += count
		}
	}
	return keys
}

// Capacity returns the lowest capacity that refuses at most so many keys of a plan. It is Beyond if none of the
// gauge's does.
func (n Needs) Capacity(plan int, maxRefused int64) int64 {
	highest := slices.SortedFunc(maps.Keys(n), func(a, b Need) int { return cmp.Compare(b.Units, a.Units) })
	for _, need := range highest {
		if int(need.Plan) != plan {
			continue
		}
		if maxRefused -= n[need]; maxRefused < 0 {
			return int64(need.Units)
		}
	}
	return 0
}
