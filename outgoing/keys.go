package outgoing

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/btree"

	"github.com/ral-limiter/ral/outgoing/internal/answer"
	"github.com/ral-limiter/ral/outgoing/internal/pacing"
	"github.com/ral-limiter/ral/policy"
)

const (
	// No key is forgotten while there are fewer than minKept keys, or than Config.MaxKeys if that is less.
	minKept = 1024
	// maxSteps is the most keys that are examined when a key is added.
	maxSteps = 16
)

// keys are the keys that a line remembers.
type keys[K comparable] struct {
	pacing *pacing.Config
	// max is Config.MaxKeys.
	max  int
	idle time.Duration
	// delay is the function of DelayFor, or nil.
	delay func(key K) time.Duration
	// All times of keys are durations since began.
	began time.Time
	// failing is counters.failing.
	failing *atomic.Int64

	mu     sync.RWMutex
	states map[K]*state[K]
	// leaving has all states in the order of the times at which they may be forgotten (state.due).
	leaving *btree.BTreeG[*state[K]]
	// added is the number of keys added since the line was made.
	added uint64
	// steps is the number of states that forgetIdle has examined.
	steps uint64
}

// state is a key's state outside the engine.
type state[K comparable] struct {
	key K
	// unrecorded reports whether the key is not in the map because the map is full. Nothing is then learned.
	unrecorded bool
	// delay is the result of DelayFor.
	delay time.Duration
	// gate admits one call at a time. It is nil without Config.Units and InFlight: see Turn.enter.
	gate chan struct{}
	// gated is the number of calls that wait for the gate.
	gated atomic.Int64

	// turns is the number of the last turn.
	turns atomic.Uint64
	// taken is the sum of the units of all turns.
	taken atomic.Int64
	// ended is the sum of the units of the turns that have ended.
	ended atomic.Int64
	// waiting is the sum of the units of the calls that wait for their turn.
	waiting atomic.Int64
	// lastTurn is the time of the last turn.
	lastTurn atomic.Int64

	// pace and failsUntil are set by the latest Change, and read without the lock. An overlong time is a time
	// stated by an answer of which more than Config.MaxBackoff is left: calls fail until failsUntil, its end, 0
	// for none. heldUntil is the end of the latest back-off or overlong time.
	pace                  atomic.Pointer[pacing.Pace]
	failsUntil, heldUntil atomic.Int64
	// capacity is the highest cost that the server admits, 0 if unknown. It holds until capacityUntil.
	capacity, capacityUntil atomic.Int64

	// due is the time at which forgetIdle examines the key. serial is the key's number, from 1, so that the order
	// of keys.leaving is strict. Both need keys.mu locked.
	due    time.Duration
	serial uint64

	mu struct {
		sync.Mutex
		learned         pacing.State
		heldBy, pacedBy origin
	}
}

// origin tells which answer set a back-off or a pace: the call, its header fields and the time.
type origin struct {
	call uint64
	// field is the header field of a back-off, and limitField that of a pace.
	field, limitField string
	came              time.Time
}

func (ks *keys[K]) now() time.Duration { return time.Since(ks.began) }

// find returns the state of a key, nil if there is none.
func (ks *keys[K]) find(key K) *state[K] {
	ks.mu.RLock()
	defer ks.mu.RUnlock()
	return ks.states[key]
}

// has reports whether the state is still the key's. It is false for a key that did not fit into the map.
func (ks *keys[K]) has(state *state[K]) bool { return !state.unrecorded && ks.find(state.key) == state }

func (ks *keys[K]) len() int {
	ks.mu.RLock()
	defer ks.mu.RUnlock()
	return len(ks.states)
}

// join returns the state of a key for a waiting call of n units. The state is not forgotten until the caller
// subtracts the n units from state.waiting. gates reports whether a new state gets a gate.
func (ks *keys[K]) join(key K, n int64, gates bool) *state[K] {
	ks.mu.RLock()
	state := ks.states[key]
	if state != nil {
		state.waiting.Add(n)
	}
	ks.mu.RUnlock()
	if state != nil {
		return state
	}
	delay := ks.delayOf(key)
	ks.mu.Lock()
	defer ks.mu.Unlock()
	if state = ks.states[key]; state == nil {
		state = ks.add(key, delay, gates)
	}
	state.waiting.Add(n)
	return state
}

// add returns a new state for a key, and puts it in the map unless the map is full. It needs mu locked.
func (ks *keys[K]) add(key K, delay time.Duration, gates bool) *state[K] {
	now := ks.now()
	ks.added++
	s := &state[K]{key: key, delay: delay, due: now + ks.idle, serial: ks.added}
	if gates {
		s.gate = make(chan struct{}, 1)
	}
	s.lastTurn.Store(int64(now))
	ks.forgetIdle(now)
	s.unrecorded = len(ks.states) >= ks.max
	s.mu.learned = pacing.Start(ks.pacing, now, delay)
	s.mu.learned.Unrecorded = s.unrecorded
	s.pace.Store(s.mu.learned.Pace)
	if !s.unrecorded {
		ks.states[key] = s
		ks.leaving.ReplaceOrInsert(s)
	}
	return s
}

// delayOf returns the delay of DelayFor, 0 for none.
func (ks *keys[K]) delayOf(key K) time.Duration {
	if ks.delay == nil {
		return 0
	}
	return min(max(ks.delay(key), 0), answer.MaxWindow)
}

// limit is the engine's PolicyFor. It returns the learned limit of a key, or nil for the engine's own policy, the
// probe. A key that does not fit into the map has no limit except the delay of DelayFor.
func (ks *keys[K]) limit(key K) policy.Policy {
	ks.mu.RLock()
	state, full := ks.states[key], len(ks.states) >= ks.max
	ks.mu.RUnlock()
	switch {
	case state != nil:
		return state.pace.Load().Policy()
	case !full:
		return nil
	}
	if delay := ks.delayOf(key); delay > 0 {
		return pacing.Evenly(1, 1, delay)
	}
	return pacing.Unlimited.Limit
}

// forgetIdle forgets keys idle for Config.Idle. It examines at most maxSteps keys, the earliest due
// first. If a key was used since, it becomes due later instead. forgetIdle needs mu locked, so that no
// call joins meanwhile.
func (ks *keys[K]) forgetIdle(now time.Duration) {
	for range maxSteps {
		state, _ := ks.leaving.Min()
		if ks.leaving.Len() < min(minKept, ks.max) || state.due >= now {
			return
		}
		ks.steps++
		last := time.Duration(max(state.lastTurn.Load(), state.heldUntil.Load()))
		if state.waiting.Load() != 0 {
			last = now
		}
		if last+ks.idle < now {
			ks.forget(state.key)
			continue
		}
		ks.leaving.Delete(state)
		state.due = last + ks.idle
		ks.leaving.ReplaceOrInsert(state)
	}
}

// forget forgets a key. It needs mu locked.
func (ks *keys[K]) forget(key K) {
	if state := ks.states[key]; state != nil {
		delete(ks.states, key)
		ks.leaving.Delete(state)
		if state.failsUntil.Load() != 0 {
			ks.failing.Add(-1)
		}
	}
}

// failsFor returns the rest of the key's overlong time, 0 if there is none.
func (s *state[K]) failsFor(now time.Duration) time.Duration {
	until := time.Duration(s.failsUntil.Load())
	if until == 0 {
		return 0
	}
	return max(until-now, 1)
}

// sooner reports whether a state is due before another.
func sooner[K comparable](state, other *state[K]) bool {
	return state.due < other.due || state.due == other.due && state.serial < other.serial
}
