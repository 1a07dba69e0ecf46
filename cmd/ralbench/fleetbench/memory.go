package fleetbench

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/ral-limiter/ral/bench"
)

// Memory is the memory of a contender's keys in Redis, each asked for once.
type Memory struct {
	Contender string `json:"contender"`
	Keys      int    `json:"keys"`
	Name      string `json:"name"` // of a key, as Redis knows it
	// Usage is the mean MEMORY USAGE of a key: name, value and place in the table. Used is the fall
	// of used_memory per key when all are forgotten, with the tables of keys and of times to live.
	Usage float64 `json:"usage_bytes"`
	Used  float64 `json:"used_bytes"`
}

// owing is a limit under which a key owes for an hour, so that none expires while counted.
var owing = bench.Limit{Capacity: 1000, Count: 1, Per: time.Hour}

func measureMemory(ctx context.Context, s *server, c bench.Contender, n int) (m Memory, err error) {
	if err := s.forget(); err != nil {
		return m, err
	}
	l, err := c.New(bench.Setup{Limit: owing, Keys: n, MaxKeys: 2*n + 1024})
	if err != nil {
		return m, err
	}
	defer func() {
		if e := l.Close(); err == nil {
			err = e
		}
	}()
	const mark = "tok_"
	if passed := choke(l, mark, n); passed < n {
		return m, fmt.Errorf("%s: %d of %d keys were refused, or not answered for", c.Name, n-passed, n)
	}
	sum, names, err := s.usage(ctx, mark)
	if err != nil {
		return m, err
	}
	if len(names) != n {
		return m, fmt.Errorf("%s: Redis has %d of %d keys", c.Name, len(names), n)
	}
	m = Memory{Contender: c.Name, Keys: n, Usage: float64(sum) / float64(n), Name: names[0]}
	// The fall is measured, since by then connections and their buffers no longer grow.
	with, err := s.steadyMemory(ctx)
	if err != nil {
		return m, err
	}
	if err := s.forget(); err != nil {
		return m, err
	}
	without, err := s.usedMemory()
	m.Used = float64(with-without) / float64(n)
	return m, err
}

// choke asks for n keys, each once, by all callers, and returns how many passed.
func choke(l bench.Limiter, prefix string, n int) int {
	var done sync.WaitGroup
	var passed atomic.Int64
	for c := range Callers {
		done.Go(func() {
			for i := c; i < n; i += Callers {
				// The names are as long as in package bench.
				if l.Choke(fmt.Sprintf("%s%016x", prefix, uint64(i+1)*0x9E3779B97F4A7C15)) {
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

// steadyMemory returns used_memory once it is the same twice in a row.
func (s *server) steadyMemory(ctx context.Context) (int64, error) {
	last := int64(-1)
	for begun := time.Now(); ; {
		now, err := s.usedMemory()
		if err != nil || now == last || time.Since(begun) > lookLong {
			return now, err
		}
		last = now
		select {
		case <-ctx.Done():
			return 0, ctx.Err()
		case <-time.After(lookEvery):
		}
	}
}

func (s *server) usage(ctx context.Context, mark string) (sum int64, names []string, err error) {
	const page = 1000
	found := s.client.Scan(ctx, 0, "*"+mark+"*", page).Iterator()
	for found.Next(ctx) {
		names = append(names, found.Val())
	}
	if err := found.Err(); err != nil {
		return 0, nil, err
	}
	// SCAN may return a key twice while its table grows.
	slices.Sort(names)
	names = slices.Compact(names)
	replies, err := s.client.Pipelined(ctx, func(p redis.Pipeliner) error {
		for _, name := range names {
			p.MemoryUsage(ctx, name, 0)
		}
		return nil
	})
	for _, reply := range replies {
		sum += reply.(*redis.IntCmd).Val()
	}
	return sum, names, err
}
