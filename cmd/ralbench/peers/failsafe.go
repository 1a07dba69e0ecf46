package peers

import (
	"github.com/failsafe-go/failsafe-go/ratelimiter"
	"github.com/puzpuzpuz/xsync/v3"

	"github.com/ral-limiter/ral/bench"
)

// Failsafe is the bursty rate limiter of github.com/failsafe-go/failsafe-go, for a single key,
// asked by TryAcquirePermit, as documented. An xsync MapOf keeps the keys, for ever.
//
// It promises a fixed window, exact by design, and counts under a mutex. Permits are renewed in
// each period. The first begins with a key's first call.
func Failsafe() bench.Contender {
	return bench.Contender{
		Name:    "failsafe+xsync",
		About:   "github.com/failsafe-go/failsafe-go, bursty, one a key in an xsync MapOf",
		Note:    edge,
		Promise: bench.FixedWindow,
		Exact:   true,
		Needs:   keepsAll,
		New: func(s bench.Setup) (bench.Limiter, error) {
			keys := xsync.NewMapOf[string, ratelimiter.RateLimiter[any]]()
			return asking(func(names []string) int {
				return bench.AskEach(names, func(key string) bool {
					l, known := keys.Load(key)
					if !known {
						l, _ = keys.LoadOrStore(key, ratelimiter.NewBursty[any](uint(whole(s.Limit.Capacity)), s.Limit.Refill()))
					}
					return l.TryAcquirePermit()
				})
			})
		},
	}
}
