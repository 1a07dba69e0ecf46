package peers

import (
	"golang.org/x/time/rate"

	"github.com/ral-limiter/ral/bench"
)

// golang.org/x/time/rate is a token bucket for one key. Its documentation keeps
// no keys; the three contenders keep a *rate.Limiter for each in the maps that
// programs use for it. All call Allow, which is what its documentation says is
// for dropping what exceeds the limit. None gives up a key, so none can do a
// table that is full.
//
// A rate.Limiter is exact by design, for it counts under a mutex. But it reads
// the clock before it takes the mutex, and takes the time of whoever comes last
// for the time of its state. A caller who was held up in between sets it back,
// and what drained since is given again, as long as there are tokens left for it to
// pass by its old time. How much that is depends on the machine, and the audit
// shows it: nothing on a quiet one, and a third too many in one run on a busy one.
//
// Its limit says the same as a bench.Limit, in floating point.
const xtimeNote = "gives again what drained while a caller was held up, if many ask for one key"

func newXTime(l bench.Limit) *rate.Limiter {
	return rate.NewLimiter(rate.Limit(float64(l.Count)/l.Per.Seconds()), whole(l.Capacity))
}
