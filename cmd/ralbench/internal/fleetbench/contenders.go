package fleetbench

import (
	"context"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/ral-limiter/ral/bench"
	"github.com/ral-limiter/ral/cmd/ralbench/internal/peers"
	"github.com/ral-limiter/ral/fleet"
)

const (
	RedisRate = "redis_rate"
	Exact     = "Ral fleet exact"
	Leased    = "Ral fleet leased"
	// The same with fleet's default budget.
	ExactByDefault  = "Ral fleet exact, 5 ms"
	LeasedByDefault = "Ral fleet leased, 5 ms"
	EngineTake      = "engine Take"
	EngineChoke     = "engine Choke"
)

// Contenders returns the contenders on a Redis, and the engine in this process.
func Contenders() []bench.Contender { return contenders(new(server), nil) }

func contenders(server *server, workloads []bench.Workload) []bench.Contender {
	rate := peers.RedisAt("tcp", server.addr)
	rate.About += ", its client and pool as they are by default"
	rate.New = server.watched(rate.New)
	exact := remote(Exact, "package fleet in exact mode, asked by Take: each call is decided in Redis", fleet.Exact, patience, server)
	leased := remote(Leased, "package fleet in leased mode, asked by Take: decided here, on units taken ahead", fleet.Leased, patience, server)
	all := []bench.Contender{
		rate, exact, leased,
		remote(ExactByDefault, "the same with the default budget of 5 ms, after which a call is refused", fleet.Exact, 0, server),
		remote(LeasedByDefault, "the same with the default budget of 5 ms, after which a call is refused", fleet.Leased, 0, server),
		inProcess(EngineTake, "the engine in this process, asked by Take: the yardstick of leased mode", bench.RalTake()),
		inProcess(EngineChoke, "the engine in this process, asked by Choke: yes or no", bench.Ral()),
	}
	shares := &shares{addr: server.addr, workloads: workloads}
	for _, contender := range []bench.Contender{rate, exact, leased} {
		all = append(all, server.memoryOf(contender))
	}
	return append(all, shares.contender(exact, fleet.Exact), shares.contender(leased, fleet.Leased))
}

func inProcess(name, about string, contender bench.Contender) bench.Contender {
	return bench.Contender{
		Name: name, About: about, Promise: contender.Promise, Exact: true, Idles: true,
		New: func(setup bench.Setup) (bench.Limiter, error) {
			limiter, err := contender.New(setup)
			return yielding(limiter), err
		},
	}
}

func remote(name, about string, mode fleet.Mode, budget time.Duration, server *server) bench.Contender {
	// Names of the same length, for they are part of each key in Redis.
	limit := map[fleet.Mode]string{fleet.Exact: "exact", fleet.Leased: "lease"}[mode]
	if budget != patience {
		limit = limit[:4] + "5"
	}
	return bench.Contender{
		Name: name, About: about,
		Note:    "Redis's part of a call is in Redis ns/op, not in ns/op",
		Promise: bench.LeakyBucket, Exact: true, Slow: mode == fleet.Exact, Elsewhere: true,
		New: server.watched(func(setup bench.Setup) (bench.Limiter, error) {
			limiter, err := newFleet(server.addr, setup.Limit, fleet.Config{Name: limit, Mode: mode, MaxKeys: setup.MaxKeys, Budget: budget})
			if err != nil {
				return bench.Limiter{}, err
			}
			failed := new(atomic.Int64)
			return yielding(bench.Limiter{
				Ask: func(keys []string) int {
					return bench.AskEach(keys, func(key string) bool {
						answer, err := limiter.Take(context.Background(), key, 1)
						if err != nil {
							failed.Add(1)
						}
						return answer.Allowed
					})
				},
				// Calls answered neither by Redis nor on a lease count as unavailable.
				Counts: func() bench.Counts {
					stats := limiter.Stats()
					return bench.Counts{
						Unavailable: int64(stats.Local+stats.Open+stats.Closed) + failed.Load(), ByRedis: int64(stats.Exact), ByLease: int64(stats.Leased),
					}
				},
				Free: limiter.Close,
			}), nil
		}),
	}
}

// yielding makes callers take turns on the processors, as callers in a server do when they wait.
// Callers that never wait stop others, such as the renewal of leases, for a third of a second.
func yielding(limiter bench.Limiter) bench.Limiter {
	// Yielding this seldom costs less than a nanosecond a call.
	const often = 16
	ask, batches := limiter.Ask, new(atomic.Uint32)
	limiter.Ask = func(keys []string) int {
		passed := ask(keys)
		if batches.Add(1)%often == 0 {
			runtime.Gosched()
		}
		return passed
	}
	// No pass waits for work in the background.
	limiter.Settle = nil
	return limiter
}
