package peers

import (
	"context"
	"sync/atomic"

	"github.com/throttled/throttled/v2"
	"github.com/throttled/throttled/v2/store/memstore"

	"github.com/ral-limiter/ral/bench"
)

// Throttled is github.com/throttled/throttled/v2: NewGCRARateLimiterCtx on
// memstore.NewCtx, asked by RateLimitCtx, as its README has it, without the HTTP
// around it. The store keeps the keys in a map under a read-write lock if their number has
// no bound, which is the faster way. If it may keep fewer than there are, it is told so
// and gives up the least recently used.
//
// It promises a GCRA and is exact by design: a key's word is swapped if it has not
// changed. If that fails ten times, RateLimitCtx returns an error instead of an answer.
// It is taken for a refusal here, as in its own HTTP part, and counted as unavailable.
// The interval is of whole nanoseconds, rounded up. It keeps keys for ever.
func Throttled() bench.Contender {
	return bench.Contender{
		Name:    "throttled",
		About:   "github.com/throttled/throttled/v2, GCRA on its memstore",
		Note:    "answers with an error, taken for a no, when callers meet too often",
		Promise: bench.GCRA,
		Exact:   true,
		New: func(s bench.Setup) (bench.Limiter, error) {
			most := 0
			if s.MaxKeys < s.Keys {
				most = s.MaxKeys
			}
			store, err := memstore.NewCtx(most)
			if err != nil {
				return nil, err
			}
			gcra, err := throttled.NewGCRARateLimiterCtx(store, throttled.RateQuota{
				MaxRate:  throttled.PerDuration(1, interval(s.Limit)),
				MaxBurst: whole(s.Limit.Capacity - 1), // beside the first
			})
			return &throttledGCRA{gcra: gcra}, err
		},
	}
}

type throttledGCRA struct {
	inMemory
	gcra   *throttled.GCRARateLimiterCtx
	errors atomic.Int64
}

// Choke implements bench.Limiter.
func (t *throttledGCRA) Choke(key string) bool {
	limited, _, err := t.gcra.RateLimitCtx(context.Background(), key, 1)
	if err != nil {
		t.errors.Add(1)
		return false
	}
	return !limited
}

// ChokeAll implements bench.Limiter.
func (t *throttledGCRA) ChokeAll(keys []string) int {
	return bench.AskEach(keys, func(key string) bool { return t.Choke(key) })
}

// Counts implements bench.Counter.
func (t *throttledGCRA) Counts() bench.Counts { return bench.Counts{Unavailable: t.errors.Load()} }
