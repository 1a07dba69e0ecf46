package fleetbench

import (
	"cmp"
	"context"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"

	"github.com/ral-limiter/ral/bench"
	"github.com/ral-limiter/ral/cmd/ralbench/internal/lab"
	"github.com/ral-limiter/ral/fleet"
	"github.com/ral-limiter/ral/policy"
)

// server is the Redis of all contenders, with a connection to inspect it.
type server struct {
	addr   string
	client *redis.Client

	mu sync.Mutex
	// failed is the error of the last look that failed.
	failed error
}

func startServer(lab *lab.Lab) (*server, error) {
	running, client, err := lab.Redis(false)
	if err != nil {
		return nil, err
	}
	s := &server{addr: running.Addr(), client: client}
	lab.AtEnd(s.failure)
	return s, nil
}

// forget removes all keys from Redis, and keeps its scripts.
func (s *server) forget() error { return s.client.FlushAll(context.Background()).Err() }

// watched has a contender's limiters know the processor time of Redis.
func (s *server) watched(make func(bench.Setup) (bench.Limiter, error)) func(bench.Setup) (bench.Limiter, error) {
	return func(setup bench.Setup) (bench.Limiter, error) {
		limiter, err := make(setup)
		limiter.Spent = s.processorTime
		return limiter, err
	}
}

func (s *server) processorTime() time.Duration {
	sum := s.info("CPU", "used_cpu_sys") + s.info("CPU", "used_cpu_user")
	return time.Duration(sum * float64(time.Second))
}

// info returns a figure of a section of INFO, 0 with a failure.
func (s *server) info(section, name string) float64 {
	about := s.client.InfoMap(context.Background(), section)
	figure, err := strconv.ParseFloat(about.Item(section, name), 64)
	if err = cmp.Or(about.Err(), err); err != nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.failed = fmt.Errorf("%s of INFO: %w", name, err)
	}
	return figure
}

// failure returns the last failure to look into Redis.
func (s *server) failure() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.failed
}

// patience is the wait for Redis, the default of redis_rate's client. By fleet's default budget,
// calls on a busy machine may be answered cheaply without Redis; the audit counts them.
const patience = 3 * time.Second

// newFleet returns a limiter that refuses calls in an outage. The configuration says the rest.
func newFleet(addr string, limit bench.Limit, config fleet.Config) (_ *fleet.Limiter, err error) {
	config.Redis, config.Outage = rueidis.ClientOption{InitAddress: []string{addr}}, fleet.FallbackClosed
	if config.Policy, err = policy.Funnel(limit.Capacity, limit.Count, limit.Per); err != nil {
		return nil, err
	}
	return fleet.New(config)
}
