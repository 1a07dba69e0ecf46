package outgoing

import (
	"container/heap"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ral-limiter/ral/outgoing/internal/answer"
	"github.com/ral-limiter/ral/outgoing/internal/pacing"
	"github.com/ral-limiter/ral/policy"
)

const (
	minKept  = 1024 // keys, or Config.MaxKeys if fewer, below which no key leaves
	maxSteps = 16   // keys examined when one joins
)

// state is a key's state outside the engine.
type state struct {
	turns      atomic.Uint64               // number of the last turn
	taken      atomic.Int64                // units of all turns
	ended      atomic.Int64                // units of turns that have ended
	used       atomic.Int64                // when the last turn was given, in nanoseconds since Line.began
	pace       atomic.Pointer[pacing.Pace] // the learned limit; nil if none
	unrecorded bool                        // not in the full map: nothing is learned
	delay      time.Duration               // of DelayFor
	gate       chan struct{}               // with Config.Units; see Line.waitForAll
	gated      atomic.Int64                // calls that wait for it

	waiting atomic.Int64 // units of calls that wait for their turn
	held    atomic.Int64 // end of the latest back-off, as used

	// overlong is the end of an overlong time, as used, or 0.
	overlong atomic.Int64
	// capacity is the cost above which the server admits no call, 0 if unknown. It is believed until
	// capacityUntil, as used.
	capacity, capacityUntil atomic.Int64

	place int // in Line.leaving

	mu struct {
		sync.Mutex
		newest  uint64 // newest answered turn
		strikes int    // back-offs in a row without a stated length
		own     pacing.Count
		// refusedTurn is the last turn given before the latest refusal.
		refusedTurn uint64
		guess       pacing.Guess
		refused     time.Duration // time of the last refusal, since Line.began
		later       time.Duration // time of the last Answer.ResetsLate, 0 if none
		paced       uint64        // last turn given before the present pace
		spaced      time.Duration // calls are spaced until then, as others share the limit

		rest      int64    // units that the slowest of several limits has left
		overlong  overlong // if state.overlong is not 0
		secondary pacing.Secondary

		answer, heldBy, pacedBy origin // the present answer; the answers behind the latest back-off and the pace
		limitField              string // of the present answer
	}
}

// join returns the state of a key for a waiting call and keeps it until leave.
func (l *Line[K]) join(key K, n int64) *state {
	l.mu.RLock()
	s := l.keys[key]
	if s != nil {
		s.waiting.Add(n)
	}
	l.mu.RUnlock()
	if s != nil {
		return s
	}
	delay := l.delayOf(key)
	l.mu.Lock()
	defer l.mu.Unlock()
	if s := l.keys[key]; s != nil {
		s.waiting.Add(n)
		return s
	}
	s = &state{delay: delay}
	if len(l.units) > 0 {
		s.gate = make(chan struct{}, 1)
	}
	s.pace.Store(s.unlearned())
	s.waiting.Add(n)
	now := time.Since(l.began)
	s.used.Store(int64(now))
	s.mu.guess.Begin(now)
	l.forgetIdle(now)
	if s.unrecorded = len(l.keys) >= l.config.MaxKeys; !s.unrecorded {
		l.keys[key] = s
		heap.Push(&l.leaving, leaving[K]{key, s, now + l.config.Idle})
	}
	return s
}

// unlearned returns the pace of a key of which nothing is learned, nil for the probe.
func (s *state) unlearned() *pacing.Pace {
	if s.delay == 0 {
		return nil
	}
	return &pacing.Pace{Limit: pacing.Evenly(1, 1, s.delay), Guessed: true}
}

// has reports whether the state is still the key's, or of a key for which there was no place.
func (l *Line[K]) has(key K, s *state) bool {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return s.unrecorded || l.keys[key] == s
}

// delayOf returns the delay of DelayFor, 0 for none.
func (l *Line[K]) delayOf(key K) time.Duration {
	if l.delay == nil {
		return 0
	}
	return min(max(l.delay(key), 0), answer.MaxWindow)
}

// leaving is a remembered key. It may leave at due, or later if it was used meanwhile.
type leaving[K comparable] struct {
	key   K
	state *state
	due   time.Duration // since Line.began
}

// departures is a heap of the remembered keys, the earliest due first.
type departures[K comparable] []leaving[K]

func (d departures[K]) Len() int           { return len(d) }
func (d departures[K]) Less(i, j int) bool { return d[i].due < d[j].due }
func (d departures[K]) Swap(i, j int) {
	d[i], d[j] = d[j], d[i]
	d[i].state.place, d[j].state.place = i, j
}

func (d *departures[K]) Push(x any) {
	k := x.(leaving[K])
	k.state.place = len(*d)
	*d = append(*d, k)
}

func (d *departures[K]) Pop() any {
	last := len(*d) - 1
	k := (*d)[last]
	(*d)[last] = leaving[K]{}
	*d = (*d)[:last]
	return k
}

// forgetIdle deletes keys idle for Config.Idle. It examines at most maxSteps keys, the earliest due
// first. A key in use is due later, and is not examined until then. It needs mu locked, so that no
// call joins meanwhile.
func (l *Line[K]) forgetIdle(now time.Duration) {
	for range maxSteps {
		if len(l.leaving) < min(minKept, l.config.MaxKeys) || l.leaving[0].due >= now {
			return
		}
		l.steps++
		first := &l.leaving[0]
		last := time.Duration(max(first.state.used.Load(), first.state.held.Load()))
		if first.state.waiting.Load() != 0 {
			last = now
		}
		if first.due = last + l.config.Idle; first.due < now {
			l.forget(first.key)
		} else {
			heap.Fix(&l.leaving, 0)
		}
	}
}

// forget deletes a key. It needs mu locked.
func (l *Line[K]) forget(key K) {
	if s := l.keys[key]; s != nil {
		delete(l.keys, key)
		heap.Remove(&l.leaving, s.place)
		if s.overlong.Load() != 0 {
			l.overlongs.Add(-1)
		}
	}
}

// limitOf is the engine's PolicyFor: the learned limit of a key, nil for the probe.
func (l *Line[K]) limitOf(key K) policy.Policy {
	l.mu.RLock()
	s, full := l.keys[key], len(l.keys) >= l.config.MaxKeys
	l.mu.RUnlock()
	switch {
	case s != nil:
		return s.pace.Load().Policy()
	case !full:
		return nil
	}
	if delay := l.delayOf(key); delay > 0 {
		return pacing.Evenly(1, 1, delay)
	}
	return pacing.Unlimited.Limit
}
