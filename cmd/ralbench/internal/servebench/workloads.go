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

// kind is how the generators send the requests of a workload.
type kind struct {
	workload, about, network string
	pipeline                 int // commands of redis-benchmark at a time
}

var (
	kinds = []kind{
		{TCP, "redis-benchmark, 50 connections over TCP, one command at a time", "tcp", 1},
		{TCPPipeline, "redis-benchmark, 50 connections over TCP, 16 commands at a time", "tcp", 16},
		{Socket, "redis-benchmark, 50 connections over a Unix socket, one command at a time", "unix", 1},
		{SocketLong, "redis-benchmark, 50 connections over a Unix socket, 16 commands at a time", "unix", 16},
		{Envoy, "ShouldRateLimit by h2load, 4 connections with 16 requests at a time each", "tcp", 1},
		{EnvoyRate, fmt.Sprintf("ShouldRateLimit at %d requests a second by %d times h2load, and %d more by ghz, which times them",
			Rate-sampled, senders, sampled), "tcp", 1},
	}
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
func Workloads(scale float64) (all []bench.Workload) {
	for _, kind := range kinds {
		workload := bench.Workload{
			Name: kind.workload, About: kind.about, Why: "rald beside servers that keep limits for programs in any language, on the cores that the generator uses too.",
			Draw: bench.DrawElsewhere, Apart: true, Base: Rald, Keys: max(int(keys*scale), 1), Callers: connections,
			Limit: bench.Limit{Capacity: 16, Count: 30, Per: time.Minute},
		}
		if isEnvoy(kind.workload) {
			workload.Keys, workload.Callers, workload.Limit = 1, envoyConnections*eachAtATime, bench.Limit{Capacity: perHour, Count: perHour, Per: time.Hour}
		}
		all = append(all, workload)
	}
	return all
}

// kindOf returns the kind of a workload.
func kindOf(workload string) kind {
	return kinds[slices.IndexFunc(kinds, func(kind kind) bool { return kind.workload == workload })]
}

func isEnvoy(workload string) bool { return slices.Contains(envoyWorkloads, workload) }
