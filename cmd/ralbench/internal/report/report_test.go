package report

import (
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/bench"
)

func TestAuditLineTellsTheKeptPromise(t *testing.T) {
	windows := bench.Audit{Promise: bench.FixedWindow, Calls: 9000, Admitted: 5000, Allowed: 5000, BucketAllowed: 4902, Possible: 5000, Binds: true}
	over := windows
	over.Admitted, over.Over, over.OverPasses, over.Passes = 5001, 1, 3, 12
	for _, c := range []struct {
		bench.Audit
		want, not string
	}{
		{bench.Audit{Calls: 5, Admitted: 5, Allowed: 5, BucketAllowed: 5}, "cannot bind", "kept"},
		{bench.Audit{Calls: 5, Admitted: 4, Allowed: 4, BucketAllowed: 4, Binds: true}, "promise kept", "bind"},
		{bench.Audit{Limiters: 3}, "3 limiters", "ONLY"},
		{bench.Audit{Calls: 1000, Admitted: 450, Allowed: 510, BucketAllowed: 510, Possible: 500, Binds: true},
			"510 allowed, 500 possible: promise kept, but ONLY 90.0% of what was possible", "bucket"},
		{bench.Audit{Admitted: 998, Possible: 1000}, "998", "ONLY"}, // the instants of the calls may account for that
		{windows, "fixed window: admitted 5,000 of 9,000 calls; at most 5,000 allowed, 5,000 possible: promise kept; " +
			"98 more than a bucket would admit, around the ends of windows", "ONLY"},
		{over, ": 1 TOO MANY, 3 of 12 passes", "bucket"},
	} {
		assert.Contains(t, AuditLine(c.Audit), c.want)
		assert.NotContains(t, AuditLine(c.Audit), c.not)
	}
}

func TestTheBestExactLimiterIsMarked(t *testing.T) {
	result := func(name string, ops float64) bench.Result {
		return bench.Result{Contender: bench.Contender{Name: name, Exact: true}, OpsPerSecond: bench.Spread{Median: ops}, Audit: &bench.Audit{}}
	}
	floor, inexact, over, elsewhere := result("floor", 9e6), result("inexact", 8e6), result("over", 7e6), result("elsewhere", 6.5e6)
	floor.Yardstick, inexact.Exact, over.Audit.Over, elsewhere.Elsewhere = bench.YardstickFloor, false, 1, true
	ops := Columns[0]
	marked := func(c Column, results ...bench.Result) (names []string) {
		for i, row := range tableOf("", "", []Column{c}, bench.WorkloadReport{}, results).Rows {
			if strings.HasSuffix(row.Cells[1], Mark) {
				names = append(names, results[i].Name)
			}
		}
		return names
	}
	a, b, c := result("a", 5e6), result("b", 6e6), result("c", 4e6)
	assert.Equal(t, []string{"b"}, marked(ops, floor, inexact, over, elsewhere, a, b, c))
	assert.Equal(t, []string{"b", "like b"}, marked(ops, a, b, result("like b", 6.001e6)), "two results that look the same are not both marked")
	assert.Empty(t, marked(ops, floor, inexact, over, b), "nothing to compare it with")
	assert.Empty(t, marked(ops, b, result("like b", 6e6)), "no difference")

	less, neither := ops, ops
	less.Better, neither.Better = -1, 0
	assert.Equal(t, []string{"c"}, marked(less, a, b, c))
	assert.Empty(t, marked(neither, a, b), "neither is better")

	latency := Columns[len(Columns)-1]
	require.Equal(t, "worst", latency.Name)
	timed := func(name string, worst time.Duration) bench.Result {
		r := result(name, 1)
		r.Latency = &bench.Latency{Worst: worst}
		return r
	}
	assert.Equal(t, []string{"quick"}, marked(latency, a, timed("slow", 2), timed("quick", 1)), "a result without the figure has no part in it")

	assert.Equal(t, "floor", Label(floor))
	assert.Equal(t, "a", Label(a))
	assert.Equal(t, "over !", Label(over))
	inexact.Audit.Over = 1
	assert.Equal(t, "inexact ~!", Label(inexact))
}

func TestBenchmarksAreOfTheGoFormat(t *testing.T) {
	w := bench.WorkloadReport{Workload: bench.Workload{Name: "hot-pass"}, CPU: 2, Results: []bench.Result{{
		Contender:     bench.Contender{Name: "x/time Wait"},
		Rounds:        []bench.Pass{{Calls: 100, CPU: 5050, Elapsed: time.Microsecond, Bytes: 800, Allocs: 50}, {Calls: 100, CPU: 5000, Elapsed: time.Microsecond}},
		LatencyRounds: []bench.Latency{{P50: 40, P99: 80, P999: 200}},
		Memory:        &bench.Memory{BytesPerKey: 77.5, GC: 9, IdleHeap: 1024},
	}, {
		Contender: bench.Contender{Name: "rald"}, Outside: true, Rounds: []bench.Pass{{Calls: 100, CPU: 5000, Elapsed: time.Microsecond}}, // its allocations are unknown
	}}}
	d := run(w)
	d.Machine = Machine{OS: "linux", Arch: "amd64", CPU: "a\nb", Go: "go1.25", Commit: "abc"}
	var b strings.Builder
	require.NoError(t, d.WriteBenchmarks(&b))
	assert.Equal(t, `# ralbench, commit abc, go1.25
goos: linux
goarch: amd64
cpu: a b
Unit ops/s better=higher
BenchmarkCall/workload=hot-pass/limiter=x.time_Wait-2 100 100000000 ops/s 50.5 ns/op 0.5 allocs/op 8 B/op 40 p50-ns 80 p99-ns 200 p99.9-ns 77.5 B/key 9 GC-ns 1024 idle-B
BenchmarkCall/workload=hot-pass/limiter=x.time_Wait-2 100 100000000 ops/s 50 ns/op 0 allocs/op 0 B/op
BenchmarkCall/workload=hot-pass/limiter=rald-2 100 100000000 ops/s 50 ns/op
`, b.String())
}

func TestErrorsOfFilesSayTheAcceptedText(t *testing.T) {
	for content, want := range map[string]string{
		"":                              "is empty",
		"BenchmarkX-2  100  12 ns":      "cannot be read as JSON",
		`{"schema": "one"}`:             "cannot be read as JSON",
		`{"name": "ral", "v": 3}`:       "has no schema",
		`{"schema": 3}`:                 "has no workloads",
		`{"schema": 3} {}`:              "goes on behind",
		`{"schema":3,"workloads":[{}]}`: "without a name",
	} {
		_, err := Decode(strings.NewReader(content))
		require.Error(t, err, content)
		assert.ErrorContains(t, err, want)
		assert.ErrorContains(t, err, "want a file that ralbench -json has written")
	}
	_, err := Decode(strings.NewReader(`{"schema": 99, "workloads": [{"name": "a"}]}`))
	assert.ErrorContains(t, err, "schema 99, but this ralbench reads schema 3")

	_, err = Read(filepath.Join(t.TempDir(), "none.json"))
	assert.ErrorIs(t, err, os.ErrNotExist)
	assert.ErrorContains(t, err, "want a file")
}

func TestInstalledProgramSaysItsVersion(t *testing.T) {
	installed := &debug.BuildInfo{Main: debug.Module{Version: "v0.1.0"}}
	assert.Equal(t, "v0.1.0", commit(installed))
	assert.Equal(t, "v0.1.0", Machine{Commit: commit(installed)}.Build())
	installed.Settings = []debug.BuildSetting{{Key: "vcs.revision", Value: "0123456789abcdef"}, {Key: "vcs.modified", Value: "true"}}
	assert.Equal(t, "commit 0123456789ab+changes", Machine{Commit: commit(installed)}.Build(), "a clone has no version")
	for _, version := range []string{"", "(devel)"} {
		assert.NotEqual(t, version, commit(&debug.BuildInfo{Main: debug.Module{Version: version}}))
	}
}

func TestOneRoundHasNoMedian(t *testing.T) {
	assert.Equal(t, "one round", say("medians", 1))
	assert.Equal(t, "medians of 9 rounds", say("medians", 9))
}
