package policy

import (
	"time"

	"github.com/ral-limiter/ral/internal/core/shape"
)

func (f *funnel) Shape() shape.Shape {
	return f.shape(shape.Shape{Kind: shape.Funnel, Limit: f.capacity, End: int64(f.end), Capacity: f.capacity, Depth: f.depth})
}

func (q *queue) Shape() shape.Shape {
	return q.shape(shape.Shape{Kind: shape.Queue, Limit: q.capacity + 1, End: int64(q.end), Capacity: q.capacity, Depth: q.depth})
}

func (b *bursty) Shape() shape.Shape {
	return b.shape(shape.Shape{Kind: shape.Bursty, Limit: b.limit, End: int64(b.end), Capacity: b.maxBurst, Depth: b.depth})
}

func (b *bursty) AtOnce() int64 {
	if b.maxBurst >= b.limit {
		return b.limit
	}
	return b.maxBurst + 1
}

// AtOnce returns 1: after a take of any size the next call waits.
func (w *warmingUp) AtOnce() int64 { return 1 }

func (f *funnel) Spacing(n int64, late time.Duration) time.Duration {
	return f.spacing(f.capacity, n, late)
}

func (q *queue) Spacing(n int64, late time.Duration) time.Duration {
	return q.spacing(q.capacity+1, n, late)
}

func (b *bursty) Spacing(n int64, late time.Duration) time.Duration {
	return b.spacing(b.maxBurst+n, n, late) // the last call may owe all its units
}

func (w *warmingUp) Spacing(n int64, late time.Duration) time.Duration {
	cold := time.Duration(uint64(n) * (w.cold>>tickBits + 1))
	return shape.Spacing(cold, late, cold, 1)
}

// spacing is of calls under a bucket: calls of n units that pass at once, and another when the rest of
// its units is there.
func (p pace) spacing(capacity, n int64, late time.Duration) time.Duration {
	calls := max(capacity/n, 1)
	drains := func(units int64) time.Duration { return time.Duration(uint64(units)*p.interval>>tickBits) + 1 }
	return shape.Spacing(drains((calls+1)*n-capacity), late, drains(n), calls)
}

func (f *fixedWindow) Spacing(n int64, late time.Duration) time.Duration {
	return shape.SpacingInWindows(f.per, f.limit, n, late)
}

func (a *aligned) Spacing(n int64, late time.Duration) time.Duration {
	return shape.SpacingInWindows(a.Window(), a.limit, n, late)
}

func (a *atMost) Spacing(n int64, late time.Duration) time.Duration {
	return shape.SpacingInWindows(a.own.length*time.Duration(a.own.counts), a.limit, n, late)
}

// Spacing has a window's calls, and those that come late into the next, leave room for a call at the
// next window's begin. A single call counts until the window after has passed.
func (s *slidingWindow) Spacing(n int64, late time.Duration) time.Duration {
	calls := s.limit / n
	if calls <= 1 {
		return shape.Spacing(2*s.per, late, 0, 1)
	}
	return max(4*(s.per+2*late)/time.Duration(4*calls-5), shape.SpacingInWindows(s.per, s.limit, n, late)) + 1
}

func (p pace) shape(s shape.Shape) shape.Shape {
	s.Count, s.Per, s.Interval = p.count, p.per, p.interval
	return s
}

func (f *fixedWindow) Shape() shape.Shape {
	return shape.Shape{
		Kind: shape.FixedWindow, Limit: f.limit, End: int64(f.end), Per: f.per,
		Bits: f.bits, Last: f.last, Step: f.step, Length: f.length,
	}
}

func (s *slidingWindow) Shape() shape.Shape {
	return shape.Shape{
		Kind: shape.SlidingWindow, Limit: s.limit, End: int64(s.end), Per: s.per,
		Bits: s.bits, Last: s.last,
	}
}

// Alike ignores the anchors, which are no parameters.
func (a *aligned) Alike(other any) bool {
	o, ok := other.(*aligned)
	return ok && a.zero == o.zero && a.String() == o.String()
}

// Shape returns the zero shape for a [CalendarWindow].
func (a *aligned) Shape() shape.Shape {
	if a.per == 0 {
		return shape.Shape{}
	}
	return shape.Shape{
		Kind: shape.AlignedWindow, Limit: a.limit, End: int64(endAligned), Per: a.per,
		Bits: a.bits, Last: a.last, Zero: a.zero,
	}
}
