package peers

import (
	"context"
	"errors"
	"math"
	"sync/atomic"

	"github.com/go-redis/redis_rate/v10"
	"github.com/redis/go-redis/v9"

	"github.com/ral-limiter/ral/bench"
	"github.com/ral-limiter/ral/internal/testkit/child"
)

// Redis is github.com/go-redis/redis_rate/v10 on its own Redis, asked by Allow, as in its README: a
// GCRA in a script that Redis runs. It starts the Redis on a socket in a temporary folder, without
// writing to disk. Close stops it. server is the redis-server to start: see child.RedisConfig.
//
// A call is a round trip to another process. A limiter in this process saves it; a limiter for many
// processes cannot. Redis's processor time is not in ns/op, nor its memory in any figure.
//
// It promises a GCRA, exact by design, since Redis runs scripts in turn, in floating point by the
// microsecond. A failed call is refused and counted as unavailable. Keys expire when they owe
// nothing.
func Redis(server string) bench.Contender {
	contender := RedisAt("", "")
	contender.About += " on a Redis on this machine"
	contender.New = func(setup bench.Setup) (bench.Limiter, error) {
		running, err := child.OpenRedis(child.RedisConfig{Program: server, Socket: true})
		if err != nil {
			return bench.Limiter{}, err
		}
		limiter := redisRate(running.Network(), running.Addr(), setup.Limit)
		leave := limiter.Free
		limiter.Free = func() error { return errors.Join(leave(), running.Close()) }
		return limiter, nil
	}
	return contender
}

// RedisAt is Redis on a running server, which may have other clients, with the client's defaults.
func RedisAt(network, addr string) bench.Contender {
	return bench.Contender{
		Name: "redis_rate", About: "github.com/go-redis/redis_rate/v10",
		Note:    "asks another process, whose processor time and memory are not in its figures",
		Promise: bench.GCRA, Exact: true, Slow: true, Elsewhere: true, Needs: keepsAll,
		New: func(setup bench.Setup) (bench.Limiter, error) { return redisRate(network, addr, setup.Limit), nil },
	}
}

func redisRate(network, addr string, l bench.Limit) bench.Limiter {
	client := redis.NewClient(&redis.Options{Network: network, Addr: addr})
	limiter := redis_rate.NewLimiter(client)
	limit := redis_rate.Limit{Burst: whole(l.Capacity), Rate: int(min(l.Count, math.MaxInt32)), Period: l.Per}
	failures := new(atomic.Int64)
	return bench.Limiter{
		Ask: func(names []string) int {
			return bench.AskEach(names, func(key string) bool {
				result, err := limiter.Allow(context.Background(), key, limit)
				if err != nil {
					failures.Add(1)
				}
				return err == nil && result.Allowed > 0
			})
		},
		Counts: func() bench.Counts { return bench.Counts{Unavailable: failures.Load()} },
		Free:   func() error { _ = client.Close(); return nil },
	}
}
