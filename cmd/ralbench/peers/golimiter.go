package peers

import (
	"context"
	"time"

	"github.com/sethvargo/go-limiter/memorystore"

	"github.com/ral-limiter/ral/bench"
)

// GoLimiter is github.com/sethvargo/go-limiter with its memory store, made by New and asked by
// Take, as in its README. It keeps keys in a map under a read-write lock, without bound. Every
// SweepInterval it sweeps out keys idle for SweepMinTTL. Both are long by default; with an idle
// time they are half and all of it.
//
// It promises a fixed window, exact by design, and counts under a mutex by key. It gives Tokens in
// each Interval. The first begins with a key's first call. If Tokens exceed the root of the
// interval's nanoseconds, later intervals give fewer, which the audit shows as missed.
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
			if err != nil {
				return bench.Limiter{}, err
			}
			return bench.Limiter{
				Ask: func(names []string) int {
					return bench.AskEach(names, func(key string) bool {
						// An error comes only when the store is closed.
						_, _, _, ok, err := store.Take(context.Background(), key)
						return ok && err == nil
					})
				},
				Free: func() error { return store.Close(context.Background()) },
			}, nil
		},
	}
}

// halfIdle returns a sweep interval that removes keys soon after their idle time; 0 if it has none.
func halfIdle(s bench.Setup) time.Duration {
	if s.Idle == 0 {
		return 0
	}
	return max(s.Idle/2, 1)
}
