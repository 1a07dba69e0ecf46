package peers

import (
	"context"

	"github.com/ulule/limiter/v3"
	"github.com/ulule/limiter/v3/drivers/store/memory"

	"github.com/ral-limiter/ral/bench"
)

// Ulule is github.com/ulule/limiter/v3 with its memory store, made by New and
// asked by Get, as its README has it. It keeps its keys itself, with a prefix
// that makes a new string of each, in a sync.Map; it is never full. A key leaves
// when its window is over and the next cleaning comes, every 30 seconds by
// default, every half idle time if there is one.
//
// It counts to Rate.Limit in each Rate.Period, which begins with a key's first call
// after the last one, under a mutex by key: it promises a fixed window, exact by its
// own design.
//
// It has no Close: the goroutine that cleans ends when the garbage collector
// finds the store.
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
			options := limiter.StoreOptions{
				Prefix:          limiter.DefaultPrefix,
				CleanUpInterval: limiter.DefaultCleanUpInterval,
			}
			if s.Idle > 0 {
				options.CleanUpInterval = halfIdle(s)
			}
			store := memory.NewStoreWithOptions(options)
			rate := limiter.Rate{Period: s.Limit.Refill(), Limit: s.Limit.Capacity}
			return &ulule{limiter: limiter.New(store, rate)}, nil
		},
	}
}

type ulule struct {
	inMemory
	limiter *limiter.Limiter
}

// Choke implements bench.Limiter. A store in memory has no errors.
func (u *ulule) Choke(key string) bool {
	state, err := u.limiter.Get(context.Background(), key)
	return err == nil && !state.Reached
}

// ChokeAll implements bench.Limiter.
func (u *ulule) ChokeAll(keys []string) int {
	return bench.AskEach(keys, func(key string) bool { return u.Choke(key) })
}
