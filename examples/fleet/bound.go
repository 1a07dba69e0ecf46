package main

import (
	"math"
	"time"
)

const (
	// grain is how exactly bound knows times.
	grain = 100 * time.Millisecond
	// lookback is how many grains it knows.
	lookback = 300
)

// bound measures, from outside, whether a limit holds: whether there is any stretch of
// time in which more was admitted than capacity + rate × its length.
//
// A caller does not know the instant of a decision, only that it lies between sending
// the request and getting the answer. A request that was sent and answered within a
// stretch was decided in it. Stretches begin and end with whole grains. So times are
// rounded outwards, in the limiter's favour, by no more than a grain's worth.
type bound struct {
	capacity, rate float64 // in calls, and calls a second

	any         bool
	first, last time.Duration // the first was sent, the last was answered
	sent        [lookback]row // the grains in which they were sent, in a ring
}

// row is those admitted that were sent in one grain, by the grain of their answers.
type row struct {
	grain    int
	answered map[int]int64
}

// admit records a call that was admitted.
func (b *bound) admit(sent, got time.Duration) {
	if !b.any {
		b.any, b.first = true, sent
	}
	b.first, b.last = min(b.first, sent), max(b.last, got)
	at := int(sent / grain)
	r := &b.sent[at%lookback]
	if r.answered == nil || r.grain < at {
		*r = row{at, map[int]int64{}}
	}
	if r.grain == at { // and not so late that its place has gone to another
		r.answered[int(got/grain)]++
	}
}

// most is how many could be admitted from the first to the last that were.
func (b *bound) most() int64 {
	return int64(b.capacity + b.rate*(b.last-b.first).Seconds())
}

// burst is how many were admitted above rate × length, in the worst stretch of late. The
// limit was kept if it is no more than the capacity.
func (b *bound) burst(now time.Duration) int64 {
	end := int(now / grain)
	begin := max(0, end-lookback+1)
	answered := make([]int64, end-begin+1) // of those sent in the stretch
	worst := 0.0
	for from := end; from >= begin; from-- {
		if r := b.sent[from%lookback]; r.grain == from {
			for to, n := range r.answered {
				answered[to-begin] += n
			}
		}
		n := int64(0)
		for to := from; to <= end; to++ {
			n += answered[to-begin]
			length := time.Duration(to-from+1) * grain
			worst = max(worst, float64(n)-b.rate*length.Seconds())
		}
	}
	const exact = 1e-6 // floating point is not
	return int64(math.Ceil(worst - exact))
}
