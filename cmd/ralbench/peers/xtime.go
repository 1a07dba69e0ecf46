package peers

import (
	"context"
	"sync"
	"time"

	"github.com/puzpuzpuz/xsync/v3"
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

func newXTime(l bench.Limit) *rate.Limiter {
	return rate.NewLimiter(rate.Limit(float64(l.Count)/l.Per.Seconds()), whole(l.Capacity))
}

// xtime returns a contender that keeps limiters of x/time/rate in a map.
func xtime(name, about string, ask func(bench.Limit) func(names []string) int) bench.Contender {
	return bench.Contender{
		Name: name, About: "golang.org/x/time/rate, one a key in " + about,
		Note: xtimeNote, Promise: bench.TokenBucket, Exact: true, Needs: keepsAll,
		New: func(s bench.Setup) (bench.Limiter, error) { return asking(ask(s.Limit)) },
	}
}

// XTimeXsync is x/time/rate by key in an xsync MapOf. Known keys are loaded without a lock;
// LoadOrStore gives all callers of a new key the same limiter.
func XTimeXsync() bench.Contender {
	return xtime("x/time+xsync", "an xsync MapOf", func(limit bench.Limit) func([]string) int {
		keys := xsync.NewMapOf[string, *rate.Limiter]()
		return func(names []string) int {
			return bench.AskEach(names, func(key string) bool {
				l, known := keys.Load(key)
				if !known {
					l, _ = keys.LoadOrStore(key, newXTime(limit))
				}
				return l.Allow()
			})
		}
	})
}

// XTimeSyncMap is x/time/rate by key in a sync.Map: Load, which needs no new limiter, then
// LoadOrStore.
func XTimeSyncMap() bench.Contender {
	return xtime("x/time+sync.Map", "a sync.Map", func(limit bench.Limit) func([]string) int {
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
	})
}

// XTimeMutex is x/time/rate by key in a map under a mutex, as in tutorials. The mutex is held only
// for the map; each limiter has its own.
func XTimeMutex() bench.Contender {
	return xtime("x/time+mutex", "a map under a mutex", func(limit bench.Limit) func([]string) int {
		mu, keys := new(sync.Mutex), map[string]*rate.Limiter{}
		return func(names []string) int {
			return bench.AskEach(names, func(key string) bool {
				mu.Lock()
				l, known := keys[key]
				if !known {
					l = newXTime(limit)
					keys[key] = l
				}
				mu.Unlock()
				return l.Allow()
			})
		}
	})
}

// xtimeReserve uses Reserve and Cancel. After a reservation's time, Cancel gives nothing back.
func xtimeReserve() bench.Contender {
	c := xtime("x/time Reserve", "an xsync MapOf, by Reserve and Cancel", func(limit bench.Limit) func([]string) int {
		keys := newByKey(func() *rate.Limiter { return newXTime(limit) })
		return func(names []string) int {
			return bench.AskEach(names, func(key string) bool {
				r := keys.get(key).Reserve()
				ok := r.OK()
				r.Cancel()
				return ok
			})
		}
	})
	c.Note = "gives nothing back once the time of a reservation has come"
	return c
}

func xtimeWait() bench.Contender {
	c := xtime("x/time Wait", "an xsync MapOf, by Wait that need not wait", func(limit bench.Limit) func([]string) int {
		keys := newByKey(func() *rate.Limiter { return newXTime(limit) })
		return func(names []string) int {
			return bench.AskEach(names, func(key string) bool { return keys.get(key).Wait(context.Background()) == nil })
		}
	})
	c.Note = ""
	return c
}

// xtimeTwice is two limiters by key under one lock: the workload's, and a limit that never refuses.
// It checks both before it takes, because Allow cannot give back.
func xtimeTwice() bench.Contender {
	return bench.Contender{
		Name: "x/time twice", About: "two golang.org/x/time/rate under one mutex, a pair a key in an xsync MapOf",
		Promise: bench.TokenBucket, Exact: true,
		New: func(s bench.Setup) (bench.Limiter, error) {
			keys := newByKey(func() *xtimePair {
				return &xtimePair{first: rate.NewLimiter(rate.Every(time.Nanosecond), 1<<20), second: newXTime(s.Limit)}
			})
			return asking(func(names []string) int {
				return bench.AskEach(names, func(key string) bool { return keys.get(key).allow() })
			})
		},
	}
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
