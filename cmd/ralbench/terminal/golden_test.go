package terminal

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/ral-limiter/ral/bench"
	"github.com/ral-limiter/ral/cmd/ralbench/internal/reporttest"
	"github.com/ral-limiter/ral/cmd/ralbench/report"
	"github.com/ral-limiter/ral/internal/testkit/golden"
)

// testdata/shown.txt has all kinds of tables, lines and verdicts: read its changes.
func TestReportsAsShown(t *testing.T) {
	run := reporttest.Run(t)
	run.Workloads = append(run.Workloads[5:8], run.Workloads[len(run.Workloads)-1], reporttest.Calls())
	interrupted := reporttest.Made(nil, []float64{1, 2})
	interrupted.Interrupted, interrupted.Workloads[0].Rounds = true, 3
	watched := odd()
	watched.Watched, watched.Workloads = true, watched.Workloads[1:]
	for i := range watched.Workloads[0].Results {
		watched.Workloads[0].Results[i].Disturbed = 0
	}
	var shown strings.Builder
	for _, c := range []struct {
		about string
		d     report.Document
	}{
		{"a run with calls", run},
		{"fleet mode", reporttest.Tables()},
		{"servers", reporttest.Servers()},
		{"broken promises, and a machine that does not tell of its load", odd()},
		{"passes were disturbed, and repeated", watched},
		{"an interrupted run", interrupted},
		{"a budget too short for anything", report.Document{
			Settings: report.Settings{Rounds: 5, Budget: time.Millisecond},
			Report:   bench.Report{LeftOut: []bench.LeftOut{{Workload: "zipf", CPU: 2, Contenders: []string{"Ral"}}}},
		}},
	} {
		fmt.Fprintf(&shown, "=== %s\n\n%s", c.about, written(t, c.d, 150))
	}
	golden.Equal(t, "testdata/shown.txt", shown.String())
}

// odd returns a run with what is rare.
func odd() report.Document {
	over := bench.Audit{Calls: 12345, Admitted: 1007, Allowed: 1005, BucketAllowed: 1005, Possible: 1004, Over: 2, Binds: true, Limiters: 1, Own: &bench.Counts{Overadmitted: 3}}
	latency := &bench.Latency{Calls: 9, P50: 47, P99: 1500, P999: 2 * time.Millisecond, Worst: 3 * time.Second}
	one := bench.Spread{Median: 1, Min: 1, Max: 1}
	silent := func(name string, evicted int64, binds bool) bench.Result {
		return bench.Result{Contender: name, Audit: &bench.Audit{
			Calls: 5, Admitted: 5, Allowed: 5, BucketAllowed: 5, Possible: 5, Binds: binds, Own: &bench.Counts{Evicted: evicted},
		}}
	}
	kept := func(name string, m bench.Memory) bench.Result {
		m.Keys, m.KeyBytes = 2000, 40_000
		return bench.Result{Contender: name, Exact: true, Note: "note of " + name, Rounds: make([]bench.Pass, 3), Disturbed: 1, Repeated: 2, Memory: &m}
	}
	return report.Document{Settings: report.Settings{Rounds: 2}, Report: bench.Report{Took: time.Second, Workloads: []bench.WorkloadReport{{
		Name: "some", About: "thing", Keys: 2000, Callers: 1, Rounds: 2,
		Limit: bench.Limit{Capacity: 1000, Count: 1, Per: time.Hour},
		Results: []bench.Result{
			{Contender: "floor", Yardstick: bench.YardstickFloor, Rounds: make([]bench.Pass, 2), OfFloor: &one},
			{Contender: "xsync map", Yardstick: bench.YardstickMap, Rounds: make([]bench.Pass, 2), OfMap: &one},
			{Contender: "Ral", Promise: bench.LeakyBucket, Rounds: make([]bench.Pass, 2), Latency: latency, Known: latency, Audit: &over,
				OpsPerSecond: bench.Spread{Median: 12.34e6},
				NsPerOp:      bench.Spread{Median: 81, Min: 81, Max: 162}, OfFloor: &bench.Spread{Median: 2.5}, OfMap: &bench.Spread{Median: 1.25}},
			silent("passes all", 0, false), silent("binds", 0, true), silent("evicts", 3, false), silent("passes all, too", 0, false),
		},
	}, {
		Name: "memory", Rounds: 3, Results: []bench.Result{
			kept("keeps", bench.Memory{BytesPerKey: 123.4, GC: 12 * time.Millisecond, FullHeap: 246_800, IdleHeap: 246_800}),
			kept("idles", bench.Memory{BytesPerKey: 150, GC: time.Millisecond, FullHeap: 300_000, IdleHeap: 30_000, Idle: time.Second}),
		},
	}}}}
}
