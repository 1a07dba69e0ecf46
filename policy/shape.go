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

func (w *warmingUp) Spacing(late time.Duration) time.Duration {
	return max(time.Duration(w.cold>>tickBits)+1, late)
}

func (f *fixedWindow) Spacing(late time.Duration) time.Duration { return spacing(f.per+late, f.limit) }

func (s *slidingWindow) Spacing(late time.Duration) time.Duration {
	return spacing(s.per+late, s.limit)
}

func (a *aligned) Spacing(late time.Duration) time.Duration { return spacing(a.Window()+late, a.limit) }

func (a *atMost) Spacing(late time.Duration) time.Duration {
	return spacing(a.own.length*time.Duration(a.own.counts)+late, a.limit)
}

// spacing divides a window, which also admits calls that come late from the window before.
func spacing(window time.Duration, limit int64) time.Duration {
	return (window-1)/time.Duration(limit) + 1
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
