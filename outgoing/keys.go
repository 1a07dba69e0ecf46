package outgoing

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/ral-limiter/ral/policy"
)

// firstSweep is the number of keys from which on those that are idle are looked for.
const firstSweep = 1024

// state is what is known of a key beside its word.
type state struct {
	turns atomic.Uint64        // the number of the last turn
	used  atomic.Int64         // when it was given, in nanoseconds since Line.began
	pace  atomic.Pointer[pace] // what was learned; nil if nothing is
	lone  bool                 // not in the map, which is full: nothing is learned

	waiting atomic.Int64 // calls that wait for their turn now
	held    atomic.Int64 // until when an answer holds the key, as used

	first sync.Mutex  // held while the first call takes its turn
	begun atomic.Bool // that it has, or that there is no need

	mu struct {
		sync.Mutex
		newest  uint64 // the newest turn that was answered
		strikes int    // back-offs in a row that no answer gave a length for
		barrier uint64 // the last turn given before the last of them
		own     count
		refused time.Duration // when the last refusal came, since Line.began
		later   time.Duration // when an answer last was Answer.Later, 0 if none was
		paced   uint64        // the last turn given before the present pace
	}
}

// join returns what is known of a key for a call that waits for its turn, and makes it if nothing
// is. It is not forgotten until leave.
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

// leave ends what join has begun.
func (s *state) leave() { s.waiting.Add(-1) }

// idle reports whether no call came for the key in a time, none waits, and no answer has held it.
func (s *state) idle(now, within time.Duration) bool {
	last := time.Duration(max(s.used.Load(), s.held.Load()))
	return s.waiting.Load() == 0 && now-last > within
}

// forgetIdle forgets keys that are idle for Config.Idle, and plans the next sweep for when there
// are twice as many as are left. It is called with mu held, so that no call joins meanwhile.
func (l *Line[K]) forgetIdle(now time.Duration) {
	for key, s := range l.keys {
		if s.idle(now, l.config.Idle) {
			delete(l.keys, key)
		}
	}
	l.sweep = max(min(2*len(l.keys), l.config.MaxKeys), min(firstSweep, l.config.MaxKeys))
}

// limitOf returns the limit that was learned for a key, and nil for the probe. It is the
// engine's PolicyFor.
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

// count is how many calls were answered lately, in two windows as policy.SlidingWindow counts.
type count struct {
	window      time.Duration
	began       time.Duration
	now, before int64
}

// add counts one call, and returns how many came within the window that ends now. With another
// window it counts anew.
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
