package outgoing

import (
	"time"

	"github.com/ral-limiter/ral/outgoing/internal/pacing"
)

// uncertain returns the number of units of estimated costs under way, which may differ from those charged.
func (t *part[K]) uncertain() int64 {
	if t.n == 1 {
		return 0
	}
	return t.state.taken.Load() - t.ended
}

// open begins a window with the first call that was sent after the last one.
func (l *Line[K]) open(t *part[K]) {
	s := t.state
	if !s.pace.Load().IsOver(t.sent) {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.pace.Load()
	if !p.IsOver(t.sent) {
		return
	}
	if s.mu.secondary.Expires() {
		s.mu.secondary = pacing.Secondary{}
		s.mu.guess.Begin(time.Duration(t.sent - 1)) // calls until now were kept within the limit
	}
	next := p.Open(t.sent, s.taken.Load()-s.ended.Load())
	s.pace.Store(next)
	_ = l.engine.ChangeLimit(t.key, p.Limit, next.Limit)
}
