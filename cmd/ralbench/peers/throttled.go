package peers

import (
	"context"
	"sync/atomic"

	"github.com/throttled/throttled/v2"
	"github.com/throttled/throttled/v2/store/memstore"

	"github.com/ral-limiter/ral/bench"
)

// Throttled is github.com/throttled/throttled/v2: NewGCRARateLimiterCtx on memstore.NewCtx, asked
// by RateLimitCtx, as in its README, without HTTP. The store keeps keys for ever in a map under a
// read-write lock, the faster way. If it may keep fewer keys than there are, it gives up the least
// recently used.
//
// It promises a GCRA, exact by design: a key's word is swapped if unchanged. After ten failed swaps
// RateLimitCtx returns an error. That is a refusal, as in its HTTP part, counted as unavailable.
// The interval is of whole nanoseconds, rounded up.
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
				return bench.Limiter{}, err
			}
			gcra, err := throttled.NewGCRARateLimiterCtx(store, throttled.RateQuota{
				MaxRate:  throttled.PerDuration(1, interval(s.Limit)),
				MaxBurst: whole(s.Limit.Capacity - 1), // beside the first
			})
			if err != nil {
				return bench.Limiter{}, err
			}
			errors := new(atomic.Int64)
			return bench.Limiter{
				Ask: func(names []string) int {
					return bench.AskEach(names, func(key string) bool {
						limited, _, err := gcra.RateLimitCtx(context.Background(), key, 1)
						if err != nil {
							errors.Add(1)
						}
						return err == nil && !limited
					})
				},
				Counts: func() bench.Counts { return bench.Counts{Unavailable: errors.Load()} },
			}, nil
		},
	}
}
