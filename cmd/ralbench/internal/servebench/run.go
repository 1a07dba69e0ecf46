package servebench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/ral-limiter/ral/bench"
)

// Run builds the servers and measures them until done or the context ends, which is no error. With
// an error, the report holds the measurements before it. redis is the version of the Redis.
func Run(ctx context.Context, workloads []bench.Workload, options bench.Options) (report bench.Report, redis string, err error) {
	dir, err := os.MkdirTemp("", "ralbench")
	if err != nil {
		return report, "", err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	l := &lab{dir: dir, running: map[string]*server{}}
	if err = build(ctx, dir, workloads); err != nil {
		if ctx.Err() != nil {
			return bench.Report{Interrupted: true}, "", nil
		}
		return report, "", err
	}
	defer func() { err = errors.Join(err, l.close()) }()
	if err := l.writeInputs(); err != nil {
		return report, "", err
	}
	report, err = bench.Run(ctx, workloads, l.contenders(), options)
	return report, l.redis, err
}

// Round is a round of a server. Unknown figures are 0.
type Round struct {
	PerSecond float64
	P50, P99  time.Duration
}

// Contenders returns the servers, and starts none of them.
func Contenders() []bench.Contender { return new(lab).contenders() }

func (l *lab) contenders() (all []bench.Contender) {
	for _, source := range sources {
		requests := map[string]int{} // by workload, for all of a round's time
		all = append(all, bench.Contender{
			Name: source.name, About: source.about, Yardstick: source.yardstick, Exact: true, Elsewhere: true, For: source.workloads,
			Measure: func(ctx context.Context, workload bench.Workload, d time.Duration) (measured bench.Measured, err error) {
				server, err := l.get(source, kindOf(workload.Name).network)
				if err == nil && requests[workload.Name] == 0 {
					requests[workload.Name], err = l.warmUp(ctx, workload, server, d)
				}
				if err != nil {
					return measured, err
				}
				return l.measure(ctx, workload, server, requests[workload.Name])
			},
		})
	}
	return all
}

// load sends so many requests to a server by the workload's generator.
func (l *lab) load(ctx context.Context, workload bench.Workload, server *server, requests int) (Round, error) {
	switch {
	case workload.Name == EnvoyRate:
		return l.atRate(ctx, server.addr, requests)
	case isEnvoy(workload.Name):
		return l.h2load(ctx, server.addr, requests, 0)
	}
	k := kindOf(workload.Name)
	return redisBenchmark(ctx, k.network, server.addr, k.pipeline, workload.Keys, requests, server.command)
}

func (l *lab) measure(ctx context.Context, w bench.Workload, server *server, requests int) (measured bench.Measured, err error) {
	before, known := processorTime(server.pids)
	round, err := l.load(ctx, w, server, requests)
	if err != nil {
		return measured, err
	}
	measured.Pass = bench.Pass{Calls: int64(requests), Passed: int64(requests), Elapsed: time.Duration(float64(requests) / round.PerSecond * float64(time.Second))}
	if after, ok := processorTime(server.pids); ok && known {
		measured.Pass.CPU = after - before
	}
	measured.Latency = bench.Latency{P50: round.P50, P99: round.P99}
	return measured, nil
}

// warmUp asks a server for a part of the time, and returns the requests for all of it.
func (l *lab) warmUp(ctx context.Context, workload bench.Workload, server *server, d time.Duration) (requests int, err error) {
	if workload.Name == EnvoyRate {
		return max(int(Rate*d.Seconds()), 1), nil
	}
	const part = 4
	for requests = connections * kindOf(workload.Name).pipeline; ; requests *= 4 {
		begun := time.Now()
		r, err := l.load(ctx, workload, server, requests)
		if err != nil || time.Since(begun) > d/part {
			return max(int(r.PerSecond*d.Seconds()), requests), err
		}
	}
}

var throttle = []string{"CL.THROTTLE", "key:__rand_int__", "15", "30", "60"}

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
		var user, kernel time.Duration
		if _, err := fmt.Sscan(strings.Join(fields[11:13], " "), &user, &kernel); err != nil {
			return 0, false
		}
		sum += (user + kernel) * tick
	}
	return sum, true
}
