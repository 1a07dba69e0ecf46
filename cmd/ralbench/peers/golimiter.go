package peers

import (
	"context"
	"time"

	"github.com/sethvargo/go-limiter"
	"github.com/sethvargo/go-limiter/memorystore"

	"github.com/ral-limiter/ral/bench"
)

// GoLimiter is github.com/sethvargo/go-limiter with its memory store, made by New
// and asked by Take, as its README has it. It keeps its keys itself, in a map
// under a read-write lock; it is never full, but sweeps out what has not been
// asked for SweepMinTTL, every SweepInterval. Both are long by default, and half
// and whole of the idle time where there is one.
//
// It gives Tokens in each Interval, which begins with a key's first call, under a
// mutex by key: exact by its own design, but around the end of an interval it
// gives two of them, which is more than a bucket gives. Where Tokens are more
// than the root of the interval's nanoseconds, it gives fewer than Tokens in each
// interval after the first, which the audit shows as missed.
func GoLimiter() bench.Contender {
	return bench.Contender{
		Name:  "go-limiter",
		About: "github.com/sethvargo/go-limiter, memorystore",
		Note:  edge,
		Exact: true,
		Idles: true,
		Needs: keepsAll,
		New: func(s bench.Setup) (bench.Limiter, error) {
			store, err := memorystore.New(&memorystore.Config{
				Tokens:        uint64(s.Limit.Capacity),
				Interval:      window(s.Limit),
				SweepInterval: halfIdle(s),
				SweepMinTTL:   s.Idle,
			})
			return &goLimiter{store}, err
		},
	}
}

// halfIdle returns how often to sweep so that a key goes soon after its idle
// time; 0 if there is none.
func halfIdle(s bench.Setup) time.Duration {
	if s.Idle == 0 {
		return 0
	}
	return max(s.Idle/2, 1)
}

type goLimiter struct{ store limiter.Store }

// Choke implements bench.Limiter. There is an error only when it is closed.
func (g *goLimiter) Choke(key string) bool {
	_, _, _, ok, err := g.store.Take(context.Background(), key)
	return ok && err == nil
}

// ChokeAll implements bench.Limiter.
func (g *goLimiter) ChokeAll(keys []string) (passed int) {
	for _, key := range keys {
		if g.Choke(key) {
			passed++
		}
	}
	return passed
}

// Close implements bench.Limiter.
func (g *goLimiter) Close() error { return g.store.Close(context.Background()) }
