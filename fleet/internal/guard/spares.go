package guard

import (
	"sync"
	"time"
)

// spares are answers whose callers did not wait for them any more. One serves a call that asks
// the same and waited when it came. It was asked for before that call began: up to spareAge, or
// the budget if that is longer, before it came. So it may not heed what was done in between, by
// other calls that had returned. Renew excludes that for what this process did. Under a load
// that makes each answer a little later than the budget the calls of a key go on to be
// answered by the server. Each answer is used once at most.
//
// Its methods may be called by any number of goroutines. The zero value has none.
type spares[Q comparable, A any] struct {
	mu    sync.Mutex
	of    map[Q][]spare[A]
	count int
	swept time.Time // when there were last too many
	fence time.Time // answers that were asked for until then serve no call
}

type spare[A any] struct {
	value A
	came  time.Time
	sent  time.Time
}

const (
	// maxSpares bounds how many are kept.
	maxSpares = 4096
	// spareAge is how long before it came an answer may have been asked for.
	spareAge = 100 * time.Millisecond
)

// put keeps an answer to a call that was sent at that time. If there are as many as may
// be, those go that came longer ago than the budget, and if there are none it is not kept.
func (s *spares[Q, A]) put(ask Q, value A, sent time.Time, budget time.Duration) {
	now := time.Now()
	if now.Sub(sent) > max(spareAge, budget) {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.count >= maxSpares && now.Sub(s.swept) > budget {
		s.swept = now
		s.sweep(now.Add(-budget), nil)
	}
	if s.count >= maxSpares {
		return
	}
	if s.of == nil {
		s.of = map[Q][]spare[A]{}
	}
	s.of[ask] = append(s.of[ask], spare[A]{value, now, sent})
	s.count++
}

// take returns an answer that came since, if there is one.
func (s *spares[Q, A]) take(ask Q, since time.Time) (value A, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	some := s.of[ask]
	if len(some) == 0 || some[len(some)-1].came.Before(since) || !some[len(some)-1].sent.After(s.fence) {
		return value, false
	}
	value = some[len(some)-1].value
	s.keep(ask, some[:len(some)-1])
	s.count--
	return value, true
}

// Renew has no call be served by an answer to another that was sent before Renew. They are
// unused then.
func (b *Batch[Q, A]) Renew() {
	b.spares.mu.Lock()
	defer b.spares.mu.Unlock()
	b.spares.fence = time.Now()
}

// keep has these be all of an ask.
func (s *spares[Q, A]) keep(ask Q, some []spare[A]) {
	if len(some) == 0 {
		delete(s.of, ask)
		return
	}
	s.of[ask] = some
}

// sweep removes those that came before a time, and has each be told.
func (s *spares[Q, A]) sweep(before time.Time, unused func(Q, A)) {
	for ask, some := range s.of {
		old := 0
		for old < len(some) && some[old].came.Before(before) {
			if unused != nil {
				unused(ask, some[old].value)
			}
			old++
		}
		s.keep(ask, some[old:])
		s.count -= old
	}
}

// Unused calls unused for each answer that came too late for its caller, and that no other
// call will use any more, which are all once the guard is closed. It keeps no more than some
// thousand in the meantime.
func (b *Batch[Q, A]) Unused(unused func(ask Q, value A)) {
	b.spares.mu.Lock()
	defer b.spares.mu.Unlock()
	before := time.Now().Add(-b.guard.config.Budget)
	if b.guard.base.Err() != nil {
		before = time.Now().Add(1) // the last may have come just now
	}
	b.spares.sweep(before, unused)
}
