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
	"github.com/ral-limiter/ral/cmd/ralbench/fleetbench"
)

type Options struct {
	Workloads []bench.Workload
	// Duration is the time for which a server is asked in each round.
	Duration time.Duration
	Rounds   int
	// Progress and Finished are called as in bench.Options.
	Progress func(bench.Progress)
	Finished func(bench.WorkloadReport)
}

type Report struct {
	Redis string            `json:"redis,omitempty"` // its version
	Loads []Load            `json:"loads"`
	Goals []fleetbench.Goal `json:"goals,omitempty"`

	Interrupted bool `json:"-"` // by the end of the context
}

// Load is a workload with the servers that answered it.
type Load struct {
	Name    string   `json:"name"`
	About   string   `json:"about"`
	Servers []Server `json:"servers"`
}

// Server holds the rounds of a server under a load.
type Server struct {
	Name   string  `json:"name"`
	Rounds []Round `json:"rounds"`
}

// Round is a round of a server. Unknown figures are 0.
type Round struct {
	PerSecond float64       `json:"per_second"`
	P50       time.Duration `json:"p50_ns,omitempty"`
	P99       time.Duration `json:"p99_ns,omitempty"`
	// CPU is the processor time by request of the server and the Redis behind it.
	CPU time.Duration `json:"cpu_ns,omitempty"`
}

// Median returns the spread of a figure over the rounds.
func (s Server) Median(figure func(Round) float64) bench.Spread {
	var values []float64
	for _, r := range s.Rounds {
		values = append(values, figure(r))
	}
	return bench.SpreadOf(values)
}

type contender struct {
	name string
	pids []int // of its processes
	// load sends so many requests by the generator.
	load func(ctx context.Context, requests int) (Round, error)
}

// Run measures until done or the context ends, which is no error. With an error, the report holds
// the earlier measurements.
func Run(ctx context.Context, o Options) (report Report, err error) {
	defer func() {
		if ctx.Err() != nil {
			report.Interrupted, err = true, nil
		}
		report.Goals = goals(report)
	}()
	dir, err := os.MkdirTemp("", "ralbench-serve-")
	if err != nil {
		return report, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	r := run{Options: o, total: Estimate(o)}
	r.tell(bench.Progress{Doing: "building the servers"})
	built, err := build(ctx, dir, o.Workloads)
	if err != nil {
		return report, err
	}
	r.lab = lab{programs: built, dir: dir, redis: map[string]*store{}, ralds: map[string]*server{}, floors: map[string]*server{}}
	defer func() { err = errors.Join(err, r.lab.close()) }()
	if err := r.lab.writeInputs(); err != nil {
		return report, err
	}
	for _, w := range o.Workloads {
		load, err := r.measure(ctx, w)
		if len(load.Servers) > 0 {
			report.Loads = append(report.Loads, load)
		}
		if err != nil {
			return report, fmt.Errorf("%s: %w", w.Name, err)
		}
		for _, s := range r.lab.redis {
			report.Redis = s.version
		}
		if o.Finished != nil {
			o.Finished(bench.WorkloadReport{Name: w.Name})
		}
	}
	r.tell(bench.Progress{Doing: "done", Done: r.total})
	return report, nil
}

// Estimate returns the rough time of a run, without building the servers.
func Estimate(o Options) (total time.Duration) {
	for range o.Workloads {
		total += 4 * time.Duration(o.Rounds+1) * o.Duration
	}
	return total
}

type run struct {
	Options
	lab         lab
	done, total time.Duration
}

func (r *run) tell(p bench.Progress) {
	if p.Total = r.total; r.Progress != nil {
		r.Progress(p)
	}
}

// measure measures a workload. Servers take turns in each round, in another order each time.
func (r *run) measure(ctx context.Context, w bench.Workload) (load Load, err error) {
	load = Load{Name: w.Name, About: w.About}
	contenders, err := r.lab.contenders(w)
	if err != nil {
		return load, err
	}
	requests := make([]int, len(contenders))
	for i, c := range contenders {
		if requests[i], err = r.warmUp(ctx, w, c); err != nil {
			return load, fmt.Errorf("%s: %w", c.name, err)
		}
		load.Servers = append(load.Servers, Server{Name: c.name})
	}
	for round := range r.Rounds {
		for turn := range contenders {
			i := (round + turn) % len(contenders)
			c := contenders[i]
			r.step(w, c, fmt.Sprintf("round %d of %d", round+1, r.Rounds))
			before, known := processorTime(c.pids)
			one, err := c.load(ctx, requests[i])
			if err != nil {
				return load, fmt.Errorf("%s: %w", c.name, err)
			}
			if after, ok := processorTime(c.pids); ok && known {
				one.CPU = (after - before) / time.Duration(requests[i])
			}
			load.Servers[i].Rounds = append(load.Servers[i].Rounds, one)
		}
	}
	return load, nil
}

// warmUp asks a server for a part of the time, and returns the requests for all of it.
func (r *run) warmUp(ctx context.Context, w bench.Workload, c contender) (requests int, err error) {
	if w.Name == EnvoyRate {
		return max(int(rate*r.Duration.Seconds()), 1), nil
	}
	const part = 4
	requests = connections * pipelined(w.Name)
	for {
		r.step(w, c, "warming up")
		r.done -= r.Duration / 2 // it is a short step
		begun := time.Now()
		one, err := c.load(ctx, requests)
		if err != nil {
			return 0, err
		}
		if wanted := max(int(one.PerSecond*r.Duration.Seconds()), requests); time.Since(begun) > r.Duration/part {
			return wanted, nil
		}
		requests *= 4
	}
}

func (r *run) step(w bench.Workload, c contender, doing string) {
	r.tell(bench.Progress{Workload: w.Name, Contender: c.name, Doing: doing, Done: min(r.done, r.total)})
	r.done += r.Duration
}

var throttle = []string{"CL.THROTTLE", "key:__rand_int__", "15", "30", "60"}

// contenders starts the servers of a workload.
func (l *lab) contenders(w bench.Workload) ([]contender, error) {
	if isEnvoy(w.Name) {
		return l.envoyContenders(w)
	}
	network := "tcp"
	if isOnSocket(w.Name) {
		network = "unix"
	}
	rald, err := l.raldOn(network)
	if err != nil {
		return nil, err
	}
	floor, err := l.floorOn(network)
	if err != nil {
		return nil, err
	}
	redis, err := l.store(network)
	if err != nil {
		return nil, err
	}
	of := func(name, addr string, pid int, command ...string) contender {
		return contender{name, []int{pid}, func(ctx context.Context, requests int) (Round, error) {
			return redisBenchmark(ctx, network, addr, pipelined(w.Name), w.Keys, requests, command)
		}}
	}
	return []contender{
		of(Rald, rald.addr, rald.PID(), throttle...),
		of(GoFloor, floor.addr, floor.PID(), throttle...),
		of(Script, redis.Addr(), redis.PID(), "EVALSHA", redis.script, "1", "key:__rand_int__", "15", "30", "60", "1"),
		of(Ping, redis.Addr(), redis.PID(), "PING"),
	}, nil
}

func (l *lab) envoyContenders(w bench.Workload) ([]contender, error) {
	s, err := l.services()
	if err != nil {
		return nil, err
	}
	of := func(name, addr string, pids ...int) contender {
		return contender{name, pids, func(ctx context.Context, requests int) (Round, error) {
			if w.Name == EnvoyRate {
				return l.atRate(ctx, addr, requests)
			}
			return l.h2load(ctx, addr, requests, 0)
		}}
	}
	return []contender{
		of(Rald, s.rald.addr, s.rald.PID()),
		of(GRPCFloor, s.floor.addr, s.floor.PID()),
		of(Reference, s.reference.addr, s.reference.PID(), s.redis.PID()),
	}, nil
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
