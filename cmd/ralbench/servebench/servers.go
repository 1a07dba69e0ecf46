package servebench

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/ral-limiter/ral/internal/testkit/child"
	"github.com/ral-limiter/ral/internal/testkit/redisd"
)

//go:embed gcra.lua
var gcra string

// rules of both rate limit services never refuse a request of the generators.
var rules = fmt.Sprintf("domain: bench\ndescriptors:\n  - key: user\n    rate_limit: {unit: hour, requests_per_unit: %d}\n", int64(perHour))

const perHour = 4_000_000_000

// startingTime bounds the time that a server takes to listen.
const startingTime = 20 * time.Second

// lab holds the servers of a run, each started at its first use.
type lab struct {
	programs
	dir    string
	redis  map[string]*store // by the network
	ralds  map[string]*server
	floors map[string]*server
	envoy  *services
	closes []func() error
}

type server struct {
	*child.Process
	addr string
}

// store is a Redis with the script.
type store struct {
	*redisd.Server
	version, script string // script is its hash
}

// services are both rate limit services, and their floor.
type services struct {
	rald, reference *server
	floor           *server
	redis           *redisd.Server // of the reference
}

func (l *lab) close() (err error) {
	for _, end := range l.closes {
		err = errors.Join(err, end())
	}
	return err
}

func (l *lab) store(network string) (*store, error) {
	if s := l.redis[network]; s != nil {
		return s, nil
	}
	running, err := redisd.Open(redisd.Config{Socket: network == "unix"})
	if err != nil {
		return nil, err
	}
	l.closes = append(l.closes, running.Close)
	c := redis.NewClient(&redis.Options{Network: running.Network(), Addr: running.Addr(), PoolSize: 1})
	defer func() { _ = c.Close() }()
	s := &store{Server: running}
	ctx := context.Background()
	if s.script, err = c.ScriptLoad(ctx, gcra).Result(); err != nil {
		return nil, fmt.Errorf("the script: %w", err)
	}
	about := c.InfoMap(ctx, "server")
	if about.Err() != nil {
		return nil, about.Err()
	}
	s.version = about.Item("Server", "redis_version")
	l.redis[network] = s
	return s, nil
}

// raldOn returns the rald for clients of Redis on a network.
func (l *lab) raldOn(network string) (*server, error) {
	if s := l.ralds[network]; s != nil {
		return s, nil
	}
	addr := filepath.Join(l.dir, "rald.sock")
	listen := "unix:" + addr
	if network == "tcp" {
		var err error
		if addr, err = freeAddr(); err != nil {
			return nil, err
		}
		listen = addr
	}
	s, err := l.start(network, addr, nil, l.rald, "-state", "none", "-listen", listen)
	if err != nil {
		return nil, err
	}
	l.ralds[network] = s
	return s, nil
}

// floorOn returns the floor for clients of Redis on a network. It answers as rald does.
func (l *lab) floorOn(network string) (*server, error) {
	if s := l.floors[network]; s != nil {
		return s, nil
	}
	rald, err := l.raldOn(network)
	if err != nil {
		return nil, err
	}
	answer, err := redisAnswer(network, rald.addr)
	if err != nil {
		return nil, err
	}
	addr := filepath.Join(l.dir, "floor.sock")
	if network == "tcp" {
		if addr, err = freeAddr(); err != nil {
			return nil, err
		}
	}
	s, err := l.startFloor(network, addr, answer)
	if err != nil {
		return nil, err
	}
	l.floors[network] = s
	return s, nil
}

func (l *lab) startFloor(kind, addr string, answer []byte) (*server, error) {
	file, network := l.file("answer."+kind), kind
	if kind == "grpc" {
		network = "tcp"
	}
	if err := os.WriteFile(file, answer, 0o600); err != nil {
		return nil, err
	}
	return l.start(network, addr, nil, l.programs.floor, kind, addr, file)
}

// redisAnswer returns rald's answer to the first command of a key.
func redisAnswer(network, addr string) ([]byte, error) {
	c, err := net.Dial(network, addr)
	if err != nil {
		return nil, err
	}
	defer func() { _ = c.Close() }()
	if _, err := fmt.Fprintf(c, "%s answer %s\r\n", throttle[0], strings.Join(throttle[2:], " ")); err != nil {
		return nil, err
	}
	answer := make([]byte, 1<<10)
	n, err := c.Read(answer)
	return answer[:n], err
}

// grpcAnswer returns the bytes of rald's answer to the generators' request.
func grpcAnswer(addr string) ([]byte, error) {
	c, err := grpc.NewClient(addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return nil, err
	}
	defer func() { _ = c.Close() }()
	request := new(emptypb.Empty)
	request.ProtoReflect().SetUnknown([]byte(message))
	answer := new(emptypb.Empty)
	if err := c.Invoke(context.Background(), "/"+method, request, answer); err != nil {
		return nil, err
	}
	return answer.ProtoReflect().GetUnknown(), nil
}

// services returns both rate limit services, with the same rules, and the floor.
func (l *lab) services() (*services, error) {
	if l.envoy != nil {
		return l.envoy, nil
	}
	config := filepath.Join(l.dir, "rules", "config")
	if err := os.MkdirAll(config, 0o700); err != nil {
		return nil, err
	}
	if err := os.WriteFile(filepath.Join(config, "bench.yaml"), []byte(rules), 0o600); err != nil {
		return nil, err
	}
	var addrs [6]string
	for i := range addrs {
		var err error
		if addrs[i], err = freeAddr(); err != nil {
			return nil, err
		}
	}
	var s services
	var err error
	if s.redis, err = redisd.Open(redisd.Config{}); err != nil {
		return nil, err
	}
	l.closes = append(l.closes, s.redis.Close)
	s.rald, err = l.start("tcp", addrs[0], nil, l.rald, "-state", "none", "-listen", addrs[1], "-envoy", config, "-envoy-listen", addrs[0])
	if err != nil {
		return nil, err
	}
	env := []string{
		"RUNTIME_ROOT=" + l.dir, "RUNTIME_SUBDIRECTORY=rules", "RUNTIME_WATCH_ROOT=false", "LOG_LEVEL=error", "DISABLE_STATS=true", "USE_STATSD=false",
		"LIMIT_RESPONSE_HEADERS_ENABLED=true", "REDIS_SOCKET_TYPE=tcp", "REDIS_URL=" + s.redis.Addr(),
		"HOST=127.0.0.1", "GRPC_HOST=127.0.0.1", "DEBUG_HOST=127.0.0.1", "GRPC_PORT=" + port(addrs[2]), "PORT=" + port(addrs[3]), "DEBUG_PORT=" + port(addrs[4]),
	}
	if s.reference, err = l.start("tcp", addrs[2], env, l.reference); err != nil {
		return nil, err
	}
	answer, err := grpcAnswer(s.rald.addr)
	if err != nil {
		return nil, err
	}
	if s.floor, err = l.startFloor("grpc", addrs[5], answer); err != nil {
		return nil, err
	}
	l.envoy = &s
	return l.envoy, nil
}

// start starts a server and waits until it listens.
func (l *lab) start(network, addr string, env []string, program string, args ...string) (*server, error) {
	log, err := os.CreateTemp(l.dir, "log")
	if err != nil {
		return nil, err
	}
	defer func() { _ = log.Close() }()
	cmd := exec.Command(program, args...)
	cmd.Env = append(os.Environ(), env...)
	cmd.Stdout, cmd.Stderr = log, log
	process, err := child.Start(cmd)
	if err != nil {
		return nil, err
	}
	l.closes = append(l.closes, func() error { process.Kill(); return nil })
	for begun := time.Now(); ; time.Sleep(5 * time.Millisecond) {
		c, err := net.Dial(network, addr)
		if err == nil {
			return &server{process, addr}, c.Close()
		}
		if !process.Runs() || time.Since(begun) > startingTime {
			said, _ := os.ReadFile(log.Name())
			return nil, fmt.Errorf("%s does not listen: %w\n%s", filepath.Base(program), err, said)
		}
	}
}

func freeAddr() (string, error) {
	port, err := redisd.FreePort()
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)), err
}

func port(addr string) string {
	_, port, _ := net.SplitHostPort(addr)
	return port
}
