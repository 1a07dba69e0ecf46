package servebench

import (
	"context"
	"errors"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/ral-limiter/ral/bench"
)

// Run builds the servers and measures them until done or the context ends, which is no error. With
// an error, the report holds the measurements before it. redis is the version of the Redis.
func Run(ctx context.Context, workloads []bench.Workload, o bench.Options) (report bench.Report, redis string, err error) {
	dir, err := os.MkdirTemp("", "ralbench")
	if err != nil {
		return report, "", err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	l := &lab{dir: dir, redis: map[string]*store{}, ralds: map[string]*server{}, floors: map[string]*server{}}
	if l.programs, err = build(ctx, dir, workloads); err != nil {
		if ctx.Err() != nil {
			return bench.Report{Interrupted: true}, "", nil
		}
		return report, "", err
	}
	defer func() { err = errors.Join(err, l.close()) }()
	if err := l.writeInputs(); err != nil {
		return report, "", err
	}
	report, err = bench.Run(ctx, workloads, l.contenders(), o)
	for _, s := range l.redis {
		redis = s.version
	}
	return report, redis, err
}

// source is a contender: a server for workloads, started at its first use.
type source struct {
	name, about string
	yardstick   bench.Yardstick
	workloads   []string
	// start returns the ids of the server's processes, and its generator, which sends so many
	// requests.
	start func(w bench.Workload) (pids []int, load loader, err error)
}

type loader func(ctx context.Context, requests int) (Round, error)

// Round is a round of a server. Unknown figures are 0.
type Round struct {
	PerSecond float64
	P50, P99  time.Duration
}

func (l *lab) contenders() (all []bench.Contender) {
	for _, s := range l.sources() {
		requests := map[string]int{} // by workload, for all of a round's time
		all = append(all, bench.Contender{
			Name: s.name, About: s.about, Yardstick: s.yardstick, Exact: true, Elsewhere: true, For: s.workloads,
			Measure: func(ctx context.Context, w bench.Workload, d time.Duration) (m bench.Measured, err error) {
				pids, load, err := s.start(w)
				if err != nil {
					return m, err
				}
				if requests[w.Name] == 0 {
					if requests[w.Name], err = warmUp(ctx, w, load, d); err != nil {
						return m, err
					}
				}
				return measure(ctx, pids, load, requests[w.Name])
			},
		})
	}
	return all
}

// Contenders returns the servers, none of which runs.
func Contenders() []bench.Contender { return new(lab).contenders() }

func measure(ctx context.Context, pids []int, load loader, requests int) (m bench.Measured, err error) {
	before, known := processorTime(pids)
	r, err := load(ctx, requests)
	if err != nil {
		return m, err
	}
	m.Pass = bench.Pass{Calls: int64(requests), Passed: int64(requests), Elapsed: time.Duration(float64(requests) / r.PerSecond * float64(time.Second))}
	if after, ok := processorTime(pids); ok && known {
		m.Pass.CPU = after - before
	}
	m.Latency = bench.Latency{P50: r.P50, P99: r.P99}
	return m, nil
}

// warmUp asks a server for a part of the time, and returns the requests for all of it.
func warmUp(ctx context.Context, w bench.Workload, load loader, d time.Duration) (requests int, err error) {
	if w.Name == EnvoyRate {
		return max(int(Rate*d.Seconds()), 1), nil
	}
	const part = 4
	for requests = connections * pipelined(w.Name); ; requests *= 4 {
		begun := time.Now()
		r, err := load(ctx, requests)
		if err != nil || time.Since(begun) > d/part {
			return max(int(r.PerSecond*d.Seconds()), requests), err
		}
	}
}

var throttle = []string{"CL.THROTTLE", "key:__rand_int__", "15", "30", "60"}

// sources returns all servers, each beside those of its workloads.
func (l *lab) sources() []source {
	redis := func(name, about string, y bench.Yardstick, on func(network string) (addr string, pid int, command []string, err error)) source {
		return source{name, about, y, redisWorkloads, func(w bench.Workload) ([]int, loader, error) {
			network := "tcp"
			if isOnSocket(w.Name) {
				network = "unix"
			}
			addr, pid, command, err := on(network)
			return []int{pid}, func(ctx context.Context, requests int) (Round, error) {
				return redisBenchmark(ctx, network, addr, pipelined(w.Name), w.Keys, requests, command)
			}, err
		}}
	}
	process := func(start func(string) (*server, error)) func(string) (string, int, []string, error) {
		return func(network string) (string, int, []string, error) {
			s, err := start(network)
			if err != nil {
				return "", 0, nil, err
			}
			return s.addr, s.PID(), throttle, nil
		}
	}
	stored := func(command func(*store) []string) func(string) (string, int, []string, error) {
		return func(network string) (string, int, []string, error) {
			s, err := l.store(network)
			if err != nil {
				return "", 0, nil, err
			}
			return s.Addr(), s.PID(), command(s), nil
		}
	}
	envoy := func(name, about string, y bench.Yardstick, on func(*services) (string, []int)) source {
		return source{name, about, y, envoyWorkloads, func(w bench.Workload) ([]int, loader, error) {
			s, err := l.services()
			if err != nil {
				return nil, nil, err
			}
			addr, pids := on(s)
			return pids, func(ctx context.Context, requests int) (Round, error) {
				if w.Name == EnvoyRate {
					return l.atRate(ctx, addr, requests)
				}
				return l.h2load(ctx, addr, requests, 0)
			}, nil
		}}
	}
	return []source{
		redis(GoFloor, "a Go server that answers the same bytes and decides nothing", bench.YardstickFloor, process(l.floorOn)),
		redis(Ping, "Redis, asked by PING", yardstickPing, stored(func(*store) []string { return []string{"PING"} })),
		redis(Rald, "rald, asked by CL.THROTTLE", "", process(l.raldOn)),
		redis(Script, "a Redis with a short script of the same limit", "", stored(func(s *store) []string {
			return []string{"EVALSHA", s.script, "1", "key:__rand_int__", "15", "30", "60", "1"}
		})),
		envoy(GRPCFloor, "a grpc-go server that answers the same bytes and decides nothing", bench.YardstickFloor, func(s *services) (string, []int) {
			return s.floor.addr, []int{s.floor.PID()}
		}),
		envoy(Rald, "rald, asked by ShouldRateLimit", "", func(s *services) (string, []int) { return s.rald.addr, []int{s.rald.PID()} }),
		envoy(Reference, "Envoy's rate limit service with its Redis", "", func(s *services) (string, []int) {
			return s.reference.addr, []int{s.reference.PID(), s.redis.PID()}
		}),
	}
}

// processorTime returns the processor time used by processes. ok is false without /proc.
func processorTime(pids []int) (sum time.Duration, ok bool) {
	const tick = time.Second / 100
	for _, pid := range pids {
		text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
		if err != nil {
			return 0, false
		}
		// The name in brackets may have spaces. Fields 14 and 15 are user and kernel time.
		_, rest, _ := strings.Cut(string(text), ") ")
		fields := strings.Fields(rest)
		if len(fields) < 13 {
			return 0, false
		}
		for _, field := range fields[11:13] {
			ticks, err := strconv.ParseInt(field, 10, 64)
			if err != nil {
				return 0, false
			}
			sum += time.Duration(ticks) * tick
		}
	}
	return sum, true
}
