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
// under a read-write lock. It is never full, but every SweepInterval it sweeps out keys
// that were not asked for in SweepMinTTL. Both are long by default; if there is an
// idle time, they are half and all of it.
//
// It gives Tokens in each Interval, the first of which begins with a key's first call,
// under a mutex by key: it promises a fixed window, exact by its own design. If Tokens
// are more than the root of the interval's nanoseconds, it gives fewer than Tokens in
// each interval after the first, which the audit shows as missed.
func GoLimiter() bench.Contender {
	return bench.Contender{
		Name:    "go-limiter",
		About:   "github.com/sethvargo/go-limiter, memorystore",
		Note:    edge,
		Promise: bench.FixedWindow,
		Exact:   true,
		Idles:   true,
		Needs:   keepsAll,
		New: func(s bench.Setup) (bench.Limiter, error) {
			store, err := memorystore.New(&memorystore.Config{
				Tokens:        uint64(s.Limit.Capacity),
				Interval:      s.Limit.Refill(),
				SweepInterval: halfIdle(s),
				SweepMinTTL:   s.Idle,
			})
			return &goLimiter{store}, err
		},
	}
}

// halfIdle returns an interval of sweeping by which a key goes soon after its idle
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
func (g *goLimiter) ChokeAll(keys []string) int {
	return bench.AskEach(keys, func(key string) bool { return g.Choke(key) })
}

// Close implements bench.Limiter.
func (g *goLimiter) Close() error { return g.store.Close(context.Background()) }
