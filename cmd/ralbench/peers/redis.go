package peers

import (
	"context"
	"math"
	"os/exec"
	"sync/atomic"

	"github.com/go-redis/redis_rate/v10"
	"github.com/redis/go-redis/v9"

	"github.com/ral-limiter/ral/bench"
)

// Redis is github.com/go-redis/redis_rate/v10 on a Redis of its own, asked by
// Allow, as its README has it: a GCRA in a script that Redis runs. The limiter
// starts the Redis, on a socket in a temporary folder and with nothing written to
// disk, and stops it when it is closed. server is the redis-server to start.
//
// A call is a round trip to another process, which is what an in-process limiter
// saves, and no fairer than that: a limiter for one process has no use for it, one
// for many cannot do without something like it. Processor time that Redis uses is
// not in ns/op, nor its memory in any figure.
//
// It is exact by design, for Redis runs one script at a time, in floating point by
// the microsecond. A call that fails is taken for a no, and counted as
// unavailable. A key expires when it owes nothing any more. Its limit says the
// same as a bench.Limit.
func Redis(server string) bench.Contender {
	return bench.Contender{
		Name:      "redis_rate",
		About:     "github.com/go-redis/redis_rate/v10 on a Redis on this machine",
		Note:      "asks another process, whose processor time and memory are not in its figures",
		Exact:     true,
		Slow:      true,
		Elsewhere: true,
		Needs:     keepsAll,
		New: func(s bench.Setup) (bench.Limiter, error) {
			running, err := startRedis(server)
			if err != nil {
				return nil, err
			}
			client := redis.NewClient(&redis.Options{Network: "unix", Addr: running.socket})
			return &redisRate{
				server:  running,
				client:  client,
				limiter: redis_rate.NewLimiter(client),
				limit: redis_rate.Limit{
					Burst:  whole(s.Limit.Capacity),
					Rate:   int(min(s.Limit.Count, math.MaxInt32)),
					Period: s.Limit.Per,
				},
			}, nil
		},
	}
}

// FindRedis returns the redis-server that is installed, if one is.
func FindRedis() (server string, found bool) {
	server, err := exec.LookPath("redis-server")
	return server, err == nil
}

type redisRate struct {
	server  *redisServer
	client  *redis.Client
	limiter *redis_rate.Limiter
	limit   redis_rate.Limit
	errors  atomic.Int64
}

// Choke implements bench.Limiter.
func (r *redisRate) Choke(key string) bool {
	result, err := r.limiter.Allow(context.Background(), key, r.limit)
	if err != nil {
		r.errors.Add(1)
		return false
	}
	return result.Allowed > 0
}

// ChokeAll implements bench.Limiter.
func (r *redisRate) ChokeAll(keys []string) (passed int) {
	for _, key := range keys {
		if r.Choke(key) {
			passed++
		}
	}
	return passed
}

// Counts implements bench.Counter.
func (r *redisRate) Counts() bench.Counts { return bench.Counts{Unavailable: r.errors.Load()} }

// Close implements bench.Limiter: it stops the Redis as well.
func (r *redisRate) Close() error {
	// What the connections say no longer matters.
	_ = r.client.Close()
	return r.server.stop()
}
