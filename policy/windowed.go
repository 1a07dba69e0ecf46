package policy

import (
	"math"
	"math/bits"
	"time"
)

// Windowed is an optional interface of a Policy, for telling clients "so many in so long". All
// policies of this package implement it.
type Windowed interface {
	// Window returns the time in which Decision.Limit units pass in the long run, rounded up. It
	// is the period of a limit that counts in windows, for a [CalendarWindow] the exact mean. An
	// [AtMost] sustains less. A longer time than a duration holds becomes the longest.
	Window() time.Duration
}

func (f *fixedWindow) Window() time.Duration { return f.per }

func (s *slidingWindow) Window() time.Duration { return s.per }

func (a *atMost) Window() time.Duration { return a.per }

func (f *funnel) Window() time.Duration { return f.window(f.capacity) }

func (q *queue) Window() time.Duration { return q.window(q.capacity + 1) }

func (b *bursty) Window() time.Duration { return b.window(b.limit) }

func (w *warmingUp) Window() time.Duration { return w.window(w.limit) }

// window returns the time in which so many units drain at the requested rate.
func (p pace) window(units int64) time.Duration {
	hi, lo := bits.Mul64(uint64(units), uint64(p.per))
	if hi >= uint64(p.count) {
		return math.MaxInt64
	}
	window, rest := bits.Div64(hi, lo, uint64(p.count))
	if rest > 0 {
		window++
	}
	return time.Duration(min(window, math.MaxInt64))
}
