package peers

import (
	"golang.org/x/time/rate"

	"github.com/ral-limiter/ral/bench"
)

// golang.org/x/time/rate is a token bucket for one key. It keeps no keys; the three
// contenders keep a *rate.Limiter for each in the maps that programs use for it. All
// call Allow, which by its documentation is for dropping calls beyond the limit. None
// gives up a key, so none can do a table that is full.
//
// A rate.Limiter promises a token bucket and is exact by design, for it counts under a
// mutex. But it reads the clock before it takes the mutex, and takes the time of the
// last caller for the time of its state. A caller that was held up in between sets that
// time back, and what drained since is given again, as long as there are tokens left
// for the caller to pass by its old time. How much that is depends on the machine, and
// the audit shows it: nothing on a quiet one, a third too many in one run on a busy one.
//
// Its limit is a bench.Limit in floating point.
const xtimeNote = "gives again what drained while a caller was held up, if many ask for one key"

func newXTime(l bench.Limit) *rate.Limiter {
	return rate.NewLimiter(rate.Limit(float64(l.Count)/l.Per.Seconds()), whole(l.Capacity))
}
