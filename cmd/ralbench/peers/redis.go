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

// Redis is github.com/go-redis/redis_rate/v10 on its own Redis, asked by Allow, as in its README: a
// GCRA in a script that Redis runs. It starts the Redis on a socket in a temporary folder, without
// writing to disk. Close stops it. server is the redis-server to start: see redisd.Config.
//
// A call is a round trip to another process. A limiter in this process saves it; a limiter for many
// processes cannot. Redis's processor time is not in ns/op, nor its memory in any figure.
//
// It promises a GCRA, exact by design, since Redis runs scripts in turn, in floating point by the
// microsecond. A failed call is refused and counted as unavailable. Keys expire when they owe
// nothing.
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

// RedisAt is Redis on a running server, which may have other clients, with the client's defaults.
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

func (r *redisRate) Choke(key string) bool {
	result, err := r.limiter.Allow(context.Background(), key, r.limit)
	if err != nil {
		r.errors.Add(1)
		return false
	}
	return result.Allowed > 0
}

func (r *redisRate) ChokeAll(keys []string) int {
	return bench.AskEach(keys, func(key string) bool { return r.Choke(key) })
}

func (r *redisRate) Counts() bench.Counts { return bench.Counts{Unavailable: r.errors.Load()} }

func (r *redisRate) Close() error {
	_ = r.client.Close()
	if r.server == nil {
		return nil
	}
	return r.server.Close()
}
