package peers

import (
	"github.com/juju/ratelimit"
	"github.com/puzpuzpuz/xsync/v3"

	"github.com/ral-limiter/ral/bench"
)

// Juju is github.com/juju/ratelimit, a token bucket for one key, asked by
// TakeAvailable, which is its call that does not wait. It keeps no keys; they are
// kept in an xsync MapOf as those of x/time+xsync, and never given up.
//
// It promises a token bucket and is exact by design: it counts under a mutex and reads
// the clock under it. It gains one token at the end of each interval of whole
// nanoseconds, rounded up.
func Juju() bench.Contender {
	return bench.Contender{
		Name:    "juju+xsync",
		About:   "github.com/juju/ratelimit, one a key in an xsync MapOf",
		Promise: bench.TokenBucket,
		Exact:   true,
		Needs:   keepsAll,
		New: func(s bench.Setup) (bench.Limiter, error) {
			return &juju{limit: s.Limit, keys: xsync.NewMapOf[string, *ratelimit.Bucket]()}, nil
		},
	}
}

type juju struct {
	inMemory
	limit bench.Limit
	keys  *xsync.MapOf[string, *ratelimit.Bucket]
}

// Choke implements bench.Limiter.
func (j *juju) Choke(key string) bool {
	b, known := j.keys.Load(key)
	if !known {
		b, _ = j.keys.LoadOrStore(key, ratelimit.NewBucket(interval(j.limit), j.limit.Capacity))
	}
	return b.TakeAvailable(1) == 1
}

// ChokeAll implements bench.Limiter.
func (j *juju) ChokeAll(keys []string) int {
	return bench.AskEach(keys, func(key string) bool { return j.Choke(key) })
}
