package servebench

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"

	"github.com/redis/go-redis/v9"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/ral-limiter/ral/bench"
	"github.com/ral-limiter/ral/cmd/ralbench/internal/lab"
	"github.com/ral-limiter/ral/internal/testkit/child"
)

//go:embed gcra.lua
var gcra string

// rules of both rate limit services never refuse a request of the generators.
var rules = fmt.Sprintf("domain: bench\ndescriptors:\n  - key: user\n    rate_limit: {unit: hour, requests_per_unit: %d}\n", int64(perHour))

const perHour = 4_000_000_000

// servers are the servers of a run, each started at its first use.
type servers struct {
	*lab.Lab
	// running has them by name and network.
	running map[string]*server
}

// server is a running server, with another behind it perhaps.
type server struct {
	addr    string
	pids    []int
	command []string // of a client of Redis
}

// source is a contender: a server for some workloads.
type source struct {
	name, about string
	yardstick   bench.Yardstick
	workloads   []string
	// start starts the server at a free address.
	start func(l *servers, network, addr string) (*server, error)
}

var (
	ralds = source{Rald, "rald, asked by CL.THROTTLE", "", redisWorkloads, func(servers *servers, network, addr string) (*server, error) {
		listen := addr
		if network == "unix" {
			listen = "unix:" + addr
		}
		return servers.start(network, addr, nil, "rald", "-state", "none", "-listen", listen)
	}}
	envoyRalds = source{Rald, "rald, asked by ShouldRateLimit", "", envoyWorkloads, func(servers *servers, _, addr string) (*server, error) {
		other, err := child.FreeAddr()
		if err != nil {
			return nil, err
		}
		return servers.start("tcp", addr, nil, "rald", "-state", "none", "-listen", other, "-envoy", servers.file("rules/config"), "-envoy-listen", addr)
	}}

	// sources are all servers. A server stands beside the others that have its workloads.
	sources = []source{
		{GoFloor, "a Go server that answers the same bytes and decides nothing", bench.YardstickFloor, redisWorkloads, func(servers *servers, network, addr string) (*server, error) {
			return servers.startFloor(ralds, network, network, addr, redisAnswer)
		}},
		{Ping, "Redis, asked by PING", yardstickPing, redisWorkloads, func(servers *servers, network, _ string) (*server, error) {
			_, server, err := servers.startRedis(network)
			server.command = []string{"PING"}
			return server, err
		}},
		ralds,
		{Script, "a Redis with a short script of the same limit", "", redisWorkloads, func(servers *servers, network, _ string) (*server, error) {
			client, server, err := servers.startRedis(network)
			if err != nil {
				return nil, err
			}
			hash, err := client.ScriptLoad(context.Background(), gcra).Result()
			server.command = []string{"EVALSHA", hash, "1", "key:__rand_int__", "15", "30", "60", "1"}
			return server, err
		}},
		{GRPCFloor, "a grpc-go server that answers the same bytes and decides nothing", bench.YardstickFloor, envoyWorkloads, func(servers *servers, network, addr string) (*server, error) {
			return servers.startFloor(envoyRalds, network, "grpc", addr, grpcAnswer)
		}},
		envoyRalds,
		{Reference, "Envoy's rate limit service with its Redis", "", envoyWorkloads, func(servers *servers, _, addr string) (*server, error) {
			_, redis, err := servers.startRedis("tcp")
			if err != nil {
				return nil, err
			}
			http, err1 := child.FreePort()
			debug, err2 := child.FreePort()
			if err := errors.Join(err1, err2); err != nil {
				return nil, err
			}
			server, err := servers.start("tcp", addr, []string{
				"RUNTIME_ROOT=" + servers.Dir, "RUNTIME_SUBDIRECTORY=rules", "RUNTIME_WATCH_ROOT=false", "LOG_LEVEL=error", "DISABLE_STATS=true", "USE_STATSD=false",
				"LIMIT_RESPONSE_HEADERS_ENABLED=true", "REDIS_SOCKET_TYPE=tcp", "REDIS_URL=" + redis.addr,
				"HOST=127.0.0.1", "GRPC_HOST=127.0.0.1", "DEBUG_HOST=127.0.0.1", "GRPC_PORT=" + port(addr), fmt.Sprint("PORT=", http), fmt.Sprint("DEBUG_PORT=", debug),
			}, "service_cmd")
			if err == nil {
				server.pids = append(server.pids, redis.pids...)
			}
			return server, err
		}},
	}
)

// get returns the server of a source on a network.
func (l *servers) get(source source, network string) (*server, error) {
	key := source.name + " " + source.workloads[0] + " " + network
	if l.running[key] != nil {
		return l.running[key], nil
	}
	addr, err := child.FreeAddr()
	if err != nil {
		return nil, err
	}
	if network == "unix" {
		addr = l.file(fmt.Sprint(len(l.running), ".sock"))
	}
	started, err := source.start(l, network, addr)
	if err != nil {
		return nil, err
	}
	l.running[key] = started
	return started, nil
}

// startRedis starts a Redis, with a client.
func (l *servers) startRedis(network string) (*redis.Client, *server, error) {
	running, client, err := l.Redis(network == "unix")
	if err != nil {
		return nil, new(server), err
	}
	return client, &server{addr: running.Addr(), pids: []int{running.PID()}}, nil
}

// startFloor starts a floor that answers as a rald does.
func (l *servers) startFloor(rald source, network, kind, addr string, ask func(network, addr string) ([]byte, error)) (*server, error) {
	server, err := l.get(rald, network)
	if err != nil {
		return nil, err
	}
	answer, err := ask(network, server.addr)
	if err != nil {
		return nil, err
	}
	if err := os.WriteFile(l.file("answer."+kind), answer, 0o600); err != nil {
		return nil, err
	}
	return l.start(network, addr, nil, "floor", kind, addr, l.file("answer."+kind))
}

// redisAnswer returns rald's answer to the first command of a key.
func redisAnswer(network, addr string) ([]byte, error) {
	conn, err := net.Dial(network, addr)
	if err != nil {
		return nil, err
	}
	defer func() { _ = conn.Close() }()
	if _, err := fmt.Fprintf(conn, "%s answer %s\r\n", throttle[0], strings.Join(throttle[2:], " ")); err != nil {
		return nil, err
	}
	answer := make([]byte, 1<<10)
	n, err := conn.Read(answer)
	return answer[:n], err
}

// grpcAnswer returns the bytes of rald's answer to the generators' request.
func grpcAnswer(_, addr string) ([]byte, error) {
	clientConn, err := grpc.NewClient(addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return nil, err
	}
	defer func() { _ = clientConn.Close() }()
	request := new(emptypb.Empty)
	request.ProtoReflect().SetUnknown([]byte(message))
	answer := new(emptypb.Empty)
	if err := clientConn.Invoke(context.Background(), "/"+method, request, answer); err != nil {
		return nil, err
	}
	return answer.ProtoReflect().GetUnknown(), nil
}

// start starts a server of CL.THROTTLE, or of Envoy.
func (l *servers) start(network, addr string, env []string, program string, args ...string) (*server, error) {
	pid, err := l.Start(network, addr, env, l.file(program), args...)
	return &server{addr, []int{pid}, throttle}, err
}

func port(addr string) string {
	_, port, _ := net.SplitHostPort(addr)
	return port
}
