package policy

// Limit implements [Policy].
func (f *fixedWindow) Limit() int64 { return f.limit }

// Limit implements [Policy].
func (s *slidingWindow) Limit() int64 { return s.limit }

// Limit implements [Policy].
func (a *atMost) Limit() int64 { return a.limit }

// Limit implements [Policy].
func (f *funnel) Limit() int64 { return f.capacity }

// Limit implements [Policy].
func (q *queue) Limit() int64 { return q.capacity + 1 }

// Limit implements [Policy].
func (b *bursty) Limit() int64 { return b.limit }

// Limit implements [Policy].
func (w *warmingUp) Limit() int64 { return w.limit }

// Delays implements [Policy]: a take that fits is admitted at once.
func (f *fixedWindow) Delays() bool { return false }

// Delays implements [Policy]: a take that fits is admitted at once.
func (s *slidingWindow) Delays() bool { return false }

// Delays implements [Policy]: a take that fits is admitted at once.
func (a *atMost) Delays() bool { return false }

// Delays implements [Policy]: a take that fits is admitted at once.
func (f *funnel) Delays() bool { return false }

// Delays implements [Policy]: a queue with room for waiting calls spaces them.
func (q *queue) Delays() bool { return q.capacity > 0 }

// Delays implements [Policy]: a take is admitted at once or refused.
func (b *bursty) Delays() bool { return false }

// Delays implements [Policy]: a take is admitted at once or refused.
func (w *warmingUp) Delays() bool { return false }
