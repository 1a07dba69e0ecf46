package peers

import (
	"github.com/juju/ratelimit"
	"github.com/puzpuzpuz/xsync/v3"

	"github.com/ral-limiter/ral/bench"
)

// Juju is github.com/juju/ratelimit, a token bucket for a single key, asked by TakeAvailable, its
// call that does not wait. An xsync MapOf keeps the keys, for ever.
//
// It promises a token bucket, exact by design: it counts and reads the clock under a mutex. It
// gains a token at the end of each interval of whole nanoseconds, rounded up.
func Juju() bench.Contender {
	return bench.Contender{
		Name:    "juju+xsync",
		About:   "github.com/juju/ratelimit, one a key in an xsync MapOf",
		Promise: bench.TokenBucket,
		Exact:   true,
		Needs:   keepsAll,
		New: func(s bench.Setup) (bench.Limiter, error) {
			keys := xsync.NewMapOf[string, *ratelimit.Bucket]()
			return asking(func(names []string) int {
				return bench.AskEach(names, func(key string) bool {
					b, known := keys.Load(key)
					if !known {
						b, _ = keys.LoadOrStore(key, ratelimit.NewBucket(interval(s.Limit), s.Limit.Capacity))
					}
					return b.TakeAvailable(1) == 1
				})
			})
		},
	}
}
