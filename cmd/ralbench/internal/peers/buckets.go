package peers

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/failsafe-go/failsafe-go/bulkhead"
	"github.com/juju/ratelimit"
	"github.com/puzpuzpuz/xsync/v3"
	"github.com/throttled/throttled/v2"
	"github.com/throttled/throttled/v2/store/memstore"
	uber "go.uber.org/ratelimit"
	"golang.org/x/sync/semaphore"
	"golang.org/x/time/rate"

	"github.com/ral-limiter/ral/bench"
)

// golang.org/x/time/rate is a token bucket for a single key, with a limit in floating point. The
// contenders keep a *rate.Limiter for each key, for ever, in the maps that programs use. They call
// Allow, which its documentation has for dropping calls.
//
// A rate.Limiter promises a token bucket, exact by design, since it counts under a mutex. But it
// reads the clock before the mutex, and takes the last caller's time for its state's. A caller held
// up in between sets that time back. Units drained since are given again, while tokens are left for
// the caller at its old time. The audit shows how many: none on a quiet machine, a third too many
// in a run on a busy machine.
const xtimeNote = "gives again units that drained while a caller was held up, if many ask for one key"

func newXTime(limit bench.Limit) *rate.Limiter {
	return rate.NewLimiter(rate.Limit(float64(limit.Count)/limit.Per.Seconds()), whole(limit.Capacity))
}

// xtime returns a contender that keeps limiters of x/time/rate in a map.
func xtime(name, note, about string, open opener) bench.Contender {
	return bench.Contender{
		Name: name, About: "golang.org/x/time/rate, one a key in " + about, Note: note,
		Promise: bench.TokenBucket, Exact: true, Needs: keepsAll, New: open,
	}
}

// xtimeXsync is x/time/rate by key in an xsync MapOf. Known keys are loaded without a lock;
// LoadOrStore gives all callers of a new key the same limiter.
var xtimeXsync = xtime("x/time+xsync", xtimeNote, "an xsync MapOf", inMemory(func(limit bench.Limit) func([]string) int {
	keys := xsync.NewMapOf[string, *rate.Limiter]()
	return func(names []string) int {
		return bench.AskEach(names, func(key string) bool {
			limiter, known := keys.Load(key)
			if !known {
				limiter, _ = keys.LoadOrStore(key, newXTime(limit))
			}
			return limiter.Allow()
		})
	}
}))

// xtimeSyncMap is x/time/rate by key in a sync.Map: Load, which needs no new limiter, then
// LoadOrStore.
var xtimeSyncMap = xtime("x/time+sync.Map", xtimeNote, "a sync.Map", inMemory(func(limit bench.Limit) func([]string) int {
	keys := new(sync.Map) // of *rate.Limiter
	return func(names []string) int {
		return bench.AskEach(names, func(key string) bool {
			l, known := keys.Load(key)
			if !known {
				l, _ = keys.LoadOrStore(key, newXTime(limit))
			}
			return l.(*rate.Limiter).Allow()
		})
	}
}))

// xtimeMutex is x/time/rate by key in a map under a mutex, as in tutorials. The mutex is held only
// for the map; each limiter has its own.
var xtimeMutex = xtime("x/time+mutex", xtimeNote, "a map under a mutex", inMemory(func(limit bench.Limit) func([]string) int {
	mu, keys := new(sync.Mutex), map[string]*rate.Limiter{}
	return func(names []string) int {
		return bench.AskEach(names, func(key string) bool {
			mu.Lock()
			limiter, known := keys[key]
			if !known {
				limiter = newXTime(limit)
				keys[key] = limiter
			}
			mu.Unlock()
			return limiter.Allow()
		})
	}
}))

// xtimeReserve uses Reserve and Cancel. After a reservation's time, Cancel gives nothing back.
var xtimeReserve = xtime("x/time Reserve", "gives nothing back once the time of a reservation has come",
	"an xsync MapOf, by Reserve and Cancel", perKey(newXTime, func(keys byKey[*rate.Limiter], names []string) int {
		return bench.AskEach(names, func(key string) bool {
			reservation := keys.get(key).Reserve()
			ok := reservation.OK()
			reservation.Cancel()
			return ok
		})
	}))

var xtimeWait = xtime("x/time Wait", "", "an xsync MapOf, by Wait that need not wait", perKey(newXTime, func(keys byKey[*rate.Limiter], names []string) int {
	return bench.AskEach(names, func(key string) bool { return keys.get(key).Wait(context.Background()) == nil })
}))

// xtimeTwice is two limiters by key under one lock: the workload's, and a limit that never refuses.
// It checks both before it takes, because Allow cannot give back.
var xtimeTwice = bench.Contender{
	Name: "x/time twice", About: "two golang.org/x/time/rate under one mutex, a pair a key in an xsync MapOf",
	Promise: bench.TokenBucket, Exact: true,
	New: perKey(func(limit bench.Limit) *xtimePair {
		return &xtimePair{first: rate.NewLimiter(rate.Every(time.Nanosecond), 1<<20), second: newXTime(limit)}
	}, func(keys byKey[*xtimePair], names []string) int {
		return bench.AskEach(names, func(key string) bool { return keys.get(key).allow() })
	}),
}

type xtimePair struct {
	mu            sync.Mutex
	first, second *rate.Limiter
}

func (p *xtimePair) allow() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	if p.first.TokensAt(now) < 1 || p.second.TokensAt(now) < 1 {
		return false
	}
	return p.first.AllowN(now, 1) && p.second.AllowN(now, 1)
}

// jujuBucket is github.com/juju/ratelimit, a token bucket for a single key, asked by TakeAvailable,
// its call that does not wait. An xsync MapOf keeps the keys, for ever.
//
// It promises a token bucket, exact by design: it counts and reads the clock under a mutex. It
// gains a token at the end of each interval of whole nanoseconds, rounded up.
var jujuBucket = bench.Contender{
	Name: "juju+xsync", About: "github.com/juju/ratelimit, one a key in an xsync MapOf",
	Promise: bench.TokenBucket, Exact: true, Needs: keepsAll,
	New: perKey(func(limit bench.Limit) *ratelimit.Bucket {
		return ratelimit.NewBucket(interval(limit), limit.Capacity)
	}, func(keys byKey[*ratelimit.Bucket], names []string) int {
		return bench.AskEach(names, func(key string) bool { return keys.get(key).TakeAvailable(1) == 1 })
	}),
}

// throttledGCRA is github.com/throttled/throttled/v2: NewGCRARateLimiterCtx on memstore.NewCtx,
// asked by RateLimitCtx, as in its README, without HTTP. The store keeps keys for ever in a map
// under a read-write lock, the faster way. If it may keep fewer keys than there are, it gives up
// the least recently used.
//
// It promises a GCRA, exact by design: a key's word is swapped if unchanged. After ten failed swaps
// RateLimitCtx returns an error. That is a refusal, as in its HTTP part, counted as unavailable.
// The interval is of whole nanoseconds, rounded up.
var throttledGCRA = bench.Contender{
	Name: "throttled", About: "github.com/throttled/throttled/v2, GCRA on its memstore",
	Note:    "answers with an error, taken for a no, when callers meet too often",
	Promise: bench.GCRA, Exact: true,
	New: func(setup bench.Setup) (bench.Limiter, error) {
		maxKeys := setup.MaxKeys
		if maxKeys >= setup.Keys {
			maxKeys = 0 // no bound
		}
		store, err := memstore.NewCtx(maxKeys)
		if err != nil {
			return bench.Limiter{}, err
		}
		gcra, err := throttled.NewGCRARateLimiterCtx(store, throttled.RateQuota{
			MaxRate:  throttled.PerDuration(1, interval(setup.Limit)),
			MaxBurst: whole(setup.Limit.Capacity - 1), // beside the first
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

// uberPacing is go.uber.org/ratelimit, asked by Take, its only call. It is for a single key and
// never refuses: an early call sleeps. It only does workloads of one key that pass every call, to
// show pacing without a map. It cannot express a bench.Limit, as no burst passes at its beginning.
// It gets its fastest pace, which no caller reaches, and as much slack, so that callers that
// overtake each other do not sleep.
var uberPacing = bench.Contender{
	Name: "uber", About: "go.uber.org/ratelimit, one key, at a pace that no caller reaches",
	Note:    "has one key and no map, and makes callers wait instead of refusing",
	Promise: bench.Pacing,
	Needs:   func(w bench.Workload) bool { return keepsAll(w) && w.Keys == 1 && w.Known == 0 && w.AllPass() },
	New: inMemory(func(bench.Limit) func([]string) int {
		limiter := uber.New(fastest, uber.WithSlack(fastest))
		return func(names []string) int {
			return bench.AskEach(names, func(string) bool { limiter.Take(); return true })
		}
	}),
}

// fastest is a call a nanosecond, too short for any call.
const fastest = int(time.Second / time.Nanosecond)

// The contenders below limit how many calls of a key are under way. Each call takes a slot and releases it. A slot that no call
// releases is lost, and no key is given up.

// ofSlots returns a contender that takes and releases slots.
func ofSlots(name, about string, open opener) bench.Contender {
	return bench.Contender{
		Name: name, About: about, Note: "loses a slot that no call releases, and keeps its keys for ever",
		Promise: bench.LeakyBucket, Exact: true, Needs: keepsAll, New: open,
	}
}

// semaphoreXsync is golang.org/x/sync/semaphore, one for each key in an xsync MapOf, asked by TryAcquire.
var semaphoreXsync = ofSlots("semaphore+xsync", "golang.org/x/sync/semaphore, one a key in an xsync MapOf, by TryAcquire and Release",
	perKey(func(limit bench.Limit) *semaphore.Weighted { return semaphore.NewWeighted(limit.Capacity) }, func(keys byKey[*semaphore.Weighted], names []string) int {
		return bench.AskEach(names, func(key string) bool {
			weighted := keys.get(key)
			if !weighted.TryAcquire(1) {
				return false
			}
			weighted.Release(1)
			return true
		})
	}))

// bulkheadSyncMap is the bulkhead of github.com/failsafe-go/failsafe-go, one for each key in a sync.Map, asked by
// TryAcquirePermit.
var bulkheadSyncMap = ofSlots("bulkhead+sync", "github.com/failsafe-go/failsafe-go, a bulkhead a key in a sync.Map",
	inMemory(func(limit bench.Limit) func([]string) int {
		// It holds a bulkhead.Bulkhead[any] for each key.
		keys := new(sync.Map)
		return func(names []string) int {
			return bench.AskEach(names, func(key string) bool {
				b, known := keys.Load(key)
				if !known {
					b, _ = keys.LoadOrStore(key, bulkhead.New[any](uint(whole(min(limit.Capacity, maxSlots)))))
				}
				slots := b.(bulkhead.Bulkhead[any])
				if !slots.TryAcquirePermit() {
					return false
				}
				slots.ReleasePermit()
				return true
			})
		}
	}))

// maxSlots bounds the slots of a bulkhead, which are the buffer of a channel.
const maxSlots = 1000
