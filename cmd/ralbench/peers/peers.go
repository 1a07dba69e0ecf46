// Package peers drives other rate limiters, so that they can be measured beside Ral.
// Each is driven in the best way that its own documentation has. Its file says which
// way that is: where its keys are kept, what it does when it is full, what it promises
// and whether it is exact by its own design, and which of its limits comes closest to a
// [bench.Limit].
//
// Some limiters are a bucket or a window for one key and leave the map of keys to
// their users. Their names say what they are kept in: x/time+xsync.
package peers

import (
	"math"
	"time"

	"github.com/ral-limiter/ral/bench"
)

// All returns all peers except Redis, which needs a redis-server, in the order of the
// tables: the three nearest to Ral first.
func All() []bench.Contender {
	return []bench.Contender{
		XTimeXsync(), XTimeSyncMap(), GoLimiter(), // the nearest
		XTimeMutex(), Throttled(), Ulule(), Juju(), HTTPRate(), Failsafe(), Uber(),
	}
}

// Nearest is the number of peers that are nearest to Ral: in wide use, in this process,
// and made for many keys at once.
const Nearest = 3

// keepsAll reports whether a limiter that never gives up a key can do a workload.
func keepsAll(w bench.Workload) bool { return w.MaxKeys == 0 }

// whole returns n as an int, or the largest int if n is too large.
func whole(n int64) int { return int(min(n, math.MaxInt)) }

// interval returns the time in which one call of a limit drains, rounded up, so that no
// more pass than the limit says.
func interval(l bench.Limit) time.Duration {
	return time.Duration((int64(l.Per)-1)/l.Count + 1)
}

// edge is the note of all limiters that promise fixed windows.
const edge = "admits up to two bursts around the end of a window, by design"

// inMemory is the part of a limiter that has nothing to close.
type inMemory struct{}

// Close implements bench.Limiter.
func (inMemory) Close() error { return nil }
