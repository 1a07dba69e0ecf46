// Package peers drives other rate limiters to measure them beside Ral, each in the best way that
// its documentation has. Each file says where the keys are kept and what is lost when full. It
// names the promise, whether the limiter is exact by design, and the limit closest to a
// [bench.Limit].
//
// Limiters for a single key leave the map to their users. Their names say it: x/time+xsync.
package peers

import (
	"math"
	"time"

	"github.com/ral-limiter/ral/bench"
)

// All returns all peers except Redis, which needs a redis-server, the nearest to Ral first.
func All() []bench.Contender {
	return []bench.Contender{
		XTimeXsync(), XTimeSyncMap(), GoLimiter(), // the nearest
		XTimeMutex(), Throttled(), Ulule(), Juju(), HTTPRate(), Failsafe(), Uber(),
	}
}

// Nearest is the number of peers nearest to Ral: in wide use, in process, for many keys.
const Nearest = 3

// keepsAll reports whether a limiter that never gives up a key can do a workload.
func keepsAll(w bench.Workload) bool { return w.MaxKeys == 0 }

func whole(n int64) int { return int(min(n, math.MaxInt)) }

// interval returns the time in which a call drains, rounded up, to stay within the limit.
func interval(l bench.Limit) time.Duration {
	return time.Duration((int64(l.Per)-1)/l.Count + 1)
}

// edge is the note of all limiters that promise fixed windows.
const edge = "admits up to two bursts around the end of a window, by design"

// asking returns a limiter in memory, with nothing to free.
func asking(ask func(keys []string) (passed int)) (bench.Limiter, error) {
	return bench.Limiter{Ask: ask}, nil
}
