package outgoing

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/ral-limiter/ral/policy"
)

const firstSweep = 1024 // keys at which idle keys are first swept

// state is a key's state outside the engine.
type state struct {
	turns atomic.Uint64        // number of the last turn
	used  atomic.Int64         // when it was given, in nanoseconds since Line.began
	pace  atomic.Pointer[pace] // the learned limit; nil if none
	lone  bool                 // not in the full map: nothing is learned

	waiting atomic.Int64 // calls waiting for their turn
	held    atomic.Int64 // end of the latest back-off, as used

	first sync.Mutex  // held while the first call takes its turn
	begun atomic.Bool // the first call has taken its turn, or need not go alone

	mu struct {
		sync.Mutex
		newest  uint64 // newest answered turn
		strikes int    // back-offs in a row without a stated length
		barrier uint64 // last turn given before the latest strike
		own     count
		refused time.Duration // time of the last refusal, since Line.began
		later   time.Duration // time of the last Answer.Later, 0 if none
		paced   uint64        // last turn given before the present pace
	}
}

// join returns the state of a key for a waiting call and keeps it until leave.
func (l *Line[K]) join(key K) *state {
	l.mu.RLock()
	s := l.keys[key]
	if s != nil {
		s.waiting.Add(1)
	}
	l.mu.RUnlock()
	if s != nil {
		return s
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if s := l.keys[key]; s != nil {
		s.waiting.Add(1)
		return s
	}
	s = &state{}
	s.waiting.Add(1)
	now := time.Since(l.began)
	s.used.Store(int64(now))
	if len(l.keys) >= l.sweep {
		l.forgetIdle(now)
	}
	if s.lone = len(l.keys) >= l.config.MaxKeys; !s.lone {
		l.keys[key] = s
	}
	s.begun.Store(s.lone)
	return s
}

func (s *state) leave() { s.waiting.Add(-1) }

func (s *state) idle(now, within time.Duration) bool {
	last := time.Duration(max(s.used.Load(), s.held.Load()))
	return s.waiting.Load() == 0 && now-last > within
}

// forgetIdle deletes keys idle for Config.Idle, and plans the next sweep at twice the remaining
// number. It needs mu locked, so that no call joins meanwhile.
func (l *Line[K]) forgetIdle(now time.Duration) {
	for key, s := range l.keys {
		if s.idle(now, l.config.Idle) {
			delete(l.keys, key)
		}
	}
	l.sweep = max(min(2*len(l.keys), l.config.MaxKeys), min(firstSweep, l.config.MaxKeys))
}

// limitOf is the engine's PolicyFor: the learned limit of a key, nil for the probe.
func (l *Line[K]) limitOf(key K) policy.Policy {
	l.mu.RLock()
	s, full := l.keys[key], len(l.keys) >= l.config.MaxKeys
	l.mu.RUnlock()
	switch {
	case s != nil:
		return s.pace.Load().policy()
	case full:
		return unlimited.limit
	}
	return nil
}

// count counts recently answered calls in two windows, like policy.SlidingWindow.
type count struct {
	window      time.Duration
	began       time.Duration
	now, before int64
}

// add counts one call and returns the number in the window ending now.
func (c *count) add(now, window time.Duration) int64 {
	switch passed := now - c.began; {
	case passed >= 2*window || window != c.window:
		*c = count{window: window, began: now}
	case passed >= window:
		c.began, c.now, c.before = c.began+window, 0, c.now
	}
	c.now++
	left := 1 - float64(now-c.began)/float64(window)
	return c.now + int64(float64(c.before)*left+0.5)
}
