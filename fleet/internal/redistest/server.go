package redistest

import (
	"net"
	"testing"
	"time"

	"github.com/ral-limiter/ral/internal/testkit/child"
)

// startingTime is how long servers may take to settle something among themselves.
const startingTime = 20 * time.Second

// Options configures a server. The zero value keeps everything in memory, without a bound.
type Options struct {
	// AOF writes every command to disk before the answer, for Kill and Restart to lose nothing.
	AOF bool
	// MaxMemory and Policy are maxmemory and maxmemory-policy of redis.conf; "" is the default.
	MaxMemory, Policy string
	// Args are further arguments for redis-server.
	Args []string
}

func (o Options) args() (args []string) {
	if o.AOF {
		args = []string{"--appendonly", "yes", "--appendfsync", "always"}
	}
	if o.MaxMemory != "" {
		args = append(args, "--maxmemory", o.MaxMemory)
	}
	if o.Policy != "" {
		args = append(args, "--maxmemory-policy", o.Policy)
	}
	return append(args, o.Args...)
}

// Server is a redis-server that can be killed, restarted and paused.
type Server struct{ *child.Redis }

// Start starts a server that ends with the test, and waits until it answers, or fails the test.
func Start(t testing.TB, options Options) *Server {
	t.Helper()
	return start(t, child.RedisConfig{Args: options.args()})
}

func start(t testing.TB, config child.RedisConfig) *Server {
	t.Helper()
	server, err := open(config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("redis-server at %s said:\n%s", server.Addr(), server.Said())
		}
		if err := server.Close(); err != nil {
			t.Errorf("ending redis-server: %v", err)
		}
	})
	return server
}

// Open starts a server and waits until it answers. Call Close to end it.
func Open(options Options) (*Server, error) { return open(child.RedisConfig{Args: options.args()}) }

func open(config child.RedisConfig) (*Server, error) {
	redis, err := child.OpenRedis(config)
	if err != nil {
		return nil, err
	}
	return &Server{redis}, nil
}

func (s *Server) port() string {
	// The address was joined from a host and a port.
	_, port, _ := net.SplitHostPort(s.Addr())
	return port
}
