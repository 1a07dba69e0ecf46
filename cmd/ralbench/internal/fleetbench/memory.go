package fleetbench

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/ral-limiter/ral/bench"
)

// memoryOf measures the memory of a contender's keys in Redis, each asked for once.
func (s *server) memoryOf(contender bench.Contender) bench.Contender {
	made := contender.New
	contender.For = []string{MemoryInRedis}
	contender.Measure = func(ctx context.Context, w bench.Workload, _ time.Duration) (bench.Measured, error) {
		return s.measureMemory(ctx, contender.Name, made, w.Keys)
	}
	return contender
}

func (s *server) measureMemory(ctx context.Context, name string, make func(bench.Setup) (bench.Limiter, error), n int) (measured bench.Measured, err error) {
	if err := s.forget(); err != nil {
		return measured, err
	}
	limiter, err := make(bench.Setup{Limit: owing, Keys: n, MaxKeys: 2*n + 1024})
	if err != nil {
		return measured, err
	}
	defer func() { err = errors.Join(err, limiter.Close()) }()
	const mark = "tok_"
	if passed := choke(limiter, mark, n); passed < n {
		return measured, fmt.Errorf("%s: %d of %d keys were refused, or not answered for", name, n-passed, n)
	}
	sum, keys, err := s.usage(ctx, mark)
	if err != nil {
		return measured, err
	}
	if keys != n {
		return measured, fmt.Errorf("%s: Redis has %d of %d keys", name, keys, n)
	}
	// The fall is measured, since by then connections and their buffers no longer grow.
	with := s.steadyMemory(ctx)
	if err := s.forget(); err != nil {
		return measured, err
	}
	used := with - s.info("Memory", "used_memory")
	measured.Pass = bench.Pass{Calls: int64(n), Passed: int64(n)}
	measured.Memory = &bench.Memory{Keys: n, BytesPerKey: used / float64(n), Usage: float64(sum) / float64(n), IdleUnknown: true}
	return measured, s.failure()
}

// choke asks for n keys, each once, by all callers, and returns how many passed.
func choke(limiter bench.Limiter, prefix string, n int) int {
	var done sync.WaitGroup
	var passed atomic.Int64
	for c := range Callers {
		done.Go(func() {
			for i := c; i < n; i += Callers {
				// The names are as long as in package bench.
				if limiter.Choke(fmt.Sprintf("%s%016x", prefix, uint64(i+1)*0x9E3779B97F4A7C15)) {
					passed.Add(1)
				}
			}
		})
	}
	done.Wait()
	return int(passed.Load())
}

// steadyMemory looks at this interval, for at most this time: Redis grows its tables slowly.
const (
	lookEvery = 100 * time.Millisecond
	lookLong  = 2 * time.Second
)

// steadyMemory returns used_memory once it is the same twice in a row, or when the context ends.
func (s *server) steadyMemory(ctx context.Context) float64 {
	last := -1.0
	for begun := time.Now(); ; {
		now := s.info("Memory", "used_memory")
		if now == last || time.Since(begun) > lookLong || ctx.Err() != nil {
			return now
		}
		last = now
		time.Sleep(lookEvery)
	}
}

// usage returns the sum of MEMORY USAGE over the keys with a mark, and their number.
func (s *server) usage(ctx context.Context, mark string) (sum int64, keys int, err error) {
	const page = 1000
	found, names := s.client.Scan(ctx, 0, "*"+mark+"*", page).Iterator(), []string(nil)
	for found.Next(ctx) {
		names = append(names, found.Val())
	}
	if err := found.Err(); err != nil {
		return 0, 0, err
	}
	// SCAN may return a key twice while its table grows.
	slices.Sort(names)
	names = slices.Compact(names)
	replies, err := s.client.Pipelined(ctx, func(pipeliner redis.Pipeliner) error {
		for _, name := range names {
			pipeliner.MemoryUsage(ctx, name, 0)
		}
		return nil
	})
	for _, reply := range replies {
		sum += reply.(*redis.IntCmd).Val()
	}
	return sum, len(names), err
}
