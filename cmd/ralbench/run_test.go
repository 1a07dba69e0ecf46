package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/bench"
	"github.com/ral-limiter/ral/cmd/ralbench/report"
)

var quick = []string{"-scale", "0.001", "-duration", "2ms", "-rounds", "2"}

func TestRunOfAllWorkloads(t *testing.T) {
	file := filepath.Join(t.TempDir(), "out.json")
	var stdout, stderr bytes.Buffer
	require.Equal(t, exitOK, execute(t.Context(), append(quick, "-json", file), &stdout, &stderr), stderr.String())

	table := stdout.String()
	assert.Contains(t, table, "SCALED")
	for _, w := range bench.All(1) {
		assert.Regexp(t, `(?m)^`+w.Name+`: `, table)
		assert.Contains(t, stderr.String(), w.Name+" (", "progress in plain lines")
		assert.Contains(t, stderr.String(), w.Name+" took")
	}
	assert.NotContains(t, stderr.String()+table, "\x1b", "no terminal, no escape codes")

	written, err := os.ReadFile(file)
	require.NoError(t, err)
	var d report.Document
	require.NoError(t, json.Unmarshal(written, &d))
	assert.Equal(t, report.Schema, d.Schema)
	assert.Len(t, d.Workloads, len(bench.All(1)))
	assert.Equal(t, 0.001, d.Settings.Scale)
	assert.NotEmpty(t, d.Machine.Go)
	assert.NotEmpty(t, d.Machine.Commit)
	assert.Positive(t, d.Machine.Cores)
	for _, w := range d.Workloads {
		assert.Positive(t, w.CPU, w.Name)
		assert.NotEmpty(t, w.Results, w.Name)
		for _, r := range w.Results {
			assert.Equal(t, w.Name == "memory", r.Memory != nil, w.Name)
			assert.Positive(t, r.NsPerOp.Median, "%s, %s", w.Name, r.Contender)
			if r.IsLimiter() {
				assert.NotNil(t, r.Audit, "%s, %s", w.Name, r.Contender)
			}
		}
	}

	var again bytes.Buffer
	require.NoError(t, d.WriteJSON(&again))
	assert.Equal(t, string(written), again.String(), "written again, it is the same")
}

func TestRunOfAllPeersAndSomeValuesOfGOMAXPROCS(t *testing.T) {
	var stdout, stderr bytes.Buffer
	args := slices.Concat(quick, []string{"-peers", "all", "-cpu", "1,2", "-rounds", "1", "-workloads", "hot-pass,flood-full,memory", "-json"})
	require.Equal(t, exitOK, execute(t.Context(), args, &stdout, &stderr), stderr.String())
	var d report.Document
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
	here, missing, err := choose([]string{allPeers}, false, nil)
	require.NoError(t, err)
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
	assert.Contains(t, table, "heap of 1,000 keys without the 20,000 bytes of their names")
}

func TestInterruptedRunStopsItsRedis(t *testing.T) {
	here, _, err := choose([]string{allPeers}, false, nil)
	require.NoError(t, err)
	require.Len(t, here, len(contenders()),
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
		ended <- execute(ctx, []string{"-peers", "redis_rate", "-workloads", "hot-refused", "-rounds", "1000", "-duration", "20ms"}, io.Discard, io.Discard)
	}()
	assert.Eventually(t, func() bool { return sockets() == 1 }, time.Minute, 10*time.Millisecond, "it runs")
	cancel()
	assert.Equal(t, exitInterrupted, <-ended)
	left, err := os.ReadDir(folder)
	require.NoError(t, err)
	assert.Empty(t, left)
}

func TestGoalsAreShownAlone(t *testing.T) {
	run := filepath.Join(t.TempDir(), "run.json")
	var stdout, stderr bytes.Buffer
	args := slices.Concat(quick, []string{"-workloads", "verbs", "-goals", "-json", run})
	require.Equal(t, exitOK, execute(t.Context(), args, &stdout, &stderr), stderr.String())
	assert.Contains(t, stdout.String(), "Goals of Ral")
	assert.Contains(t, stdout.String(), "Ral Peek")
	assert.NotContains(t, stdout.String(), "ops/s", "no other table")

	assert.Contains(t, stdout.String(), " of 5 reached.")

	var again bytes.Buffer
	require.Equal(t, exitOK, execute(t.Context(), []string{"-goals", run}, &again, &stderr), stderr.String())
	assert.Equal(t, stdout.String(), again.String(), "a run that was written shows the same")
}

func TestJSONToStandardOutputIsNothingElse(t *testing.T) {
	var stdout, stderr bytes.Buffer
	require.Equal(t, exitOK, execute(t.Context(), append(quick, "-workloads", "hot-pass", "-json"), &stdout, &stderr))
	var d report.Document
	decoder := json.NewDecoder(&stdout)
	require.NoError(t, decoder.Decode(&d))
	assert.False(t, decoder.More())
	assert.Len(t, d.Workloads, 1)
	assert.Contains(t, stderr.String(), "contender", "the table is there")
}

func TestUnwritableFileCostsNoRun(t *testing.T) {
	var stdout, stderr bytes.Buffer
	file := filepath.Join(t.TempDir(), "no", "such", "folder.json")
	assert.Equal(t, exitUsage, execute(t.Context(), []string{"-json", file}, &stdout, &stderr))
	assert.Contains(t, stderr.String(), file)
	assert.Empty(t, stdout.String())
}

func TestInterruptedRunShowsItsFigures(t *testing.T) {
	var stdout, stderr bytes.Buffer
	// interrupt interrupts a run of a minute after some time.
	interrupt := func(after time.Duration) {
		ctx, cancel := context.WithTimeout(t.Context(), after) // wall: doubled until there is something to show
		defer cancel()
		stdout.Reset()
		stderr.Reset()
		assert.Equal(t, exitInterrupted, execute(ctx, []string{"-workloads", "hot-pass,uniform", "-rounds", "1000", "-duration", "5ms"}, &stdout, &stderr))
		assert.Contains(t, stderr.String(), "interrupted")
		assert.Contains(t, stdout.String(), "INTERRUPTED")
		assert.NotContains(t, stdout.String(), "uniform:")
	}
	const nothing = "Nothing was measured"
	after := 300 * time.Millisecond
	for interrupt(after); strings.Contains(stdout.String(), nothing); interrupt(after) {
		after *= 2
	}
	assert.Contains(t, stdout.String(), "hot-pass")
	assert.Regexp(t, `ONLY\s+\d+\s+OF\s+1000\s+ROUNDS`, stdout.String())

	interrupt(0)
	assert.Contains(t, stdout.String(), nothing)
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

func TestEstimates(t *testing.T) {
	quick, err := parse([]string{"-workloads", "hot-pass"})
	require.NoError(t, err)
	full, err := parse([]string{"-full"})
	require.NoError(t, err)
	estimate := func(s settings) time.Duration {
		return bench.Estimate(s.workloads, s.contenders, s.options(s.progress(io.Discard)))
	}
	assert.Positive(t, estimate(quick))
	assert.Greater(t, estimate(full), 10*estimate(quick))
}
