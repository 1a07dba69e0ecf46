package peers

import (
	"sync"

	"golang.org/x/time/rate"

	"github.com/ral-limiter/ral/bench"
)

// XTimeSyncMap is x/time/rate by key in a sync.Map, from the standard library and its
// extensions: Load first, because it needs no new limiter, then LoadOrStore.
func XTimeSyncMap() bench.Contender {
	return bench.Contender{
		Name:    "x/time+sync.Map",
		About:   "golang.org/x/time/rate, one a key in a sync.Map",
		Note:    xtimeNote,
		Promise: bench.TokenBucket,
		Exact:   true,
		Needs:   keepsAll,
		New: func(s bench.Setup) (bench.Limiter, error) {
			return &xtimeSyncMap{limit: s.Limit}, nil
		},
	}
}

type xtimeSyncMap struct {
	limit bench.Limit
	keys  sync.Map // of *rate.Limiter
}

// Choke implements bench.Limiter.
func (x *xtimeSyncMap) Choke(key string) bool {
	l, known := x.keys.Load(key)
	if !known {
		l, _ = x.keys.LoadOrStore(key, newXTime(x.limit))
	}
	return l.(*rate.Limiter).Allow()
}

// ChokeAll implements bench.Limiter.
func (x *xtimeSyncMap) ChokeAll(keys []string) (passed int) {
	for _, key := range keys {
		if x.Choke(key) {
			passed++
		}
	}
	return passed
}

// Close implements bench.Limiter.
func (x *xtimeSyncMap) Close() error { return nil }
