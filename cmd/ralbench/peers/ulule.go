package peers

import (
	"context"

	"github.com/ulule/limiter/v3"
	"github.com/ulule/limiter/v3/drivers/store/memory"

	"github.com/ral-limiter/ral/bench"
)

// Ulule is github.com/ulule/limiter/v3 with its memory store, made by New and asked by Get, as in
// its README. It keeps keys in a sync.Map, without bound. A prefix makes a new string of each. Keys
// leave at the first cleaning after their window: every 30 seconds, or half the idle time.
//
// It promises a fixed window, exact by design. It counts to Rate.Limit in each Rate.Period, under a
// mutex by key. A period begins with the first call after the last. It has no Close: the goroutine
// that cleans ends when the store is collected.
func Ulule() bench.Contender {
	return bench.Contender{
		Name:    "ulule",
		About:   "github.com/ulule/limiter/v3, memory store",
		Note:    edge,
		Promise: bench.FixedWindow,
		Exact:   true,
		Idles:   true,
		Needs:   keepsAll,
		New: func(s bench.Setup) (bench.Limiter, error) {
			options := limiter.StoreOptions{Prefix: limiter.DefaultPrefix, CleanUpInterval: limiter.DefaultCleanUpInterval}
			if s.Idle > 0 {
				options.CleanUpInterval = halfIdle(s)
			}
			l := limiter.New(memory.NewStoreWithOptions(options), limiter.Rate{Period: s.Limit.Refill(), Limit: s.Limit.Capacity})
			return asking(func(names []string) int {
				return bench.AskEach(names, func(key string) bool {
					// A store in memory has no errors.
					state, err := l.Get(context.Background(), key)
					return err == nil && !state.Reached
				})
			})
		},
	}
}
