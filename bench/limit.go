package bench

import (
	"math"
	"math/bits"
	"time"
)

// Limit holds for each key: bursts of Capacity, and Count every Per in the long run. All three are
// at least 1.
type Limit struct {
	Capacity int64         `json:"capacity"`
	Count    int64         `json:"count"`
	Per      time.Duration `json:"per_ns"`
}

// Most returns the most that a bucket admits for a key in time d: capacity + rate × d, rounded
// down, at most math.MaxInt64. A negative d counts as 0.
func (l Limit) Most(d time.Duration) int64 {
	hi, lo := bits.Mul64(uint64(l.Count), uint64(max(d, 0)))
	if hi >= uint64(l.Per) {
		return math.MaxInt64
	}
	drained, _ := bits.Div64(hi, lo, uint64(l.Per))
	if drained > uint64(math.MaxInt64-l.Capacity) {
		return math.MaxInt64
	}
	return l.Capacity + int64(drained)
}

// Window is a stretch of time since the beginning of the run.
type Window struct {
	Start, End time.Duration
}

// MostDuring returns the most that a bucket admits for a key asked only in these windows, in order
// and disjoint. In between the key regains the units that drain, up to its capacity.
func (l Limit) MostDuring(windows ...Window) int64 {
	if len(windows) == 0 {
		return 0
	}
	var length time.Duration
	full := l.Refill()
	for i, window := range windows {
		length += window.End - window.Start
		if i > 0 {
			length += min(window.Start-windows[i-1].End, full)
		}
	}
	return l.Most(length)
}

// Refill returns the time to drain a full bucket, rounded up. Limiters that count in windows get
// windows of this length with Capacity in each: the same burst and rate as the bucket.
func (l Limit) Refill() time.Duration {
	hi, lo := bits.Mul64(uint64(l.Capacity), uint64(l.Per))
	if hi >= uint64(l.Count) {
		return math.MaxInt64
	}
	d, rest := bits.Div64(hi, lo, uint64(l.Count))
	if rest > 0 {
		d++
	}
	return time.Duration(min(d, math.MaxInt64))
}
