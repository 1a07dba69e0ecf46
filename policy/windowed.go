package policy

import (
	"math"
	"math/bits"
	"time"
)

// Windowed is an optional interface of a Policy, for telling clients the limit as "so
// many in so long". All policies of this package implement it.
type Windowed interface {
	// Window returns the time in which Decision.Limit units pass in the long run. For
	// limits that count in windows it is the period, and for a [CalendarWindow] the mean
	// length of its windows, exactly. For the others it is the time that so many units
	// take at their pace, rounded up. An [AtMost] sustains less
	// than that. A time that a duration cannot hold becomes the longest that it can.
	Window() time.Duration
}

// Window implements [Windowed].
func (f *fixedWindow) Window() time.Duration { return f.per }

// Window implements [Windowed].
func (s *slidingWindow) Window() time.Duration { return s.per }

// Window implements [Windowed].
func (a *atMost) Window() time.Duration { return a.per }

// Window implements [Windowed].
func (f *funnel) Window() time.Duration { return f.window(f.capacity) }

// Window implements [Windowed].
func (q *queue) Window() time.Duration { return q.window(q.capacity + 1) }

// Window implements [Windowed].
func (b *bursty) Window() time.Duration { return b.window(b.limit) }

// Window implements [Windowed].
func (w *warmingUp) Window() time.Duration { return w.window(w.limit) }

// window returns the time in which so many units drain at the rate that was asked for.
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
