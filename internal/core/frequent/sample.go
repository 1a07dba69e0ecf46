package frequent

import (
	"math/rand/v2"
	"sync"
	"sync/atomic"
)

const (
	// Every samplesPerHalving samples halve the chance, down to 1 in MaxWeight. A sample takes about 200 ns,
	// which is 0.1 ns a call.
	samplesPerHalving = 1024
	// MaxWeight is the largest weight of a sample.
	MaxWeight = 2048
)

// Sample counts the calls of keys in two windows of time, the current window and the last. Each call is in the
// sample with the same chance, whatever its key and whatever came before, and counts with the inverse of its
// chance. So an adversary cannot keep out of it, and the error is known. All first calls of a window are in the
// sample, so few calls are counted exactly; then the chance falls.
//
// Call Start first; the zero Sample has no calls, and draws none. Its methods are safe for concurrent use.
type Sample[K comparable] struct {
	counters int
	length   int64
	// weight is the present weight, 0 before Start.
	weight atomic.Uint64

	mu sync.Mutex
	// latest is the latest instant of Start and Turn.
	latest       int64
	now, earlier window[K]
}

type window[K comparable] struct {
	from int64
	// keys is nil if there was no call yet.
	keys    *Keys[K]
	samples int
	// weight is the largest weight of a sample.
	weight uint64
}

// Start begins the first window at the instant now, and the last window there too. A window has that length, and
// so many counters: a key with more than 1 in so many of its sampled calls always has one.
func (s *Sample[K]) Start(counters int, length, now int64) {
	s.counters, s.length, s.latest = counters, length, now
	s.now = window[K]{from: now, weight: 1}
	s.earlier = s.now
	s.weight.Store(1)
}

// Weight returns the present weight: a call is in the sample with a chance of 1 in Weight. It is 0 before Start.
func (s *Sample[K]) Weight() uint64 { return s.weight.Load() }

// Draw returns the weight of a call, or 0 if the call is not in the sample.
func (s *Sample[K]) Draw() (weight uint64) {
	weight = s.Weight()
	if weight > 1 && rand.Uint64N(weight) != 0 {
		return 0
	}
	return weight
}

// Add counts a call that was drawn with the weight, at the instant of the last Turn. Equal keys must have equal
// hashes.
func (s *Sample[K]) Add(hash uint64, key K, weight uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	window := &s.now
	if weight > window.weight {
		// The call was drawn before this window began.
		window = &s.earlier
	}
	if window.keys == nil {
		window.keys = New[K](s.counters)
	}
	window.keys.Add(hash, key, weight, s.latest)
	if window.samples++; window == &s.now && window.samples%samplesPerHalving == 0 && window.weight < MaxWeight {
		window.weight *= 2
		s.weight.Store(window.weight)
	}
}

// Turn begins the next window if it is time, or two if the current window began two windows ago. It returns how
// many it began.
func (s *Sample[K]) Turn(now int64) (begun int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.latest = max(s.latest, now)
	if s.Weight() == 0 || now-s.now.from < s.length {
		return 0
	}
	begun = min((now-s.now.from)/s.length, 2)
	for range begun {
		s.now, s.earlier = s.earlier, s.now
		if s.now.keys != nil {
			s.now.keys.Clear()
		}
		s.now = window[K]{from: now, keys: s.now.keys, weight: 1}
	}
	s.weight.Store(1)
	return begun
}

// All returns the keys with counters, summed over both windows, the largest count of a key without a counter, and
// the largest weight of a sample.
func (s *Sample[K]) All() (all []Counter[K], floor, weight uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	windows := [2]*Keys[K]{s.now.keys, s.earlier.keys}
	for i, w := range windows {
		if w == nil {
			continue
		}
		floor += w.Floor()
		for _, counter := range w.All() {
			other := Counter[K]{}
			if keys := windows[1-i]; keys != nil {
				var ok bool
				if other, ok = keys.Find(&counter); ok && i == 1 {
					// The key is in the list already.
					continue
				}
			}
			counter.Count, counter.Over, counter.Last = counter.Count+other.Count, counter.Over+other.Over, max(counter.Last, other.Last)
			all = append(all, counter)
		}
	}
	return all, floor, max(s.now.weight, s.earlier.weight)
}

// Span returns the begin of the last window and the latest instant.
func (s *Sample[K]) Span() (from, to int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.earlier.from, s.latest
}
