// Package reporttest has runs for the tests of ralbench's packages.
package reporttest

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/bench"
	"github.com/ral-limiter/ral/cmd/ralbench/internal/fleetbench"
	"github.com/ral-limiter/ral/cmd/ralbench/internal/report"
	"github.com/ral-limiter/ral/cmd/ralbench/internal/servebench"
)

// Run returns a short run with memory, of two contenders beside Ral with 1, 2 and 4 processors. The
// working directory must be directly in cmd/ralbench.
func Run(t *testing.T) report.Document {
	t.Helper()
	return read(t, "report.json")
}

func Fleet(t *testing.T) report.Document {
	t.Helper()
	return read(t, "fleet.json")
}

func read(t *testing.T, name string) report.Document {
	t.Helper()
	document, err := report.Read("../../testdata/" + name)
	require.NoError(t, err)
	return document
}

// Made returns a run of a workload with the nanoseconds of a call by round. base, of the xsync map,
// may be nil.
func Made(base, ral []float64) report.Document {
	result := func(name string, yardstick bench.Yardstick, costs []float64) bench.Result {
		result := bench.Result{Contender: bench.Contender{Name: name, Yardstick: yardstick}}
		for _, ns := range costs {
			took := time.Duration(1000 * ns)
			result.Rounds = append(result.Rounds, bench.Pass{Calls: 1000, CPU: took, Elapsed: took})
			duration := time.Duration(ns)
			result.LatencyRounds = append(result.LatencyRounds, bench.Latency{Calls: 1, P50: duration, P99: 2 * duration, P999: 3 * duration})
		}
		return result
	}
	workloadReport := bench.WorkloadReport{Workload: bench.Workload{Name: "hot-pass", Keys: 1}, CPU: 2, Results: []bench.Result{result("Ral", "", ral)}}
	if base != nil {
		workloadReport.Results = append(workloadReport.Results, result("xsync map", bench.YardstickMap, base))
	}
	return report.Document{Schema: report.Schema, Report: bench.Report{Workloads: []bench.WorkloadReport{workloadReport}}}
}

// Tables returns a run of fleet mode with each of its figures. A share exceeds its limit.
func Tables() report.Document {
	limit := bench.Limit{Capacity: 1000, Count: 1000, Per: time.Second}
	speed := bench.WorkloadReport{Workload: bench.Workload{Name: fleetbench.Hot, About: "64 callers on one hot key", Keys: 1, Callers: 64, Rounds: 2, Limit: limit}, CPU: 2, Results: []bench.Result{
		{Contender: bench.Contender{Name: fleetbench.RedisRate, Exact: true, Elsewhere: true}, Rounds: passes(1000, 12_000, 10_000)},
		{Contender: bench.Contender{Name: fleetbench.Exact, Exact: true, Elsewhere: true}, Rounds: passes(2500, 7000, 6000), Audit: &bench.Audit{
			Calls: 5000, Admitted: 5000, Allowed: 5000, Possible: 5000, Limiters: 1, Own: &bench.Counts{ByRedis: 4999, Unavailable: 1},
		}},
		{Contender: bench.Contender{Name: fleetbench.Leased, Exact: true, Elsewhere: true}, Rounds: passes(99_000, 100, 3)},
	}}
	memory := bench.WorkloadReport{Workload: bench.Workload{Name: fleetbench.MemoryInRedis, About: "bytes a key", Keys: 10_000, Callers: 64, Rounds: 1, Limit: limit}, CPU: 2}
	for name, used := range map[string]float64{fleetbench.RedisRate: 154.2, fleetbench.Exact: 154.2} {
		memory.Results = append(memory.Results, bench.Result{
			Contender: bench.Contender{Name: name, Exact: true, Elsewhere: true}, Outside: true, Apart: true, Rounds: make([]bench.Pass, 1),
			Memory: &bench.Memory{Keys: 10_000, BytesPerKey: used, Usage: used / 2, IdleUnknown: true},
		})
	}
	slices.SortFunc(memory.Results, func(a, b bench.Result) int { return strings.Compare(b.Name, a.Name) })
	shares := bench.WorkloadReport{Workload: bench.Workload{Name: fleetbench.Shares("even")[0], About: "usable share: evenly", Keys: 1, Callers: 4, Rounds: 1, Limit: limit}, CPU: 2}
	for name, audit := range map[string]bench.Audit{
		fleetbench.Exact:  {Calls: 4000, Admitted: 2001, Allowed: 2000, Possible: 2000, Binds: true, Limiters: 4, Each: []int64{1, 2000, 0, 0}, Over: 1, Own: &bench.Counts{Unavailable: 7}},
		fleetbench.Leased: {Calls: 4000, Admitted: 1900, Allowed: 2000, Possible: 2000, Binds: true, Limiters: 4, Each: []int64{900, 1000, 0, 0}},
	} {
		audit.BucketAllowed = audit.Allowed
		shares.Results = append(shares.Results, bench.Result{
			Contender: bench.Contender{Name: name, Exact: true, Elsewhere: true}, Outside: true, Apart: true, Rounds: []bench.Pass{{Calls: 4000, Passed: audit.Admitted}}, Audit: &audit,
			Share: float64(audit.Admitted) / float64(audit.Allowed),
		})
	}
	slices.SortFunc(shares.Results, func(a, b bench.Result) int { return strings.Compare(a.Name, b.Name) })
	return made(report.Settings{Scale: 1, CPUs: []int{2}, Fleet: true}, speed, memory, shares)
}

// Servers returns a run of servers, with a missed goal.
func Servers() report.Document {
	server := func(name string, yardstick bench.Yardstick, rounds []bench.Pass, latencies ...bench.Latency) bench.Result {
		return bench.Result{Contender: bench.Contender{Name: name, Yardstick: yardstick, Exact: true, Elsewhere: true}, Outside: true, Apart: true, Rounds: rounds, LatencyRounds: latencies}
	}
	return made(report.Settings{Scale: 1, CPUs: []int{2}, Serve: true}, bench.WorkloadReport{
		Workload: bench.Workload{
			Name: servebench.TCP, About: "one command at a time", Base: servebench.Rald, Keys: 100_000, Callers: 50, Rounds: 2,
			Limit: bench.Limit{Capacity: 16, Count: 30, Per: time.Minute},
		},
		CPU: 2,
		Results: []bench.Result{
			server(servebench.GoFloor, bench.YardstickFloor, passes(80_000, 10_000, 0)),
			server(servebench.Rald, "", passes(60_000, 12_000, 0), bench.Latency{P50: 500_000, P99: 900_000}, bench.Latency{P50: 500_000, P99: 1_100_000}),
			server(servebench.Script, "", passes(35_000, 20_000, 0)),
		},
	})
}

// passes returns two rounds of so many calls in a second, each with these nanoseconds of processor
// time here and in Redis; the second takes half as much more there.
func passes(calls, ns, redis int64) (rounds []bench.Pass) {
	for i := range int64(2) {
		rounds = append(rounds, bench.Pass{
			Calls: calls, Passed: calls, Elapsed: time.Second, CPU: time.Duration(calls * ns), Behind: time.Duration(calls * redis * (2 + i) / 2),
		})
	}
	return rounds
}

func made(settings report.Settings, workloads ...bench.WorkloadReport) report.Document {
	for i := range workloads {
		workloads[i].Summarize()
	}
	return report.Document{Schema: report.Schema, Redis: "7.0.15", Settings: settings, Report: bench.Report{Workloads: workloads}}
}

// Calls returns different calls: Choke for 50 ns, Peek for 75, Wait for 100, and a peer's for 80.
func Calls() bench.WorkloadReport {
	result := func(name, like string, ns float64) bench.Result {
		result := bench.Result{Contender: bench.Contender{Name: name, Like: like, About: "call", Exact: true, Promise: bench.TokenBucket}, Apart: true, Audit: &bench.Audit{Calls: 3, Admitted: 3, Allowed: 3, Possible: 3}}
		for range 3 {
			took := time.Duration(1000 * ns)
			result.Rounds = append(result.Rounds, bench.Pass{Calls: 1000, Passed: 1000, CPU: took, Elapsed: took})
		}
		result.NsPerOp, result.OpsPerSecond = bench.SpreadOf([]float64{ns}), bench.SpreadOf([]float64{1e9 / ns})
		if name != "Ral" {
			ratio := bench.SpreadOf([]float64{ns / 50})
			result.OfBase = &ratio
		}
		return result
	}
	return bench.WorkloadReport{
		Workload: bench.Workload{
			Name: bench.VerbsWorkload, About: "each verb", Why: "What calls cost.", Base: "Ral", Keys: 64, Callers: 1, Rounds: 3,
			Limit: bench.Limit{Capacity: 10, Count: 1, Per: time.Second},
		},
		CPU: 2,
		Results: []bench.Result{
			result("Ral", "", 50), result("Ral Peek", "", 75), result("Ral Wait", "", 100), result("x/time Wait", "Ral Wait", 80),
		},
	}
}
