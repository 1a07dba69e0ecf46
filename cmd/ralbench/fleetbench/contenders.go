package fleetbench

import (
	"context"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/redis/rueidis"

	"github.com/ral-limiter/ral/bench"
	"github.com/ral-limiter/ral/cmd/ralbench/peers"
	"github.com/ral-limiter/ral/fleet"
	"github.com/ral-limiter/ral/policy"
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

// ways is told the statistics of a contender's limiter when it is closed.
type ways func(contender string, s fleet.Stats)

// Contenders returns the contenders on the Redis at that address, and the engine in this process.
func Contenders(network, addr string) []bench.Contender {
	return contenders(network, addr, func(string, fleet.Stats) {})
}

func contenders(network, addr string, told ways) []bench.Contender {
	rate := peers.RedisAt(network, addr)
	rate.About += ", its client and pool as they are by default"
	return []bench.Contender{
		rate,
		remote(Exact, "package fleet in exact mode, asked by Take: each call is decided in Redis", fleet.Exact, patience, addr, told),
		remote(Leased, "package fleet in leased mode, asked by Take: decided here, on units taken ahead", fleet.Leased, patience, addr, told),
		remote(ExactByDefault, "the same with the default budget of 5 ms, after which a call is refused", fleet.Exact, 0, addr, told),
		remote(LeasedByDefault, "the same with the default budget of 5 ms, after which a call is refused", fleet.Leased, 0, addr, told),
		inProcess(EngineTake, "the engine in this process, asked by Take: the yardstick of leased mode", bench.RalTake()),
		inProcess(EngineChoke, "the engine in this process, asked by Choke: yes or no", bench.Ral()),
	}
}

func inProcess(name, about string, c bench.Contender) bench.Contender {
	return bench.Contender{
		Name: name, About: about, Promise: c.Promise, Exact: true, Idles: true,
		New: func(s bench.Setup) (bench.Limiter, error) {
			l, err := c.New(s)
			return yielding(l), err
		},
	}
}

// patience is the wait for Redis, the default of redis_rate's client. By fleet's default budget,
// calls on a busy machine may be answered cheaply without Redis; the table of Redis's work counts
// them.
const patience = 3 * time.Second

func remote(name, about string, mode fleet.Mode, budget time.Duration, addr string, told ways) bench.Contender {
	// Names of the same length, for they are part of each key in Redis.
	limit := map[fleet.Mode]string{fleet.Exact: "exact", fleet.Leased: "lease"}[mode]
	if budget != patience {
		limit = limit[:4] + "5"
	}
	return bench.Contender{
		Name: name, About: about,
		Note:    "Redis's part of a call is in Redis's own columns, not in ns/op",
		Promise: bench.LeakyBucket, Exact: true, Slow: mode == fleet.Exact, Elsewhere: true,
		New: func(s bench.Setup) (bench.Limiter, error) {
			p, err := funnel(s.Limit)
			if err != nil {
				return bench.Limiter{}, err
			}
			l, err := fleet.New(fleet.Config{
				Redis:  rueidis.ClientOption{InitAddress: []string{addr}},
				Name:   limit,
				Policy: p, Mode: mode, MaxKeys: s.MaxKeys,
				Budget: budget, Outage: fleet.FallbackClosed,
			})
			if err != nil {
				return bench.Limiter{}, err
			}
			failed := new(atomic.Int64)
			return yielding(bench.Limiter{
				Ask: func(keys []string) int {
					return bench.AskEach(keys, func(key string) bool {
						a, err := l.Take(context.Background(), key, 1)
						if err != nil {
							failed.Add(1)
						}
						return a.Allowed
					})
				},
				// Calls answered neither by Redis nor on a lease count as unavailable.
				Counts: func() bench.Counts {
					s := l.Stats()
					return bench.Counts{Unavailable: int64(s.Local+s.Open+s.Closed) + failed.Load()}
				},
				Free: func() error {
					told(name, l.Stats())
					return l.Close()
				},
			}), nil
		},
	}
}

func funnel(l bench.Limit) (policy.Policy, error) { return policy.Funnel(l.Capacity, l.Count, l.Per) }

// yielding makes callers take turns on the processors, as callers in a server do when they wait.
// Callers that never wait stop others, such as the renewal of leases, for a third of a second.
func yielding(l bench.Limiter) bench.Limiter {
	// Yielding this seldom costs less than a nanosecond a call.
	const often = 16
	ask, batches := l.Ask, new(atomic.Uint32)
	l.Ask = func(keys []string) int {
		passed := ask(keys)
		if batches.Add(1)%often == 0 {
			runtime.Gosched()
		}
		return passed
	}
	// No pass waits for work in the background.
	l.Settle = nil
	return l
}
