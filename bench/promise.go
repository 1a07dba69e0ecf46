package bench

import (
	"math"
	"math/bits"
	"time"
)

// Promise names the rule by which a limiter limits and is audited. For a [Limit]:
//
//   - A bucket admits at most Capacity + rate × t in any time t. The three kinds of bucket differ
//     only in how they count.
//   - A fixed window admits Capacity in each window of [Limit.Refill]. The first begins with a
//     key's first call, the next when the last ends or with the first call after that.
//   - A sliding window admits Capacity in any time of [Limit.Refill].
//   - Pacing admits at most Capacity + rate × t too: it delays calls instead of refusing them, and
//     Capacity is its slack.
//
// The zero value makes no promise, and is audited as a bucket.
type Promise string

const (
	TokenBucket   Promise = "token bucket"
	LeakyBucket   Promise = "leaky bucket"
	GCRA          Promise = "GCRA"
	FixedWindow   Promise = "fixed window"
	SlidingWindow Promise = "sliding window"
	Pacing        Promise = "pacing"
)

func (p Promise) windowed() bool { return p == FixedWindow || p == SlidingWindow }

func (p Promise) About() string {
	switch p {
	case FixedWindow:
		return "at most N in each window, the first of which begins with the key's first call"
	case SlidingWindow:
		return "at most N in any time as long as the window"
	case Pacing:
		return "at most slack + rate x time in any time; calls are delayed, not refused"
	}
	return "at most capacity + rate x time in any time"
}

// most returns the most that the promise admits for a new key asked in these disjoint ordered
// windows.
func (p Promise) most(limit Limit, asked []Window) int64 {
	if len(asked) == 0 {
		return 0
	}
	switch p {
	case FixedWindow:
		return mulSaturated(limit.Capacity, windowsTouched(asked, limit.Refill()))
	case SlidingWindow:
		return mulSaturated(limit.Capacity, pointsApart(asked, limit.Refill()))
	}
	return limit.MostDuring(asked...)
}

// windowsTouched returns the largest number of consecutive windows of this length that calls within
// asked can touch. The first window begins with the first call, at any instant in asked[0].
//
// These begins suffice: the beginning of asked[0], an instant that puts the last instant of an
// asked window at the beginning of a limit's window, or the first at the end of a limit's window.
// Of begins that differ by whole windows the earliest gives the most.
func windowsTouched(asked []Window, length time.Duration) int64 {
	first := asked[0]
	best := countTouched(asked, first.Start, length)
	for _, w := range asked {
		for _, edge := range [...]time.Duration{w.End, w.Start + 1} {
			if begin := first.Start + (edge-first.Start)%length; edge >= first.Start && begin <= first.End {
				best = max(best, countTouched(asked, begin, length))
			}
		}
	}
	return best
}

// countTouched returns the number of windows that asked touches from begin on.
func countTouched(asked []Window, begin, length time.Duration) (n int64) {
	// last is the last window that was counted.
	last := int64(-1)
	for _, window := range asked {
		if window.End < begin {
			continue
		}
		from := max(int64((max(window.Start, begin)-begin)/length), last+1)
		to := int64((window.End - begin) / length)
		if to >= from {
			n += to - from + 1
			last = to
		}
	}
	return n
}

// pointsApart returns the largest number of instants within asked, pairwise at least this length
// apart. As many sliding windows cover asked.
func pointsApart(asked []Window, length time.Duration) (n int64) {
	next := asked[0].Start
	for _, window := range asked {
		from := max(window.Start, next)
		if from > window.End {
			continue
		}
		more := int64((window.End-from)/length) + 1
		n += more
		if length > (math.MaxInt64-from)/time.Duration(more) {
			return n
		}
		next = from + time.Duration(more)*length
	}
	return n
}

func mulSaturated(a, b int64) int64 {
	hi, lo := bits.Mul64(uint64(a), uint64(b))
	if hi > 0 || lo > math.MaxInt64 {
		return math.MaxInt64
	}
	return int64(lo)
}
