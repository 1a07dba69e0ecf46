package main

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/bench"
)

// quick makes a run of all workloads last a second or so.
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
		for _, r := range w.Results {
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
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	var stdout, stderr bytes.Buffer
	begun := time.Now()
	code := run(ctx, []string{"-workloads", "hot-pass,uniform", "-rounds", "1000", "-duration", "5ms"}, &stdout, &stderr)
	assert.Equal(t, exitInterrupted, code)
	assert.Less(t, time.Since(begun), 10*time.Second)
	assert.Contains(t, stderr.String(), "interrupted")
	assert.Contains(t, stdout.String(), "INTERRUPTED")
	assert.Contains(t, stdout.String(), "hot-pass")
	assert.Regexp(t, `ONLY \d+ OF 1000 ROUNDS`, stdout.String())
	assert.NotContains(t, stdout.String(), "uniform:")

	cancel()
	stdout.Reset()
	assert.Equal(t, exitInterrupted, run(ctx, nil, &stdout, &stderr))
	assert.Contains(t, stdout.String(), "Nothing was measured")
}

func TestTableByItsStructure(t *testing.T) {
	audit := bench.Audit{Calls: 12345, Admitted: 1007, Allowed: 1005, Over: 2, Binds: true, Limiters: 1, Own: &bench.Counts{Overadmitted: 3}}
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
	var names []string
	for _, c := range columns {
		names = append(names, regexp.QuoteMeta(c.name))
	}
	head := find(`^ ` + strings.Join(names, ` +`) + ` $`)
	rows := []string{
		find(`^ floor .* 1\.00 .* - +- +- +- `),
		find(`^ Ral Exact +12\.3M .* 81\.0 +±100% +1\.25 .* 47ns +1\.50µs +2\.00ms +3\.00s `),
		find(`^   known keys +47ns +1\.50µs +2\.00ms +3\.00s `),
	}
	for _, row := range rows {
		assert.Len(t, []rune(row), len(head), "columns stand under their names")
	}
	find(`^  audit Ral Exact +admitted 1,007 of 12,345 calls; at most 1,005 allowed: 2 TOO MANY; 3 over-admitted$`)
}

func TestAuditLineSaysWhenItCannotBind(t *testing.T) {
	assert.Contains(t, auditLine(bench.Audit{Calls: 5, Admitted: 5, Allowed: 5}), "cannot bind")
	assert.Contains(t, auditLine(bench.Audit{Calls: 5, Admitted: 4, Allowed: 4, Binds: true}), "within the limit")
	assert.Contains(t, auditLine(bench.Audit{Limiters: 3}), "3 limiters")
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
