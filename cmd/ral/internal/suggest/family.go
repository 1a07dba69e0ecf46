package suggest

import (
	"math"
	"sort"
	"time"

	"github.com/ral-limiter/ral/cmd/ral/internal/replay"
	"github.com/ral-limiter/ral/policy"
)

// family is the limits of a kind that differ in one number, n. It is the capacity or, in a family by rate, the index
// of the rate.
type family struct {
	text     func(n int64) string
	isByRate bool
	ranges   []span
}

// span is limits of a family that read the same words, so that one gauge tells the needs of keys under all of them.
type span struct {
	low, high int64 // of n
	gauge     int
}

const (
	// maxNeed bounds capacities, as an int of 32 bits does.
	maxNeed = math.MaxInt32
	// maxDrain bounds the time in which a gauge drains. The time of a policy stands still at 18 years less that time,
	// and a log may have 8 years.
	maxDrain = 9 * 365 * 24 * time.Hour
)

// divide finds the ranges of a family that is not by rate, and adds their gauges.
func (f *family) divide(gauges *[]policy.Policy) error {
	for low := int64(1); low < maxNeed; {
		first, err := policy.Parse(f.text(low))
		if err != nil && low == 1 {
			return err
		}
		limit := first
		size := sort.Search(int(maxNeed-low), func(more int) bool {
			next, err := policy.Parse(f.text(low + int64(more)))
			if err != nil || next.(policy.Windowed).Window() > maxDrain ||
				!first.(policy.Relative).Reads(next) || policy.Parts(first) != policy.Parts(next) {
				return true
			}
			limit = next // the search's last is the highest
			return false
		})
		if err != nil || size == 0 {
			return nil
		}
		f.add(low, low+int64(size)-1, limit, gauges)
		low += int64(size)
	}
	return nil
}

func (f *family) add(low, high int64, gauge policy.Policy, gauges *[]policy.Policy) {
	f.ranges, *gauges = append(f.ranges, span{low, high, len(*gauges)}), append(*gauges, gauge)
}

// refusedBy returns how many keys the limit n refuses, or -1 if there is no such limit.
func (f *family) refusedBy(n int64, needs []replay.Needs, plan int) int64 {
	for _, span := range f.ranges {
		switch {
		case n < span.low || n > span.high:
		case f.isByRate:
			return needs[span.gauge].RefusedBy(plan, replay.Beyond-1)
		default:
			return needs[span.gauge].RefusedBy(plan, n)
		}
	}
	return -1
}

// lowest returns the lowest limit that refuses at most so many keys. ok is false if there is none.
func (f *family) lowest(maxRefused int64, needs []replay.Needs, plan int) (n int64, ok bool) {
	for _, span := range f.ranges {
		n := span.low
		if !f.isByRate {
			n = max(n, needs[span.gauge].Capacity(plan, maxRefused))
		}
		if n <= span.high && f.refusedBy(n, needs, plan) <= maxRefused {
			return n, true
		}
	}
	return 0, false
}
