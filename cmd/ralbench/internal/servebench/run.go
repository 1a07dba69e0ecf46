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
func Run(ctx context.Context, workloads []bench.Workload, o bench.Options) (report bench.Report, redis string, err error) {
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
	report, err = bench.Run(ctx, workloads, l.contenders(), o)
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
	for _, s := range sources {
		requests := map[string]int{} // by workload, for all of a round's time
		all = append(all, bench.Contender{
			Name: s.name, About: s.about, Yardstick: s.yardstick, Exact: true, Elsewhere: true, For: s.workloads,
			Measure: func(ctx context.Context, w bench.Workload, d time.Duration) (m bench.Measured, err error) {
				server, err := l.get(s, kindOf(w.Name).network)
				if err == nil && requests[w.Name] == 0 {
					requests[w.Name], err = l.warmUp(ctx, w, server, d)
				}
				if err != nil {
					return m, err
				}
				return l.measure(ctx, w, server, requests[w.Name])
			},
		})
	}
	return all
}

// load sends so many requests to a server by the workload's generator.
func (l *lab) load(ctx context.Context, w bench.Workload, s *server, requests int) (Round, error) {
	switch {
	case w.Name == EnvoyRate:
		return l.atRate(ctx, s.addr, requests)
	case isEnvoy(w.Name):
		return l.h2load(ctx, s.addr, requests, 0)
	}
	k := kindOf(w.Name)
	return redisBenchmark(ctx, k.network, s.addr, k.pipeline, w.Keys, requests, s.command)
}

func (l *lab) measure(ctx context.Context, w bench.Workload, s *server, requests int) (m bench.Measured, err error) {
	before, known := processorTime(s.pids)
	r, err := l.load(ctx, w, s, requests)
	if err != nil {
		return m, err
	}
	m.Pass = bench.Pass{Calls: int64(requests), Passed: int64(requests), Elapsed: time.Duration(float64(requests) / r.PerSecond * float64(time.Second))}
	if after, ok := processorTime(s.pids); ok && known {
		m.Pass.CPU = after - before
	}
	m.Latency = bench.Latency{P50: r.P50, P99: r.P99}
	return m, nil
}

// warmUp asks a server for a part of the time, and returns the requests for all of it.
func (l *lab) warmUp(ctx context.Context, w bench.Workload, s *server, d time.Duration) (requests int, err error) {
	if w.Name == EnvoyRate {
		return max(int(Rate*d.Seconds()), 1), nil
	}
	const part = 4
	for requests = connections * kindOf(w.Name).pipeline; ; requests *= 4 {
		begun := time.Now()
		r, err := l.load(ctx, w, s, requests)
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
