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

func (f *funnel) Spacing(n int64, unit time.Duration) shape.Spacing {
	return f.spacing(f.capacity, n, unit)
}

func (q *queue) Spacing(n int64, unit time.Duration) shape.Spacing {
	return q.spacing(q.capacity+1, n, unit)
}

func (b *bursty) Spacing(n int64, unit time.Duration) shape.Spacing {
	// The last call may owe all its units.
	return b.spacing(b.maxBurst+n, n, unit)
}

func (w *warmingUp) Spacing(n int64, unit time.Duration) shape.Spacing {
	return shape.SpacingInWindows(time.Duration(uint64(n)*(w.cold>>tickBits+1)), 1, 1, unit)
}

// spacing is of calls under a bucket, which is empty again when those that pass at once have drained. If a
// single call does, the next passes a whole unit later only if it does not come a moment early.
func (p pace) spacing(capacity, n int64, unit time.Duration) shape.Spacing {
	calls, drains := max(capacity/n, 1), time.Duration(uint64(n)*p.interval>>tickBits)+1
	if calls == 1 {
		return shape.SpacingInWindows(drains, 1, 1, unit)
	}
	return shape.NewSpacing(drains, time.Duration(calls)*drains, unit, calls)
}

func (f *fixedWindow) Spacing(n int64, unit time.Duration) shape.Spacing {
	return shape.SpacingInWindows(f.per, f.limit, n, unit)
}

// Spacing relies on windows that begin at fixed instants: the calls that come back in a unit of time lie
// at the same place of each window.
func (a *aligned) Spacing(n int64, unit time.Duration) shape.Spacing {
	calls := max(a.limit/n, 1)
	return shape.NewSpacing(a.Window()/time.Duration(calls), a.Window(), unit, calls)
}

func (a *atMost) Spacing(n int64, unit time.Duration) shape.Spacing {
	return shape.SpacingInWindows(a.own.length*time.Duration(a.own.counts), a.limit, n, unit)
}

// Spacing has the calls of a window leave room for a call at the next window's begin, as they still
// count in full there. A single call counts until the window after has passed.
//
// A window has x units of time. Calls at one phase of each unit weigh 1 + 2j - j*j/x times the calls of
// one unit: j of them count in full, and j more of the window before count by its share. The weight is
// the highest for the j nearest to x. If x is not whole, the share is rounded up by a call.
func (s *slidingWindow) Spacing(n int64, unit time.Duration) shape.Spacing {
	calls := s.limit / n
	if calls <= 1 {
		return shape.NewSpacing((2*s.per+unit-1)/unit*unit, 2*s.per, unit, 1)
	}
	near := s.per.Round(unit)
	phased := unit + 2*near - time.Duration(float64(near)/float64(s.per)*float64(near))
	even := s.per / time.Duration(calls-1)
	if near != s.per && near > 0 {
		calls--
	}
	return shape.NewSpacing(max(even, phased/time.Duration(calls)), 2*s.per, unit, calls)
}

func (p pace) shape(form shape.Shape) shape.Shape {
	form.Count, form.Per, form.Interval = p.count, p.per, p.interval
	return form
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
