package peers

import (
	"github.com/puzpuzpuz/xsync/v3"
	"golang.org/x/time/rate"

	"github.com/ral-limiter/ral/bench"
)

// XTimeXsync is x/time/rate by key in an xsync MapOf. Known keys are loaded without a
// lock; a new one is stored by LoadOrStore, so that all callers get the same limiter.
func XTimeXsync() bench.Contender {
	return bench.Contender{
		Name:    "x/time+xsync",
		About:   "golang.org/x/time/rate, one a key in an xsync MapOf",
		Note:    xtimeNote,
		Promise: bench.TokenBucket,
		Exact:   true,
		Needs:   keepsAll,
		New: func(s bench.Setup) (bench.Limiter, error) {
			return &xtimeXsync{limit: s.Limit, keys: xsync.NewMapOf[string, *rate.Limiter]()}, nil
		},
	}
}

type xtimeXsync struct {
	limit bench.Limit
	keys  *xsync.MapOf[string, *rate.Limiter]
}

// Choke implements bench.Limiter.
func (x *xtimeXsync) Choke(key string) bool {
	l, known := x.keys.Load(key)
	if !known {
		l, _ = x.keys.LoadOrStore(key, newXTime(x.limit))
	}
	return l.Allow()
}

// ChokeAll implements bench.Limiter.
func (x *xtimeXsync) ChokeAll(keys []string) (passed int) {
	for _, key := range keys {
		if x.Choke(key) {
			passed++
		}
	}
	return passed
}

// Close implements bench.Limiter.
func (x *xtimeXsync) Close() error { return nil }
