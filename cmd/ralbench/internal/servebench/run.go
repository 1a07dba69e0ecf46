package servebench

import (
	"context"
	"time"

	"github.com/ral-limiter/ral/bench"
	"github.com/ral-limiter/ral/cmd/ralbench/internal/lab"
)

// Run builds the servers and measures them: see [lab.Run].
func Run(ctx context.Context, workloads []bench.Workload, options bench.Options) (bench.Report, string, error) {
	return lab.Run(ctx, workloads, options, func(lab *lab.Lab) ([]bench.Contender, error) {
		err := build(ctx, lab.Dir, workloads)
		if err == nil {
			err = writeInputs(lab.Dir)
		}
		return (&servers{lab, map[string]*server{}}).contenders(), err
	})
}

// Round is a round of a server. Unknown figures are 0.
type Round struct {
	PerSecond float64
	P50, P99  time.Duration
}

// Contenders returns the servers, and starts none of them.
func Contenders() []bench.Contender { return new(servers).contenders() }

func (l *servers) contenders() (all []bench.Contender) {
	for _, source := range sources {
		requests := map[string]int{} // by workload, for all of a round's time
		all = append(all, bench.Contender{
			Name: source.name, About: source.about, Yardstick: source.yardstick, Exact: true, Elsewhere: true, For: source.workloads,
			Measure: func(ctx context.Context, workload bench.Workload, duration time.Duration) (measured bench.Measured, err error) {
				server, err := l.get(source, kindOf(workload.Name).network)
				if err == nil && requests[workload.Name] == 0 {
					requests[workload.Name], err = l.warmUp(ctx, workload, server, duration)
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
func (l *servers) load(ctx context.Context, workload bench.Workload, server *server, requests int) (Round, error) {
	switch {
	case workload.Name == EnvoyRate:
		return l.atRate(ctx, server.addr, requests)
	case isEnvoy(workload.Name):
		return l.h2load(ctx, server.addr, requests, 0)
	}
	kind := kindOf(workload.Name)
	return redisBenchmark(ctx, kind.network, server.addr, kind.pipeline, workload.Keys, requests, server.command)
}

func (l *servers) measure(ctx context.Context, w bench.Workload, server *server, requests int) (measured bench.Measured, err error) {
	before, known := lab.ProcessorTime(server.pids)
	round, err := l.load(ctx, w, server, requests)
	if err != nil {
		return measured, err
	}
	measured.Pass = bench.Pass{Calls: int64(requests), Passed: int64(requests), Elapsed: time.Duration(float64(requests) / round.PerSecond * float64(time.Second))}
	if after, ok := lab.ProcessorTime(server.pids); ok && known {
		measured.Pass.CPU = after - before
	}
	measured.Latency = bench.Latency{P50: round.P50, P99: round.P99}
	return measured, nil
}

// warmUp asks a server for a part of the time, and returns the requests for all of it.
func (l *servers) warmUp(ctx context.Context, workload bench.Workload, server *server, duration time.Duration) (requests int, err error) {
	if workload.Name == EnvoyRate {
		return max(int(Rate*duration.Seconds()), 1), nil
	}
	const part = 4
	for requests = connections * kindOf(workload.Name).pipeline; ; requests *= 4 {
		begun := time.Now()
		round, err := l.load(ctx, workload, server, requests)
		if err != nil || time.Since(begun) > duration/part {
			return max(int(round.PerSecond*duration.Seconds()), requests), err
		}
	}
}

var throttle = []string{"CL.THROTTLE", "key:__rand_int__", "15", "30", "60"}
