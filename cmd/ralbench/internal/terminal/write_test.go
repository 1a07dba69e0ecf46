package terminal

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/bench"
	"github.com/ral-limiter/ral/cmd/ralbench/internal/report"
	"github.com/ral-limiter/ral/cmd/ralbench/internal/testkit/reporttest"
	"github.com/ral-limiter/ral/internal/testkit/must"
)

func written(t *testing.T, d report.Document, width int) string {
	t.Helper()
	var b strings.Builder
	require.NoError(t, Write(&b, d, width))
	return b.String()
}

func assertFits(t *testing.T, text string, width int) {
	t.Helper()
	for line := range strings.Lines(text) {
		require.LessOrEqual(t, utf8.RuneCountInString(strings.TrimRight(line, "\n")), width, line)
	}
}

// Every line fits the terminal, and every figure is there at every width.
func TestOutputFitsTheWidth(t *testing.T) {
	d := reporttest.Run(t)
	for _, w := range d.Workloads {
		for i := range w.Results {
			r := &w.Results[i]
			r.OfFloor, r.OfBase, r.Share = r.OfMap, r.OfMap, 0.5
			for j := range r.Rounds {
				r.Rounds[j].Behind = 7 * time.Duration(r.Rounds[j].Calls)
			}
		}
	}
	d.Workloads[0].Results[1].Name = "Ral under a very long name"
	for _, width := range []int{60, 80, 100, 120, 200} {
		shown := written(t, d, width)
		assertFits(t, shown, width)
		for _, w := range d.Workloads {
			for _, column := range report.Columns {
				for _, r := range w.Results {
					assert.Contains(t, shown, column.Show(r))
				}
			}
		}
		for _, column := range report.Columns {
			assert.Contains(t, shown, " "+column.Name+" ", "%d columns wide", width)
		}
	}
}

func TestTextIsWrapped(t *testing.T) {
	long := strings.Repeat("word ", 30)
	for line := range strings.Lines(Wrapped("  lead: ", long, 70)) {
		assert.LessOrEqual(t, len(line), 71)
		assert.Regexp(t, `^(  lead: |        )word`, line)
	}
	assert.Equal(t, "  \n", Wrapped("  ", "", 70))
	assert.Equal(t, "unbreakable"+strings.Repeat("x", 100)+"\n", Wrapped("", "unbreakable"+strings.Repeat("x", 100), 70))
}

func TestProgressIsALineForEachWorkload(t *testing.T) {
	var b strings.Builder
	p := NewProgress(&b, 2, true, 0)
	p.Step(bench.Progress{Workload: "zipf", CPU: 2, Total: 90 * time.Second})
	p.Step(bench.Progress{Workload: "zipf", CPU: 2, Contender: "Ral", Total: 90 * time.Second})
	p.Step(bench.Progress{Total: time.Second})
	assert.Regexp(t, `^ralbench: 90 seconds by estimate, if the machine is quiet\nralbench: zipf/2 \(1 of 2\) \.\.\.\nralbench: zipf/2 took \S+\n$`, b.String())
}

func TestWidthWithoutATerminal(t *testing.T) {
	assert.Equal(t, DefaultWidth, Width(new(strings.Builder)))
	f, err := os.Create(t.TempDir() + "/file")
	require.NoError(t, err)
	defer func() { _ = f.Close() }()
	assert.Equal(t, DefaultWidth, Width(f))
}

// Promise: First lines and verdict show a broken promise.
func TestBrokenPromiseIsInTheFirstScreen(t *testing.T) {
	d := reporttest.Run(t)
	d.Workloads[0].Results[len(d.Workloads[0].Results)-1].Audit = &bench.Audit{Admitted: 2, Calls: 2, Allowed: 1, Over: 1, Binds: true, Passes: 9, OverPasses: 4}
	name := d.Workloads[0].Results[len(d.Workloads[0].Results)-1].Name
	for _, width := range []int{80, 120} {
		shown := written(t, d, width)
		top := strings.Join(strings.Split(shown, "\n")[:8], "\n")
		assert.Contains(t, top, "\n"+name+" admits more than its limit: hot-pass (1 CPU), 4 of 9 passes\n")
		assert.NotContains(t, shown, "BROKEN", "it is the peer's")
		_, verdict, _ := strings.Cut(shown, "\nVerdict\n")
		assert.Contains(t, strings.Join(strings.Fields(verdict), " "), "Exact by design, "+name+" admits more than its limit")
	}
	d = reporttest.Run(t)
	assert.NotContains(t, written(t, d, 100), "admits more than")
	i := slices.IndexFunc(d.Workloads[0].Results, func(r bench.Result) bool { return r.Name == "Ral" })
	d.Workloads[0].Results[i].Audit = &bench.Audit{Over: 1}
	assert.Contains(t, written(t, d, 100), "\nPROMISE BROKEN: Ral admits more than its limit: hot-pass (1 CPU)\n")
}

func TestEstimateIsNoMoreThanTheBudget(t *testing.T) {
	for most, want := range map[time.Duration]string{
		0:                "ralbench: 90 seconds by estimate, if the machine is quiet",
		85 * time.Second: "ralbench: at most 85 seconds",
		2 * time.Minute:  "ralbench: 90 seconds by estimate, if the machine is quiet, and at most 2 minutes",
	} {
		assert.Equal(t, want, NewProgress(io.Discard, 1, false, most).estimate(90*time.Second))
	}
}

// testdata/shown.txt has all kinds of tables, lines and verdicts: read its changes.
func TestReportsMatchTheGoldenFile(t *testing.T) {
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
		{"no pass was disturbed", watched},
		{"an interrupted run", interrupted},
		{"a budget too short for anything", report.Document{
			Settings: report.Settings{Rounds: 5, Budget: time.Millisecond},
			Report:   bench.Report{LeftOut: []bench.LeftOut{{Workload: "zipf", CPU: 2, Contenders: []string{"Ral"}}}},
		}},
	} {
		fmt.Fprintf(&shown, "=== %s\n\n%s", c.about, written(t, c.d, 150))
	}
	must.EqualFile(t, "testdata/shown.txt", shown.String())
}

// odd returns a run with what is rare.
func odd() report.Document {
	over := bench.Audit{Calls: 12345, Admitted: 1007, Allowed: 1005, BucketAllowed: 1005, Possible: 1004, Over: 2, Binds: true, Limiters: 1, Own: &bench.Counts{Overadmitted: 3}}
	latency := &bench.Latency{Calls: 9, P50: 47, P99: 1500, P999: 2 * time.Millisecond, Worst: 3 * time.Second}
	one := bench.Spread{Median: 1, Min: 1, Max: 1}
	silent := func(name string, evicted int64, binds bool) bench.Result {
		return bench.Result{Contender: bench.Contender{Name: name}, Audit: &bench.Audit{
			Calls: 5, Admitted: 5, Allowed: 5, BucketAllowed: 5, Possible: 5, Binds: binds, Own: &bench.Counts{Evicted: evicted},
		}}
	}
	kept := func(name string, m bench.Memory) bench.Result {
		m.Keys, m.KeyBytes = 2000, 40_000
		return bench.Result{Contender: bench.Contender{Name: name, Exact: true, Note: "note of " + name}, Rounds: make([]bench.Pass, 3), Disturbed: 1, Memory: &m}
	}
	return report.Document{Settings: report.Settings{Rounds: 2}, Report: bench.Report{Took: time.Second, Workloads: []bench.WorkloadReport{{
		Workload: bench.Workload{Name: "some", About: "thing", Keys: 2000, Callers: 1, Rounds: 2, Limit: bench.Limit{Capacity: 1000, Count: 1, Per: time.Hour}},
		Results: []bench.Result{
			{Contender: bench.Contender{Name: "floor", Yardstick: bench.YardstickFloor}, Rounds: make([]bench.Pass, 2), OfFloor: &one},
			{Contender: bench.Contender{Name: "xsync map", Yardstick: bench.YardstickMap}, Rounds: make([]bench.Pass, 2), OfMap: &one},
			{Contender: bench.Contender{Name: "Ral", Promise: bench.LeakyBucket}, Rounds: make([]bench.Pass, 2), Latency: latency, Known: latency, Audit: &over,
				OpsPerSecond: bench.Spread{Median: 12.34e6},
				NsPerOp:      bench.Spread{Median: 81, Min: 81, Max: 162}, OfFloor: &bench.Spread{Median: 2.5}, OfMap: &bench.Spread{Median: 1.25}},
			silent("passes all", 0, false), silent("binds", 0, true), silent("evicts", 3, false), silent("passes all, too", 0, false),
		},
	}, {
		Workload: bench.Workload{Name: "memory", Rounds: 3}, Results: []bench.Result{
			kept("keeps", bench.Memory{BytesPerKey: 123.4, GC: 12 * time.Millisecond, FullHeap: 246_800, IdleHeap: 246_800}),
			kept("idles", bench.Memory{BytesPerKey: 150, GC: time.Millisecond, FullHeap: 300_000, IdleHeap: 30_000, Idle: time.Second}),
		},
	}}}}
}

func TestGoalsFitTheWidth(t *testing.T) {
	d := reporttest.Run(t)
	d.Workloads = append(d.Workloads, reporttest.Calls())
	table := report.GoalTable(d)
	require.NotEmpty(t, table.Rows)
	for _, width := range []int{80, 100, 120, 200} { // its figures need more than 60
		var b strings.Builder
		require.NoError(t, WriteGoals(&b, d, width))
		assertFits(t, b.String(), width)
		for _, row := range table.Rows {
			assert.Contains(t, b.String(), row.Cells[3])
		}
		assert.Contains(t, b.String(), " of "+strconv.Itoa(len(table.Rows)-1)+" reached; 1 other not judged", "growth has one round")
		assert.Contains(t, b.String(), "Trust: ")
	}

	var b strings.Builder
	require.NoError(t, WriteGoals(&b, report.Document{}, 100))
	assert.Contains(t, b.String(), "No goal is about the measured figures.")
}
