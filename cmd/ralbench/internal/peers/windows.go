package peers

import (
	"context"
	"net/http"
	"time"

	"github.com/RussellLuo/slidingwindow"
	"github.com/failsafe-go/failsafe-go/ratelimiter"
	"github.com/go-chi/httprate"
	"github.com/sethvargo/go-limiter/memorystore"
	"github.com/ulule/limiter/v3"
	"github.com/ulule/limiter/v3/drivers/store/memory"

	"github.com/ral-limiter/ral/bench"
)

// edge is the note of all limiters that promise fixed windows.
const edge = "admits up to two bursts around the end of a window, by design"

// goLimiter is github.com/sethvargo/go-limiter with its memory store, made by New and asked by
// Take, as in its README. It keeps keys in a map under a read-write lock, without bound. Every
// SweepInterval it sweeps out keys idle for SweepMinTTL. Both are long by default; with an idle
// time they are half and all of it.
//
// It promises a fixed window, exact by design, and counts under a mutex by key. It gives Tokens in
// each Interval. The first begins with a key's first call. If Tokens exceed the root of the
// interval's nanoseconds, later intervals give fewer, which the audit shows as missed.
var goLimiter = bench.Contender{
	Name: "go-limiter", About: "github.com/sethvargo/go-limiter, memorystore", Note: edge,
	Promise: bench.FixedWindow, Exact: true, Idles: true, Needs: keepsAll,
	New: func(setup bench.Setup) (bench.Limiter, error) {
		store, err := memorystore.New(&memorystore.Config{
			Tokens: uint64(setup.Limit.Capacity), Interval: setup.Limit.Refill(), SweepInterval: halfIdle(setup), SweepMinTTL: setup.Idle,
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

// halfIdle returns a sweep interval that removes keys soon after their idle time; 0 if it has none.
func halfIdle(setup bench.Setup) time.Duration {
	if setup.Idle == 0 {
		return 0
	}
	return max(setup.Idle/2, 1)
}

// longWindows gives go-limiter windows so long that each gives all of its tokens, for limits of
// more than a million a second. They refuse no call.
func longWindows(contender bench.Contender) bench.Contender {
	made := contender.New
	contender.New = func(setup bench.Setup) (bench.Limiter, error) {
		if setup.Limit.Count > 1_000_000 {
			setup.Limit.Count = 1
		}
		return made(setup)
	}
	return contender
}

// ululeWindow is github.com/ulule/limiter/v3 with its memory store, made by New and asked by Get,
// as in its README. It keeps keys in a sync.Map, without bound. A prefix makes a new string of
// each. Keys leave at the first cleaning after their window: every 30 seconds, or half the idle
// time.
//
// It promises a fixed window, exact by design. It counts to Rate.Limit in each Rate.Period, under a
// mutex by key. A period begins with the first call after the last. It has no Close: the goroutine
// that cleans ends when the store is collected.
var ululeWindow = bench.Contender{
	Name: "ulule", About: "github.com/ulule/limiter/v3, memory store", Note: edge,
	Promise: bench.FixedWindow, Exact: true, Idles: true, Needs: keepsAll,
	New: func(setup bench.Setup) (bench.Limiter, error) {
		options := limiter.StoreOptions{Prefix: limiter.DefaultPrefix, CleanUpInterval: limiter.DefaultCleanUpInterval}
		if setup.Idle > 0 {
			options.CleanUpInterval = halfIdle(setup)
		}
		l := limiter.New(memory.NewStoreWithOptions(options), limiter.Rate{Period: setup.Limit.Refill(), Limit: setup.Limit.Capacity})
		return bench.Limiter{Ask: func(names []string) int {
			return bench.AskEach(names, func(key string) bool {
				// A store in memory has no errors.
				state, err := l.Get(context.Background(), key)
				return err == nil && !state.Reached
			})
		}}, nil
	},
}

// failsafeWindow is the bursty rate limiter of github.com/failsafe-go/failsafe-go, for a single
// key, asked by TryAcquirePermit, as documented. An xsync MapOf keeps the keys, for ever.
//
// It promises a fixed window, exact by design, and counts under a mutex. Permits are renewed in
// each period. The first begins with a key's first call.
var failsafeWindow = bench.Contender{
	Name: "failsafe+xsync", About: "github.com/failsafe-go/failsafe-go, bursty, one a key in an xsync MapOf", Note: edge,
	Promise: bench.FixedWindow, Exact: true, Needs: keepsAll,
	New: perKey(func(limit bench.Limit) ratelimiter.RateLimiter[any] {
		return ratelimiter.NewBursty[any](uint(whole(limit.Capacity)), limit.Refill())
	}, func(keys byKey[ratelimiter.RateLimiter[any]], names []string) int {
		return bench.AskEach(names, func(key string) bool { return keys.get(key).TryAcquirePermit() })
	}),
}

// httprateWindow is github.com/go-chi/httprate: NewRateLimiter with its counter in memory, asked by
// OnLimit, which its middleware calls. To measure little of HTTP, all calls share a request and a
// response, and its own option turns headers off.
//
// It keeps keys by their hash, without bound, in two maps under two locks: this window and the
// last. Older counts are forgotten when asked. The maps keep their room.
//
// It promises a sliding window and is not exact. It takes the calls of the last window as evenly
// spread, and rounds halves. It forgets all counts if a caller is delayed at the end of a window.
var httprateWindow = bench.Contender{
	Name: "httprate", About: "github.com/go-chi/httprate, its limiter without its middleware",
	Note:    "estimates a sliding window from two fixed ones; forgets all keys in a race at their end",
	Promise: bench.SlidingWindow, Needs: keepsAll,
	New: inMemory(func(limit bench.Limit) func([]string) int {
		request := &http.Request{Method: http.MethodGet, Header: http.Header{}, Body: http.NoBody}
		limiter := httprate.NewRateLimiter(whole(limit.Capacity), limit.Refill(), httprate.WithResponseHeaders(httprate.ResponseHeaders{}))
		return func(names []string) int {
			return bench.AskEach(names, func(key string) bool { return !limiter.OnLimit(nowhere{}, request, key) })
		}
	}),
}

// nowhere discards a response. Without headers, nothing is written.
type nowhere struct{}

func (nowhere) Header() http.Header              { return http.Header{} }
func (nowhere) Write(buffer []byte) (int, error) { return len(buffer), nil }
func (nowhere) WriteHeader(int)                  {}

// httprateCount is the counter in memory of github.com/go-chi/httprate as a fixed window: Get, then
// Increment if there is room. Two steps are not exact. Windows lie at multiples of their length, as
// httprate's do, so it takes part only where no call is refused.
var httprateCount = bench.Contender{
	Name: "httprate count", About: "github.com/go-chi/httprate, its counter in memory as a fixed window",
	Note:    "looks and counts in two steps, between which other calls may count",
	Promise: bench.FixedWindow,
	New: inMemory(func(limit bench.Limit) func([]string) int {
		length, capacity := limit.Refill(), whole(limit.Capacity)
		counter := httprate.NewLocalLimitCounter(length)
		return func(names []string) int {
			return bench.AskEach(names, func(key string) bool {
				// A counter in memory has no errors.
				window := time.Now().UTC().Truncate(length)
				n, _, err := counter.Get(key, window, window.Add(-length))
				return err == nil && n < capacity && counter.Increment(key, window) == nil
			})
		}
	}),
}

// slidingWindow is github.com/RussellLuo/slidingwindow with windows in memory, by key in an xsync
// MapOf, asked by Allow, as in its README. It takes the calls of the last window as evenly spread,
// and so is not exact by design.
var slidingWindow = bench.Contender{
	Name: "slidingwindow", About: "github.com/RussellLuo/slidingwindow, one a key in an xsync MapOf",
	Note:    "estimates a sliding window from two fixed ones",
	Promise: bench.SlidingWindow,
	New: perKey(func(limit bench.Limit) *slidingwindow.Limiter {
		// Windows in memory have nothing to stop.
		limiter, _ := slidingwindow.NewLimiter(limit.Refill(), limit.Capacity, func() (slidingwindow.Window, slidingwindow.StopFunc) {
			return slidingwindow.NewLocalWindow()
		})
		return limiter
	}, func(keys byKey[*slidingwindow.Limiter], names []string) int {
		return bench.AskEach(names, func(key string) bool { return keys.get(key).Allow() })
	}),
}
