package policy

func (f *fixedWindow) Limit() int64 { return f.limit }

func (s *slidingWindow) Limit() int64 { return s.limit }

func (a *atMost) Limit() int64 { return a.limit }

func (f *funnel) Limit() int64 { return f.capacity }

func (q *queue) Limit() int64 { return q.capacity + 1 }

func (b *bursty) Limit() int64 { return b.limit }

func (w *warmingUp) Limit() int64 { return w.limit }

func (f *fixedWindow) Delays() bool { return false }

func (s *slidingWindow) Delays() bool { return false }

func (a *atMost) Delays() bool { return false }

func (f *funnel) Delays() bool { return false }

func (q *queue) Delays() bool { return q.capacity > 0 }

func (b *bursty) Delays() bool { return false }

func (w *warmingUp) Delays() bool { return false }
