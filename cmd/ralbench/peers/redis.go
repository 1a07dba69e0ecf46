package peers

import (
	"context"
	"math"
	"sync/atomic"

	"github.com/go-redis/redis_rate/v10"
	"github.com/redis/go-redis/v9"

	"github.com/ral-limiter/ral/bench"
	"github.com/ral-limiter/ral/internal/testkit/redisd"
)

// Redis is github.com/go-redis/redis_rate/v10 on a Redis of its own, asked by
// Allow, as its README has it: a GCRA in a script that Redis runs. The limiter
// starts the Redis, on a socket in a temporary folder and with nothing written to
// disk, and stops it when it is closed. server is the redis-server to start, as
// redisd.Config has it.
//
// A call is a round trip to another process, which a limiter in the process saves. The
// comparison is no fairer than that: a limiter for one process has no use for it, one
// for many cannot do without something like it. Redis's processor time is not in ns/op,
// nor its memory in any figure.
//
// It promises a GCRA and is exact by design, for Redis runs one script at a time, in
// floating point by the microsecond. A call that fails is taken for a refusal, and
// counted as unavailable. A key expires when it owes nothing any more.
func Redis(server string) bench.Contender {
	c := RedisAt("", "")
	c.About += " on a Redis on this machine"
	c.New = func(s bench.Setup) (bench.Limiter, error) {
		running, err := redisd.Open(redisd.Config{Program: server, Socket: true})
		if err != nil {
			return nil, err
		}
		r := newRedisRate(running.Network(), running.Addr(), s.Limit)
		r.server = running
		return r, nil
	}
	return c
}

// RedisAt is Redis on a server that runs already, with the client's defaults, its pool
// of connections included. The server may have other clients.
func RedisAt(network, addr string) bench.Contender {
	return bench.Contender{
		Name:      "redis_rate",
		About:     "github.com/go-redis/redis_rate/v10",
		Note:      "asks another process, whose processor time and memory are not in its figures",
		Promise:   bench.GCRA,
		Exact:     true,
		Slow:      true,
		Elsewhere: true,
		Needs:     keepsAll,
		New: func(s bench.Setup) (bench.Limiter, error) {
			return newRedisRate(network, addr, s.Limit), nil
		},
	}
}

type redisRate struct {
	server  *redisd.Server // nil unless it is the limiter's own
	client  *redis.Client
	limiter *redis_rate.Limiter
	limit   redis_rate.Limit
	errors  atomic.Int64
}

func newRedisRate(network, addr string, l bench.Limit) *redisRate {
	client := redis.NewClient(&redis.Options{Network: network, Addr: addr})
	return &redisRate{
		client:  client,
		limiter: redis_rate.NewLimiter(client),
		limit: redis_rate.Limit{
			Burst:  whole(l.Capacity),
			Rate:   int(min(l.Count, math.MaxInt32)),
			Period: l.Per,
		},
	}
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
func (r *redisRate) ChokeAll(keys []string) int {
	return bench.AskEach(keys, func(key string) bool { return r.Choke(key) })
}

// Counts implements bench.Counter.
func (r *redisRate) Counts() bench.Counts { return bench.Counts{Unavailable: r.errors.Load()} }

// Close implements bench.Limiter: it stops a Redis of its own as well.
func (r *redisRate) Close() error {
	// Errors of the connections no longer matter.
	_ = r.client.Close()
	if r.server == nil {
		return nil
	}
	return r.server.Close()
}
