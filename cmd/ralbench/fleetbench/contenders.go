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
			if err != nil {
				return nil, err
			}
			return &yielding{counting: l.(counting)}, nil
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
				return nil, err
			}
			l, err := fleet.New(fleet.Config{
				Redis:  rueidis.ClientOption{InitAddress: []string{addr}},
				Name:   limit,
				Policy: p, Mode: mode, MaxKeys: s.MaxKeys,
				Budget: budget, Outage: fleet.FallbackClosed,
			})
			if err != nil {
				return nil, err
			}
			return &yielding{counting: &limiter{Limiter: l, name: name, told: told}}, nil
		},
	}
}

func funnel(l bench.Limit) (policy.Policy, error) { return policy.Funnel(l.Capacity, l.Count, l.Per) }

// yielding makes callers take turns on the processors, as callers in a server do when they wait.
// Callers that never wait stop others, such as the renewal of leases, for a third of a second.
type yielding struct {
	counting
	batches atomic.Uint32
}

type counting interface {
	bench.Limiter
	bench.Counter
}

// ChokeAll yields seldom enough to cost less than a nanosecond a call.
func (y *yielding) ChokeAll(keys []string) int {
	const often = 16
	passed := y.counting.ChokeAll(keys)
	if y.batches.Add(1)%often == 0 {
		runtime.Gosched()
	}
	return passed
}

type limiter struct {
	*fleet.Limiter
	name   string
	told   ways
	failed atomic.Int64
}

func (l *limiter) Choke(key string) bool {
	a, err := l.Take(context.Background(), key, 1)
	if err != nil {
		l.failed.Add(1)
	}
	return a.Allowed
}

func (l *limiter) ChokeAll(keys []string) int {
	return bench.AskEach(keys, func(key string) bool { return l.Choke(key) })
}

// Counts counts calls answered neither by Redis nor on a lease as unavailable.
func (l *limiter) Counts() bench.Counts {
	s := l.Stats()
	return bench.Counts{Unavailable: int64(s.Local+s.Open+s.Closed) + l.failed.Load()}
}

func (l *limiter) Close() error {
	l.told(l.name, l.Stats())
	return l.Limiter.Close()
}
