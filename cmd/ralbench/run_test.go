package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/cmd/ralbench/internal/report"
	"github.com/ral-limiter/ral/internal/testkit/must"
)

var quick = []string{"-scale", "0.001", "-duration", "2ms", "-rounds", "2"}

// run runs ralbench, and returns the exit code and what it wrote.
func run(ctx context.Context, args ...string) (code int, stdout, stderr string) {
	var out, problems bytes.Buffer
	code = execute(ctx, args, &out, &problems)
	return code, out.String(), problems.String()
}

// mustRun is run of a command that succeeds.
func mustRun(t *testing.T, args ...string) (stdout, stderr string) {
	t.Helper()
	code, stdout, stderr := run(t.Context(), args...)
	require.Equal(t, exitOK, code, stderr)
	return stdout, stderr
}

// With -json alone standard output is a document, and the table goes where the progress goes.
func TestRunOfAllPeersAndSomeValuesOfGOMAXPROCS(t *testing.T) {
	stdout, shown := mustRun(t, slices.Concat(quick, []string{"-peers", "all", "-cpu", "1,2", "-rounds", "1", "-workloads", "hot-pass,flood-full,verbs,memory", "-json", "-"})...)
	var d report.Document
	require.NoError(t, json.Unmarshal([]byte(stdout), &d))
	assert.Equal(t, report.Schema, d.Schema)
	assert.Equal(t, []int{1, 2}, d.Settings.CPUs)
	assert.Equal(t, 0.001, d.Settings.Scale)
	assert.NotEmpty(t, d.Machine.Go)
	assert.NotEmpty(t, d.Machine.Commit)
	assert.Positive(t, d.Machine.Cores)

	var got []string
	seen := map[string]bool{}
	for _, w := range d.Workloads {
		got = append(got, fmt.Sprint(w.Name, " ", w.CPU, " ", w.Callers))
		for _, r := range w.Results {
			seen[r.Name] = true
			assert.Equal(t, w.Name == "memory", r.Memory != nil, w.Name)
			assert.Positive(t, r.NsPerOp.Median, "%s, %s", w.Name, r.Name)
			assert.Equal(t, r.IsLimiter(), r.Audit != nil, "%s, %s", w.Name, r.Name)
		}
	}
	assert.Equal(t, []string{"hot-pass 1 1", "hot-pass 2 2", "flood-full 1 1", "flood-full 2 2", "verbs 1 1", "verbs 2 1", "memory 1 1", "memory 2 2"}, got)
	here, missing, err := choose([]string{allPeers}, false, nil)
	require.NoError(t, err)
	for _, c := range here {
		assert.True(t, seen[c.Name], c.Name)
	}
	for _, name := range missing {
		assert.Contains(t, shown, name+" is left out")
	}
	for _, want := range []string{
		"by estimate", "flood-full/1 (3 of 8)", "flood-full/1 took", // progress in plain lines
		"SCALED", "\nhot-pass, GOMAXPROCS 2: ", "GOMAXPROCS 1, 2, ", "heap of 1,000 keys, with the 13,000 bytes of their names if it keeps them",
	} {
		assert.Contains(t, shown, want)
	}
	assert.NotContains(t, shown, "\x1b", "no terminal, no escape codes")
}

func TestGoalsAreShownAlone(t *testing.T) {
	file := filepath.Join(t.TempDir(), "run.json")
	stdout, _ := mustRun(t, slices.Concat(quick, []string{"-workloads", "verbs", "-goals", "-json", file})...)
	for _, want := range []string{"Goals of Ral", "Ral Peek", "0 of 0 reached; 5 others not judged"} {
		assert.Contains(t, stdout, want, "two rounds are too few")
	}
	assert.NotContains(t, stdout, "ops/s", "no other table")
	again, _ := mustRun(t, "-goals", file)
	assert.Equal(t, stdout, again, "a run that was written shows the same")
}

func TestInterruptedRunShowsItsFigures(t *testing.T) {
	// interrupted shows a run of a minute that ends after some time.
	interrupted := func(after time.Duration) string {
		ctx, cancel := context.WithTimeout(t.Context(), after) // wall: doubled until there is something to show
		defer cancel()
		code, stdout, stderr := run(ctx, "-workloads", "hot-pass,uniform", "-rounds", "1000", "-duration", "5ms")
		assert.Equal(t, exitInterrupted, code)
		assert.Contains(t, stderr, "interrupted")
		assert.Contains(t, stdout, "INTERRUPTED")
		assert.NotContains(t, stdout, "uniform:")
		return stdout
	}
	const nothing = "Nothing was measured"
	assert.Contains(t, interrupted(0), nothing)
	shown, after := nothing, 150*time.Millisecond
	for strings.Contains(shown, nothing) {
		after *= 2
		shown = interrupted(after)
	}
	assert.Contains(t, shown, "hot-pass")
	assert.Regexp(t, `\d+\s+of\s+1000\s+rounds`, shown)
}

func TestFilesOfNoUseCostNoRun(t *testing.T) {
	folder := t.TempDir()
	foreign, nowhere := filepath.Join(folder, "foreign.json"), filepath.Join(folder, "no", "such")
	require.NoError(t, os.WriteFile(foreign, []byte(`{"hello": 1}`), 0o600))
	for _, c := range []struct {
		args []string
		want []string
	}{
		{[]string{foreign}, []string{foreign, "has no schema"}},
		{[]string{"zipf"}, []string{"zipf", "want a file"}},
		{[]string{"-html", nowhere}, []string{"-html", "such"}},
		{[]string{"-json", nowhere}, []string{nowhere}},
	} {
		code, stdout, stderr := run(t.Context(), c.args...)
		assert.Equal(t, exitUsage, code, c.args)
		assert.Empty(t, stdout, c.args)
		for _, want := range c.want {
			assert.Contains(t, stderr, want, c.args)
		}
	}
}

func TestRunIsShownWithoutMeasuring(t *testing.T) {
	page, benchmarks := filepath.Join(t.TempDir(), "report.html"), filepath.Join(t.TempDir(), "report.txt")
	stdout, stderr := mustRun(t, "-o", benchmarks, "-html", page, "testdata/report.json")
	assert.Empty(t, stderr, "no progress: nothing is measured")
	assert.Contains(t, stdout, "hot-pass, GOMAXPROCS 2: one hot key")
	assert.FileExists(t, page)
	assert.Contains(t, read(benchmarks), "\nBenchmarkCall/workload=hot-pass/limiter=Ral-2 ")
}

func read(file string) string { return string(must.Get(os.ReadFile(file))) }
