// Package peers drives other rate limiters, so that they can be measured beside
// Ral. Each is driven as its own documentation says it is used best, and what
// that is, is said in its file: where its keys are kept, what it does when it is
// full, whether it is exact by its own design, and which of its limits comes
// closest to a [bench.Limit].
//
// Some limiters are a bucket or a window for one key and leave the map of keys to
// their users. Their names say what they are kept in: x/time+xsync.
package peers

import (
	"math"
	"time"

	"github.com/ral-limiter/ral/bench"
)

// All returns all peers but Redis, which is to be found first, in the order in
// which they are to be shown: the three nearest to Ral first.
func All() []bench.Contender {
	return []bench.Contender{
		XTimeXsync(), XTimeSyncMap(), GoLimiter(), // the nearest
		XTimeMutex(), Throttled(), Ulule(), Juju(), HTTPRate(), Failsafe(), Uber(),
	}
}

// Nearest is how many of All are nearest to Ral: in wide use, in this process,
// and made to be asked for many keys at once.
const Nearest = 3

// keepsAll tells whether a limiter that never gives up a key can do a workload.
func keepsAll(w bench.Workload) bool { return w.MaxKeys == 0 }

// whole returns n as an int, or the largest there is where an int is too short.
func whole(n int64) int { return int(min(n, math.MaxInt)) }

// interval returns how long one call of a limit takes to drain, rounded up, so
// that no more pass than the limit says.
func interval(l bench.Limit) time.Duration {
	return time.Duration((int64(l.Per)-1)/l.Count + 1)
}

// window returns the length of the window that a limiter by windows is given, to
// let pass Limit.Capacity in each. It is what a full bucket takes to drain,
// rounded up: thus it lets pass as much in a burst as the bucket, and as much in
// the long run.
func window(l bench.Limit) time.Duration {
	return l.Refill()
}

// edge is what is to be known of all limiters by fixed windows.
const edge = "fixed windows: up to two bursts around the end of one"
