package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/bench"
)

// quick makes a run of all workloads last some seconds.
var quick = []string{"-scale", "0.001", "-duration", "2ms", "-rounds", "2"}

func TestRunOfAllWorkloads(t *testing.T) {
	file := filepath.Join(t.TempDir(), "out.json")
	var stdout, stderr bytes.Buffer
	require.Equal(t, exitOK, run(t.Context(), append(quick, "-json", file), &stdout, &stderr), stderr.String())

	table := stdout.String()
	assert.Contains(t, table, "SCALED")
	for _, w := range bench.Standard(1) {
		assert.Regexp(t, `(?m)^`+w.Name+`: `, table)
		assert.Contains(t, stderr.String(), w.Name+" (", "progress in plain lines")
		assert.Contains(t, stderr.String(), w.Name+" took")
	}
	assert.NotContains(t, stderr.String()+table, "\x1b", "no terminal, no escape codes")

	written, err := os.ReadFile(file)
	require.NoError(t, err)
	var d document
	require.NoError(t, json.Unmarshal(written, &d))
	assert.Equal(t, schema, d.Schema)
	assert.Len(t, d.Workloads, len(bench.Standard(1)))
	assert.Equal(t, 0.001, d.Settings.Scale)
	assert.NotEmpty(t, d.Machine.Go)
	assert.NotEmpty(t, d.Machine.Commit)
	assert.Positive(t, d.Machine.Cores)
	for _, w := range d.Workloads {
		assert.Positive(t, w.CPU, w.Name)
		for _, r := range w.Results {
			assert.Equal(t, w.Name == "memory", r.Memory != nil, w.Name)
			assert.Positive(t, r.NsPerOp.Median, "%s, %s", w.Name, r.Contender)
			if !r.IsFloor {
				assert.NotNil(t, r.Audit, "%s, %s", w.Name, r.Contender)
			}
		}
	}

	var again bytes.Buffer
	require.NoError(t, d.writeJSON(&again))
	assert.Equal(t, string(written), again.String(), "there and back")
}

func TestRunOfAllPeersAndSomeValuesOfGOMAXPROCS(t *testing.T) {
	var stdout, stderr bytes.Buffer
	args := slices.Concat(quick, []string{"-peers", "all", "-cpu", "1,2", "-rounds", "1", "-workloads", "hot-pass,flood-full,memory", "-json"})
	require.Equal(t, exitOK, run(t.Context(), args, &stdout, &stderr), stderr.String())
	var d document
	require.NoError(t, json.Unmarshal(stdout.Bytes(), &d))
	assert.Equal(t, []int{1, 2}, d.Settings.CPUs)

	var got []string
	seen := map[string]bool{}
	for _, w := range d.Workloads {
		got = append(got, fmt.Sprint(w.Name, " ", w.CPU, " ", w.Callers))
		for _, r := range w.Results {
			seen[r.Contender] = true
		}
	}
	assert.Equal(t, []string{"hot-pass 1 1", "hot-pass 2 2", "flood-full 1 1", "flood-full 2 2", "memory 1 1", "memory 2 2"}, got)
	here, missing := present(contenders())
	for _, c := range here {
		assert.True(t, seen[c.Name], c.Name)
	}
	table := stderr.String()
	for _, name := range missing {
		assert.Contains(t, table, name+" is left out")
	}
	assert.Contains(t, table, "\nhot-pass, GOMAXPROCS 2: ")
	assert.Contains(t, table, "flood-full/1 (3 of 6)")
	assert.Contains(t, table, "GOMAXPROCS 1, 2, ")
	assert.Contains(t, table, "by estimate")
	assert.Contains(t, table, "what 1,000 keys hold beside their own 20,000 bytes")
}

// A Redis that was started goes whatever ends the run.
func TestInterruptedRunStopsItsRedis(t *testing.T) {
	require.Len(t, must(choose([]string{allPeers})), len(contenders()),
		"no redis-server is installed: make test does it, or on Debian apt-get install redis-server")
	folder := t.TempDir()
	t.Setenv("TMPDIR", folder)
	sockets := func() int {
		found, err := filepath.Glob(filepath.Join(folder, "*", "socket"))
		require.NoError(t, err)
		return len(found)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan int)
	go func() {
		ended <- run(ctx, []string{"-peers", "redis_rate", "-workloads", "hot-refused", "-rounds", "1000", "-duration", "20ms"}, io.Discard, io.Discard)
	}()
	assert.Eventually(t, func() bool { return sockets() == 1 }, 20*time.Second, 10*time.Millisecond, "it runs")
	cancel()
	assert.Equal(t, exitInterrupted, <-ended)
	left, err := os.ReadDir(folder)
	require.NoError(t, err)
	assert.Empty(t, left)
}

func must[T any](x T, err error) T {
	if err != nil {
		panic(err)
	}
	return x
}

func TestJSONToStandardOutputIsNothingElse(t *testing.T) {
	var stdout, stderr bytes.Buffer
	require.Equal(t, exitOK, run(t.Context(), append(quick, "-workloads", "hot-pass", "-json"), &stdout, &stderr))
	var d document
	decoder := json.NewDecoder(&stdout)
	require.NoError(t, decoder.Decode(&d))
	assert.False(t, decoder.More())
	assert.Len(t, d.Workloads, 1)
	assert.Contains(t, stderr.String(), "contender", "the table is there")
}

func TestFileThatCannotBeWrittenCostsNoRun(t *testing.T) {
	var stdout, stderr bytes.Buffer
	file := filepath.Join(t.TempDir(), "no", "such", "folder.json")
	assert.Equal(t, exitUsage, run(t.Context(), []string{"-json", file}, &stdout, &stderr))
	assert.Contains(t, stderr.String(), file)
	assert.Empty(t, stdout.String())
}

func TestInterruptedRunShowsWhatItHas(t *testing.T) {
	var stdout, stderr bytes.Buffer
	// interrupt has a run that takes half a minute interrupted after some time.
	interrupt := func(after time.Duration) {
		ctx, cancel := context.WithTimeout(t.Context(), after)
		defer cancel()
		stdout.Reset()
		stderr.Reset()
		assert.Equal(t, exitInterrupted, run(ctx, []string{"-workloads", "hot-pass,uniform", "-rounds", "1000", "-duration", "5ms"}, &stdout, &stderr))
		assert.Contains(t, stderr.String(), "interrupted")
		assert.Contains(t, stdout.String(), "INTERRUPTED")
		assert.NotContains(t, stdout.String(), "uniform:")
	}
	const nothing = "Nothing was measured"
	// A busy machine takes longer until there is something to show.
	after := 300 * time.Millisecond
	for interrupt(after); strings.Contains(stdout.String(), nothing) && after < 20*time.Second; interrupt(after) {
		after *= 2
	}
	assert.Contains(t, stdout.String(), "hot-pass")
	assert.Regexp(t, `ONLY \d+ OF 1000 ROUNDS`, stdout.String())

	interrupt(0)
	assert.Contains(t, stdout.String(), nothing)
}

func TestTableByItsStructure(t *testing.T) {
	audit := bench.Audit{Calls: 12345, Admitted: 1007, Allowed: 1005, Possible: 1004, Over: 2, Binds: true, Limiters: 1, Own: &bench.Counts{Overadmitted: 3}}
	latency := &bench.Latency{Calls: 9, P50: 47, P99: 1500, P999: 2 * time.Millisecond, Worst: 3 * time.Second}
	one := bench.Spread{Median: 1, Min: 1, Max: 1}
	d := document{Report: bench.Report{Took: time.Second, Workloads: []bench.WorkloadReport{{
		Name: "some", About: "thing", Keys: 2000, Callers: 1, Rounds: 2,
		Limit: bench.Limit{Capacity: 1000, Count: 1, Per: time.Hour},
		Results: []bench.Result{
			{Contender: "floor", IsFloor: true, Rounds: make([]bench.Pass, 2), OfFloor: &one},
			{Contender: "Ral Exact", Rounds: make([]bench.Pass, 2), Latency: latency, Known: latency, Audit: &audit,
				OpsPerSecond: bench.Spread{Median: 12.34e6},
				NsPerOp:      bench.Spread{Median: 81, Min: 81, Max: 162}, OfFloor: &bench.Spread{Median: 1.25}},
		},
	}}}}
	var b strings.Builder
	require.NoError(t, d.writeTable(&b))
	lines := strings.Split(b.String(), "\n")
	find := func(pattern string) string {
		t.Helper()
		for _, line := range lines {
			if regexp.MustCompile(pattern).MatchString(line) {
				return line
			}
		}
		require.Fail(t, "missing", "%s in\n%s", pattern, b.String())
		return ""
	}

	find(`^some: thing$`)
	find(`^  a key may take bursts of 1,000, then 1 per 1h; 2,000 keys, 1 caller$`)
	names := []string{"contender"}
	for _, c := range columns {
		names = append(names, regexp.QuoteMeta(c.name))
	}
	head := find(`^ ` + strings.Join(names, ` +`) + ` +$`)
	rows := []string{
		find(`^ floor .* 1\.00 .* - +- +- +- `),
		find(`^ Ral Exact ~! +12\.3M .* 81\.0 +±100% +1\.25 .* 47ns +1\.50µs +2\.00ms +3\.00s `),
		find(`^   known keys +47ns +1\.50µs +2\.00ms +3\.00s `),
	}
	for _, row := range rows {
		assert.Len(t, []rune(row), len(head), "columns stand under their names")
	}
	find(`^  audit Ral Exact +admitted 1,007 of 12,345 calls; at most 1,005 allowed, 1,004 possible: 2 TOO MANY; 3 over-admitted$`)
}

func TestAuditLineSaysWhenItCannotBind(t *testing.T) {
	assert.Contains(t, auditLine(bench.Audit{Calls: 5, Admitted: 5, Allowed: 5}), "cannot bind")
	assert.Contains(t, auditLine(bench.Audit{Calls: 5, Admitted: 4, Allowed: 4, Binds: true}), "within the limit")
	assert.Contains(t, auditLine(bench.Audit{Limiters: 3}), "3 limiters")
}

func TestAuditLineSaysWhenTooFewPassed(t *testing.T) {
	line := auditLine(bench.Audit{Calls: 1000, Admitted: 450, Allowed: 510, Possible: 500, Binds: true})
	assert.Contains(t, line, "510 allowed, 500 possible: within the limit, but ONLY 90.0% of what was possible")
	assert.NotContains(t, auditLine(bench.Audit{Admitted: 998, Possible: 1000}), "ONLY", "that can be when the calls came")
}

func TestAuditsThatFindNothingShareALine(t *testing.T) {
	silent := func(name string) bench.Result {
		return bench.Result{Contender: name, Audit: &bench.Audit{Calls: 5, Admitted: 5, Allowed: 5, Possible: 5, Own: &bench.Counts{}}}
	}
	show := func(results ...bench.Result) string {
		var b strings.Builder
		audits(&b, results)
		return b.String()
	}
	binds, evicts := silent("binds"), silent("evicts")
	binds.Audit.Binds = true
	evicts.Audit.Own.Evicted = 3
	text := show(silent("a"), binds, evicts, silent("b"), bench.Result{Contender: "floor"})
	assert.Equal(t, 3, strings.Count(text, "\n"), text)
	assert.Regexp(t, `audit binds +admitted`, text)
	assert.Contains(t, text, "3 keys evicted")
	assert.Contains(t, text, "all calls passed: a, b\n")
	assert.Contains(t, show(silent("alone")), "admitted 5 of 5 calls")
}

func TestTheBestExactLimiterIsMarked(t *testing.T) {
	result := func(name string, ops float64) bench.Result {
		return bench.Result{Contender: name, Exact: true, OpsPerSecond: bench.Spread{Median: ops}, Audit: &bench.Audit{}}
	}
	floor, inexact, over, elsewhere := result("floor", 9e6), result("inexact", 8e6), result("over", 7e6), result("elsewhere", 6.5e6)
	floor.IsFloor, inexact.Exact, over.Audit.Over, elsewhere.Elsewhere = true, false, 1, true
	ops := columns[0]
	marked := func(f figure, results ...bench.Result) (names []string) {
		for i, row := range cells([]figure{f}, results) {
			require.Len(t, row, 1)
			if strings.HasSuffix(row[0].(string), mark) {
				names = append(names, results[i].Contender)
			}
		}
		return names
	}
	a, b, c := result("a", 5e6), result("b", 6e6), result("c", 4e6)
	assert.Equal(t, []string{"b"}, marked(ops.figure, floor, inexact, over, elsewhere, a, b, c))
	assert.Equal(t, []string{"b", "like b"}, marked(ops.figure, a, b, result("like b", 6.001e6)), "as far as can be seen")
	assert.Empty(t, marked(ops.figure, floor, inexact, over, b), "nobody to compare it with")
	assert.Empty(t, marked(ops.figure, b, result("like b", 6e6)), "no difference")

	less := figure{better: -1, show: ops.show, value: ops.value}
	assert.Equal(t, []string{"c"}, marked(less, a, b, c))
	assert.Empty(t, marked(figure{show: ops.show}, a, b), "neither is better")

	latency := columns[len(columns)-2]
	require.Equal(t, "worst", latency.name)
	timed := func(name string, worst time.Duration) bench.Result {
		r := result(name, 1)
		r.Latency = &bench.Latency{Worst: worst}
		return r
	}
	assert.Equal(t, []string{"quick"}, marked(latency.figure, a, timed("slow", 2), timed("quick", 1)), "who has none has no part in it")

	assert.Equal(t, "floor", label(floor))
	assert.Equal(t, "a", label(a))
	assert.Equal(t, "over !", label(over))
	inexact.Audit.Over = 1
	assert.Equal(t, "inexact ~!", label(inexact))
}

func TestMoreIsBetterOfCallsAndLessOfAllElse(t *testing.T) {
	for _, c := range append(append([]column{}, memoryColumns...), columns...) {
		switch c.name {
		case "ops/s":
			assert.Equal(t, +1, c.better, c.name)
		case "cpus", "spread", "refused", "heap", "before":
			assert.Zero(t, c.better, c.name)
		default:
			assert.Equal(t, -1, c.better, c.name)
			assert.NotNil(t, c.value, c.name)
		}
	}
}

func TestTableTellsOfMemoryAndOfDisturbance(t *testing.T) {
	some := func(name string, m bench.Memory) bench.Result {
		return bench.Result{Contender: name, Exact: true, Note: "note of " + name, Rounds: make([]bench.Pass, 3), Disturbed: 1, Repeated: 2, Memory: &m}
	}
	d := document{Report: bench.Report{Workloads: []bench.WorkloadReport{{
		Name: "memory", Rounds: 3, Results: []bench.Result{
			some("keeps", bench.Memory{Keys: 2000, KeyBytes: 40_000, BytesPerKey: 123.4, GC: 12 * time.Millisecond, FullHeap: 246_800, IdleHeap: 246_800}),
			some("idles", bench.Memory{Keys: 2000, KeyBytes: 40_000, BytesPerKey: 150, GC: time.Millisecond, FullHeap: 300_000, IdleHeap: 30_000, Idle: time.Second}),
		},
	}}}}
	show := func() string {
		var b strings.Builder
		require.NoError(t, d.writeTable(&b))
		return b.String()
	}
	text := show()
	assert.Contains(t, text, "what 2,000 keys hold beside their own 40,000 bytes, and what is left after 1s of idling:")
	assert.Regexp(t, `(?m)^ keeps +123\* +247kB +12\.0ms +0ns +keeps all `, text)
	assert.Regexp(t, `(?m)^ idles +150 +300kB +1\.00ms\* +0ns +10\.0%\* `, text)
	assert.Contains(t, text, "other load DISTURBED 2 of 6 passes; 4 were done again")
	assert.Contains(t, text, "does not tell of other load")
	assert.Equal(t, 1, strings.Count(text, "keeps: note of keeps"))

	d.Watched = true
	for i := range d.Workloads[0].Results {
		d.Workloads[0].Results[i].Disturbed = 0
	}
	text = show()
	assert.Contains(t, text, "which were done again: 4")
	assert.NotContains(t, text, "does not tell of other load")
}

func TestEstimatesForPeople(t *testing.T) {
	for d, want := range map[time.Duration]string{time.Millisecond: "1 seconds", 95 * time.Second: "95 seconds", 400 * time.Second: "7 minutes"} {
		assert.Equal(t, want, minutes(d))
	}
	quick, err := parse([]string{"-workloads", "hot-pass"})
	require.NoError(t, err)
	full, err := parse([]string{"-full"})
	require.NoError(t, err)
	estimate := func(s settings) time.Duration {
		return bench.Estimate(s.workloads, s.contenders, s.options(newProgress(io.Discard, s)))
	}
	assert.Positive(t, estimate(quick))
	assert.Greater(t, estimate(full), 10*estimate(quick))
}

func TestNumbersForPeople(t *testing.T) {
	for x, want := range map[float64]string{0: "0.00", 7.254: "7.25", 47.32: "47.3", 812.6: "813", 1500: "1.50k", 12.34e6: "12.3M", 2e9: "2.00G"} {
		assert.Equal(t, want, count(x))
	}
	for n, want := range map[int64]string{0: "0", 999: "999", 1000: "1,000", -1234567: "-1,234,567", 12345678: "12,345,678"} {
		assert.Equal(t, want, thousands(n))
	}
	for d, want := range map[time.Duration]string{time.Second: "1s", time.Hour: "1h", 90 * time.Minute: "1h30m", 2 * time.Minute: "2m"} {
		assert.Equal(t, want, short(d))
	}
}

func TestHistogramKeepsShortLatenciesExactly(t *testing.T) {
	a, b := newHistogram(), newHistogram()
	for i := range 1000 {
		a.Record(time.Duration(i + 1))
	}
	b.Record(-5)
	b.Record(time.Hour)
	a.Add(b)
	l := a.Latency()
	assert.EqualValues(t, 1002, l.Calls)
	assert.EqualValues(t, 500, l.P50)
	assert.InEpsilon(t, float64(longest), float64(l.Worst), 0.001)
	assert.Zero(t, testing.AllocsPerRun(100, func() { a.Record(123) }))
}
