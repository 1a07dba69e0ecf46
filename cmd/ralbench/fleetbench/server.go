package fleetbench

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/ral-limiter/ral/internal/testkit/redisd"
)

// server is the Redis that all contenders share, with a connection to inspect it.
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
	if s.version, err = s.info("server", "redis_version"); err != nil {
		return nil, errors.Join(err, s.stop())
	}
	return s, nil
}

func (s *server) stop() error {
	// An error of the connection no longer matters.
	_ = s.client.Close()
	return s.Close()
}

// forget removes all keys from Redis, and keeps its scripts.
func (s *server) forget() error { return s.client.FlushAll(context.Background()).Err() }

// processorTime returns the processor time that Redis has used so far.
func (s *server) processorTime() (time.Duration, error) {
	text, err := s.client.Info(context.Background(), "cpu").Result()
	if err != nil {
		return 0, err
	}
	var sum float64
	for _, name := range []string{"used_cpu_sys", "used_cpu_user"} {
		value, err := field(text, name)
		if err != nil {
			return 0, err
		}
		seconds, err := strconv.ParseFloat(value, 64)
		if err != nil {
			return 0, fmt.Errorf("%s of INFO: %w", name, err)
		}
		sum += seconds
	}
	return time.Duration(sum * float64(time.Second)), nil
}

// usedMemory returns the bytes that Redis has in use.
func (s *server) usedMemory() (int64, error) {
	value, err := s.info("memory", "used_memory")
	if err != nil {
		return 0, err
	}
	return strconv.ParseInt(value, 10, 64)
}

func (s *server) info(section, name string) (string, error) {
	text, err := s.client.Info(context.Background(), section).Result()
	if err != nil {
		return "", err
	}
	return field(text, name)
}

// field returns a value of the text of INFO.
func field(text, name string) (string, error) {
	for line := range strings.Lines(text) {
		if value, found := strings.CutPrefix(line, name+":"); found {
			return strings.TrimSpace(value), nil
		}
	}
	return "", fmt.Errorf("INFO of Redis says nothing of %s", name)
}
