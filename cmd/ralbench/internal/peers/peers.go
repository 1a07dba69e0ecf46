// Package peers drives other rate limiters to measure them beside Ral, each in the best way that
// its documentation has. Each comment says where the keys are kept and what is lost when full, and
// the limit closest to a [bench.Limit]. Limiters of buckets and of calls under way stand in
// buckets.go, of windows in windows.go.
//
// Limiters for a single key leave the map to their users. Their names say it: x/time+xsync.
package peers

import (
	"math"
	"time"

	"github.com/puzpuzpuz/xsync/v3"

	"github.com/ral-limiter/ral/bench"
)

// All returns all peers except Redis, which needs a redis-server, the nearest to Ral first.
func All() []bench.Contender {
	return []bench.Contender{
		xtimeXsync, xtimeSyncMap, goLimiter, throttledGCRA, // the nearest
		xtimeMutex, ululeWindow, jujuBucket, httprateWindow, failsafeWindow, uberPacing,
	}
}

// Nearest is the number of peers nearest to Ral: in wide use, in process, for many keys.
const Nearest = 4

// Calls returns the peers of Ral's other limits and verbs for [bench.Calls]. Each names the row of
// Ral with the same kind of call.
func Calls() (all []bench.Contender) {
	limits := []string{bench.LimitsWorkload, bench.LimitsAuditWorkload}
	several := []string{bench.SeveralWorkload, bench.SeveralRefusedWorkload}
	slots := []string{bench.InFlightWorkload, bench.InFlightKeysWorkload}
	for _, row := range []struct {
		like      string
		peer      bench.Contender
		workloads []string
	}{
		{"Ral FixedWindow", longWindows(goLimiter), limits},
		{"Ral FixedWindow", ululeWindow, limits},
		{"Ral FixedWindow", httprateCount, limits[:1]},
		{"Ral SlidingWindow", httprateWindow, limits},
		{"Ral SlidingWindow", slidingWindow, limits},
		{"Ral Reserve", xtimeReserve, []string{bench.VerbsWorkload}},
		{"Ral Wait", xtimeWait, []string{bench.VerbsWorkload}},
		{"Ral Tiered", xtimeTwice, several},
		{"Ral Release", semaphoreXsync, slots},
		{"Ral Release", bulkheadSyncMap, slots},
	} {
		row.peer.Like, row.peer.For = row.like, row.workloads
		all = append(all, row.peer)
	}
	return all
}

// keepsAll reports whether a limiter that never gives up a key can do a workload.
func keepsAll(w bench.Workload) bool { return w.MaxKeys == 0 }

func whole(n int64) int { return int(min(n, math.MaxInt)) }

// interval returns the time in which a call drains, rounded up, to stay within the limit.
func interval(limit bench.Limit) time.Duration {
	return time.Duration((int64(limit.Per)-1)/limit.Count + 1)
}

// opener makes a limiter.
type opener = func(bench.Setup) (bench.Limiter, error)

// inMemory makes limiters in memory, with nothing to free. open returns a limiter's Ask.
func inMemory(open func(bench.Limit) func(names []string) (passed int)) opener {
	return func(setup bench.Setup) (bench.Limiter, error) { return bench.Limiter{Ask: open(setup.Limit)}, nil }
}

// byKey keeps an L for each key in an xsync MapOf, as xtimeXsync does.
type byKey[L any] struct {
	*xsync.MapOf[string, L]
	limit bench.Limit
	open  func(bench.Limit) L
}

func (b byKey[L]) get(key string) L {
	l, known := b.Load(key)
	if !known {
		l, _ = b.LoadOrStore(key, b.open(b.limit))
	}
	return l
}

// perKey makes limiters of an L for each key. ask asks for all names in order.
func perKey[L any](open func(bench.Limit) L, ask func(keys byKey[L], names []string) (passed int)) opener {
	return inMemory(func(limit bench.Limit) func([]string) int {
		keys := byKey[L]{xsync.NewMapOf[string, L](), limit, open}
		return func(names []string) int { return ask(keys, names) }
	})
}
