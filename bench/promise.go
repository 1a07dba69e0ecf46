package bench

import (
	"math"
	"math/bits"
	"time"
)

// Promise names the rule by which a limiter limits. The audit holds each limiter to
// its own: a fixed window that admits two bursts around its end keeps its promise,
// although a bucket that did the same would break its own.
//
// What a promise says of a [Limit]:
//
//   - A bucket admits at most Capacity + rate × t in any time t. The three kinds of
//     bucket differ in how they count, and not in what they admit.
//   - A fixed window admits Capacity in each window of [Limit.Refill]. The first
//     window begins with a key's first call. Each later one begins where the last
//     one ended, or with the first call after that.
//   - A sliding window admits Capacity in any time of [Limit.Refill].
//   - Pacing admits at most Capacity + rate × t as well: it delays calls instead of
//     refusing them, and Capacity is the slack of its pace.
//
// The zero value makes no promise, and is audited as a bucket.
type Promise string

// The promises.
const (
	TokenBucket   Promise = "token bucket"
	LeakyBucket   Promise = "leaky bucket"
	GCRA          Promise = "GCRA"
	FixedWindow   Promise = "fixed window"
	SlidingWindow Promise = "sliding window"
	Pacing        Promise = "pacing"
)

// Promises returns all promises.
func Promises() []Promise {
	return []Promise{TokenBucket, LeakyBucket, GCRA, FixedWindow, SlidingWindow, Pacing}
}

// windowed reports whether the promise counts in windows.
func (p Promise) windowed() bool { return p == FixedWindow || p == SlidingWindow }

// About says in one line what the promise admits.
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

// most returns the most that the promise admits for one key in all of the windows
// together, if the key is not asked for in between. The windows are in order and do
// not overlap, and the key was not asked for before them.
func (p Promise) most(l Limit, asked []Window) int64 {
	if len(asked) == 0 {
		return 0
	}
	switch p {
	case FixedWindow:
		return mulSaturated(l.Capacity, windowsTouched(asked, l.Refill()))
	case SlidingWindow:
		return mulSaturated(l.Capacity, pointsApart(asked, l.Refill()))
	}
	return l.MostDuring(asked...)
}

// windowsTouched returns the largest number of windows of this length, one after
// the other, that calls within asked can touch, if the first window begins with the
// first call. When that call came within asked[0] is not known, so the instant that
// gives the most is taken.
//
// Only instants matter at which one more window is touched if the windows begin no
// later: the beginning of asked[0], those which put the last instant of an asked
// window at the beginning of a limit's window, and those which put the first
// instant of an asked window at the end of one. Of instants that differ by whole
// windows the earliest gives the most.
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

// countTouched returns the number of windows of this length that asked touches, if
// the first of them begins at begin. What lies before that is left out.
func countTouched(asked []Window, begin, length time.Duration) (n int64) {
	last := int64(-1) // the last window that was counted
	for _, w := range asked {
		if w.End < begin {
			continue
		}
		from := max(int64((max(w.Start, begin)-begin)/length), last+1)
		to := int64((w.End - begin) / length)
		if to >= from {
			n += to - from + 1
			last = to
		}
	}
	return n
}

// pointsApart returns the largest number of instants within asked of which any two
// are at least this length apart. As many sliding windows cover asked.
func pointsApart(asked []Window, length time.Duration) (n int64) {
	next := asked[0].Start
	for _, w := range asked {
		from := max(w.Start, next)
		if from > w.End {
			continue
		}
		more := int64((w.End-from)/length) + 1
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
