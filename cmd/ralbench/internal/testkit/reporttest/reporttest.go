// Package reporttest has runs for the tests of ralbench's packages.
package reporttest

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/bench"
	"github.com/ral-limiter/ral/cmd/ralbench/fleetbench"
	"github.com/ral-limiter/ral/cmd/ralbench/report"
	"github.com/ral-limiter/ral/cmd/ralbench/servebench"
)

// Run returns a short run with memory, of two contenders beside Ral with 1, 2 and 4 processors. The
// working directory must be directly in cmd/ralbench.
func Run(t *testing.T) report.Document {
	t.Helper()
	return read(t, "report.json")
}

func Fleet(t *testing.T) report.Document {
	t.Helper()
	d := read(t, "fleet.json")
	require.NotNil(t, d.Fleet)
	return d
}

func read(t *testing.T, name string) report.Document {
	t.Helper()
	d, err := report.Read("../testdata/" + name)
	require.NoError(t, err)
	return d
}

// Made returns a run of a workload with the nanoseconds of a call by round. base, of the xsync map,
// may be nil.
func Made(base, ral []float64) report.Document {
	result := func(name string, yardstick bench.Yardstick, costs []float64) bench.Result {
		r := bench.Result{Contender: name, Yardstick: yardstick}
		for _, ns := range costs {
			took := time.Duration(1000 * ns)
			r.Rounds = append(r.Rounds, bench.Pass{Calls: 1000, CPU: took, Elapsed: took})
			p := time.Duration(ns)
			r.LatencyRounds = append(r.LatencyRounds, bench.Latency{Calls: 1, P50: p, P99: 2 * p, P999: 3 * p})
		}
		return r
	}
	w := bench.WorkloadReport{Name: "hot-pass", CPU: 2, Keys: 1, Results: []bench.Result{result("Ral", "", ral)}}
	if base != nil {
		w.Results = append(w.Results, result("xsync map", bench.YardstickMap, base))
	}
	return report.Document{Schema: report.Schema, Report: bench.Report{Workloads: []bench.WorkloadReport{w}}}
}

// Tables returns a run of fleet mode that fills each table. A share exceeds its limit.
func Tables() report.Document {
	limit := bench.Limit{Capacity: 1000, Count: 1000, Per: time.Second}
	return report.Document{Settings: report.Settings{CPUs: []int{2}}, Report: bench.Report{Workloads: []bench.WorkloadReport{{
		Name: "fleet-hot", CPU: 2, Results: []bench.Result{
			{Contender: fleetbench.RedisRate, NsPerOp: bench.Spread{Median: 12_000}},
			{Contender: fleetbench.Exact, NsPerOp: bench.Spread{Median: 7000}},
		},
	}}}, Fleet: &fleetbench.Report{
		Redis: "7.0.15",
		Work: []fleetbench.Work{
			{Workload: "fleet-hot", CPU: 2, Contender: fleetbench.RedisRate, Rounds: []float64{10_000}, RedisNsPerOp: bench.Spread{Median: 10_000}},
			{Workload: "fleet-hot", CPU: 2, Contender: fleetbench.Exact, Rounds: []float64{6000, 9000}, RedisNsPerOp: bench.Spread{Median: 7500, Min: 6000, Max: 9000}, ByRedis: 999, Neither: 1},
			{Workload: "fleet-keys", CPU: 2, Contender: fleetbench.Leased, ByLease: 5},
		},
		Memory: []fleetbench.Memory{{Contender: fleetbench.Exact, Keys: 10_000, Name: "ral:x", Usage: 88, Used: 154.2}},
		Shares: []fleetbench.Share{
			{Mode: fleetbench.ModeLeased, Load: "even", Limit: limit, Calls: 4000, Admitted: 1900, Allowed: 2000, Share: 0.95, Aim: 0.95, Each: []int64{900, 1000}},
			{Mode: fleetbench.ModeExact, Load: "even", Limit: limit, Calls: 4000, Admitted: 2001, Allowed: 2000, Share: 1.0024, Aim: 0.95, Each: []int64{1, 2000}, Over: 1, Neither: 7},
		},
		Goals: []fleetbench.Goal{
			{Of: fleetbench.Exact, What: "speed", Where: "fleet-hot", Value: bench.Spread{Median: 2.5, Min: 2, Max: 3}, Goal: 2, Least: true, Reached: true},
			{Of: fleetbench.Exact, What: "memory", Where: "10 keys", Value: bench.Spread{Median: 1, Min: 1, Max: 1}, Goal: 1},
			{Of: fleetbench.Leased, What: "cost", Where: "fleet-hot", Value: bench.Spread{Median: 1, Min: 1, Max: 1}, Goal: 2, Reached: true},
			{Of: fleetbench.Leased, What: "share", Where: "even", Value: bench.Spread{Median: 0.9512, Min: 0.9512, Max: 0.9512}, Goal: 0.95, Least: true, Percent: true, Reached: true},
		},
	}}
}

// Servers returns a run of servers, with a missed goal.
func Servers() report.Document {
	return report.Document{Settings: report.Settings{CPUs: []int{2}, Serve: true}, Serve: &servebench.Report{
		Redis: "7.0.15",
		Loads: []servebench.Load{{
			Name: servebench.TCP, About: "one command at a time", Servers: []servebench.Server{
				{Name: servebench.Rald, Rounds: []servebench.Round{
					{PerSecond: 60_000, P50: 500_000, P99: 900_000, CPU: 12_000}, {PerSecond: 80_000, P50: 500_000, P99: 1_100_000, CPU: 14_000},
				}},
				{Name: servebench.Script, Rounds: []servebench.Round{{PerSecond: 35_000, P50: 800_000}}},
			},
		}},
		Goals: []fleetbench.Goal{{
			Of: servebench.Rald, What: "requests a second, times those of " + servebench.Script, Where: servebench.TCP,
			Value: bench.Spread{Median: 1.9, Min: 1.8, Max: 2}, Goal: 2, Least: true,
		}},
	}}
}

// Calls returns different calls: Choke for 50 ns, Peek for 75, Wait for 100, and a peer's for 80.
func Calls() bench.WorkloadReport {
	result := func(name, like string, ns float64) bench.Result {
		r := bench.Result{Contender: name, Like: like, About: "call", Apart: true, Exact: true, Promise: bench.TokenBucket, Audit: &bench.Audit{Calls: 3, Admitted: 3, Allowed: 3, Possible: 3}}
		for range 3 {
			took := time.Duration(1000 * ns)
			r.Rounds = append(r.Rounds, bench.Pass{Calls: 1000, Passed: 1000, CPU: took, Elapsed: took})
		}
		r.NsPerOp, r.OpsPerSecond, r.CPUs = bench.SpreadOf([]float64{ns}), bench.SpreadOf([]float64{1e9 / ns}), bench.SpreadOf([]float64{1})
		if name != "Ral" {
			of := bench.SpreadOf([]float64{ns / 50})
			r.OfBase = &of
		}
		return r
	}
	return bench.WorkloadReport{
		Name: bench.VerbsWorkload, About: "each verb", Why: "What calls cost.", Base: "Ral", CPU: 2, Keys: 64, Callers: 1, Rounds: 3,
		Limit: bench.Limit{Capacity: 10, Count: 1, Per: time.Second},
		Results: []bench.Result{
			result("Ral", "", 50), result("Ral Peek", "", 75), result("Ral Wait", "", 100), result("x/time Wait", "Ral Wait", 80),
		},
	}
}
