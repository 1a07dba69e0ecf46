package servebench

import (
	"fmt"
	"slices"
	"time"

	"github.com/ral-limiter/ral/bench"
)

const (
	Rald      = "rald"
	Script    = "Redis, Lua GCRA"
	Ping      = "Redis, PING"
	Reference = "envoyproxy/ratelimit"
	GoFloor   = "Go, fixed answer"
	GRPCFloor = "grpc-go, fixed answer"
)

const (
	TCP         = "serve-tcp"
	TCPPipeline = "serve-tcp-16"
	Socket      = "serve-unix"
	SocketLong  = "serve-unix-16"
	Envoy       = "serve-envoy"
	EnvoyRate   = "serve-envoy-rate"
)

var (
	redisWorkloads = []string{TCP, TCPPipeline, Socket, SocketLong}
	envoyWorkloads = []string{Envoy, EnvoyRate}
)

// yardstickPing is a server that keeps no limit.
const yardstickPing bench.Yardstick = "ping"

// keys is the number of keys of CL.THROTTLE and of the script.
const keys = 100_000

// EnvoyRate has Rate requests a second. ghz times sampled of them; all would take over a core.
const Rate, sampled = 20_000, 1000

// Workloads returns all workloads. scale multiplies the numbers of keys.
func Workloads(scale float64) []bench.Workload {
	workload := func(name, about string, keys int) bench.Workload {
		w := bench.Workload{
			Name: name, About: about, Why: "rald beside servers that keep limits for programs in any language, on the cores that the generator uses too.",
			Draw: bench.DrawElsewhere, Apart: true, Base: Rald, Keys: keys, Callers: connections, Limit: bench.Limit{Capacity: 16, Count: 30, Per: time.Minute},
		}
		if isEnvoy(name) {
			w.Callers, w.Limit = envoyConnections*eachAtATime, bench.Limit{Capacity: perHour, Count: perHour, Per: time.Hour}
		}
		return w
	}
	many := max(int(keys*scale), 1)
	return []bench.Workload{
		workload(TCP, "redis-benchmark, 50 connections over TCP, one command at a time", many),
		workload(TCPPipeline, "redis-benchmark, 50 connections over TCP, 16 commands at a time", many),
		workload(Socket, "redis-benchmark, 50 connections over a Unix socket, one command at a time", many),
		workload(SocketLong, "redis-benchmark, 50 connections over a Unix socket, 16 commands at a time", many),
		workload(Envoy, "ShouldRateLimit by h2load, 4 connections with 16 requests at a time each", 1),
		workload(EnvoyRate, fmt.Sprintf("ShouldRateLimit at %d requests a second by %d times h2load, and %d more by ghz, which times them",
			Rate-sampled, senders, sampled), 1),
	}
}

func isEnvoy(workload string) bool { return slices.Contains(envoyWorkloads, workload) }

func networkOf(workload string) string {
	if workload == Socket || workload == SocketLong {
		return "unix"
	}
	return "tcp"
}

func pipelined(workload string) int {
	if workload == TCPPipeline || workload == SocketLong {
		return 16
	}
	return 1
}

func has(all []bench.Workload, wanted func(name string) bool) bool {
	return slices.ContainsFunc(all, func(w bench.Workload) bool { return wanted(w.Name) })
}
