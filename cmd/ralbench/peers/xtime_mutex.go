package peers

import (
	"sync"

	"golang.org/x/time/rate"

	"github.com/ral-limiter/ral/bench"
)

// XTimeMutex is x/time/rate by key in a plain map under one mutex, as in tutorials. The
// mutex is held for the map only; each limiter has its own.
func XTimeMutex() bench.Contender {
	return bench.Contender{
		Name:    "x/time+mutex",
		About:   "golang.org/x/time/rate, one a key in a map under a mutex",
		Note:    xtimeNote,
		Promise: bench.TokenBucket,
		Exact:   true,
		Needs:   keepsAll,
		New: func(s bench.Setup) (bench.Limiter, error) {
			return &xtimeMutex{limit: s.Limit, keys: make(map[string]*rate.Limiter)}, nil
		},
	}
}

type xtimeMutex struct {
	limit bench.Limit
	mu    sync.Mutex
	keys  map[string]*rate.Limiter
}

// Choke implements bench.Limiter.
func (x *xtimeMutex) Choke(key string) bool {
	x.mu.Lock()
	l, known := x.keys[key]
	if !known {
		l = newXTime(x.limit)
		x.keys[key] = l
	}
	x.mu.Unlock()
	return l.Allow()
}

// ChokeAll implements bench.Limiter.
func (x *xtimeMutex) ChokeAll(keys []string) (passed int) {
	for _, key := range keys {
		if x.Choke(key) {
			passed++
		}
	}
	return passed
}

// Close implements bench.Limiter.
func (x *xtimeMutex) Close() error { return nil }
