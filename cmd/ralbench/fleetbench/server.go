package fleetbench

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/ral-limiter/ral/internal/testkit/redisd"
)

// server is the Redis of all contenders, with a connection to inspect it.
type server struct {
	*redisd.Server
	client  *redis.Client
	version string
}

func startServer(binary string) (*server, error) {
	running, err := redisd.Open(redisd.Config{Program: binary})
	if err != nil {
		return nil, err
	}
	s := &server{Server: running, client: redis.NewClient(&redis.Options{Network: running.Network(), Addr: running.Addr(), PoolSize: 1})}
	about := s.client.InfoMap(context.Background(), "server")
	if about.Err() != nil {
		return nil, errors.Join(about.Err(), s.stop())
	}
	s.version = about.Item("Server", "redis_version")
	return s, nil
}

func (s *server) stop() error {
	_ = s.client.Close()
	return s.Close()
}

// forget removes all keys from Redis, and keeps its scripts.
func (s *server) forget() error { return s.client.FlushAll(context.Background()).Err() }

func (s *server) processorTime() (time.Duration, error) {
	info := s.client.InfoMap(context.Background(), "cpu")
	if info.Err() != nil {
		return 0, info.Err()
	}
	var sum float64
	for _, name := range []string{"used_cpu_sys", "used_cpu_user"} {
		seconds, err := strconv.ParseFloat(info.Item("CPU", name), 64)
		if err != nil {
			return 0, fmt.Errorf("%s of INFO: %w", name, err)
		}
		sum += seconds
	}
	return time.Duration(sum * float64(time.Second)), nil
}

func (s *server) usedMemory() (int64, error) {
	info := s.client.InfoMap(context.Background(), "memory")
	if info.Err() != nil {
		return 0, info.Err()
	}
	return strconv.ParseInt(info.Item("Memory", "used_memory"), 10, 64)
}
