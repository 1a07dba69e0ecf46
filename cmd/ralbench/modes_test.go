package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/bench"
	"github.com/ral-limiter/ral/cmd/ralbench/internal/fleetbench"
	"github.com/ral-limiter/ral/cmd/ralbench/internal/report"
	"github.com/ral-limiter/ral/cmd/ralbench/internal/servebench"
	"github.com/ral-limiter/ral/internal/testkit/must"
)

func TestFlagsOfFleetMode(t *testing.T) {
	s := parsed(t, "-fleet")
	assert.Equal(t, bench.Names(fleetbench.Workloads(1)[:8]), bench.Names(s.workloads))
	assert.Equal(t, []string{fleetbench.RedisRate, fleetbench.Exact, fleetbench.Leased, fleetbench.ExactByDefault, fleetbench.LeasedByDefault, fleetbench.EngineTake, fleetbench.EngineChoke}, s.record().Contenders)
	assert.True(t, s.record().Fleet)
	for _, c := range []struct {
		flags     string
		duration  time.Duration
		rounds    int
		budget    time.Duration
		workloads int
	}{
		{"", fleetDuration, defaultRounds, fleetBudget, 8},
		{" -full", fleetFullDuration, fullRounds, 0, 11},
		{" -full -duration 3ms -rounds 2 -scale 0.01 -workloads fleet-keys", 3 * time.Millisecond, 2, 0, 1},
	} {
		s := parsed(t, strings.Fields("-fleet"+c.flags)...)
		assert.Equal(t, c.duration, s.Duration, c.flags)
		assert.Equal(t, c.rounds, s.Rounds, c.flags)
		assert.Equal(t, c.budget, s.Budget, c.flags)
		assert.Len(t, s.workloads, c.workloads, c.flags)
	}
	s = parsed(t)
	assert.False(t, s.record().Fleet)
}

func TestRunOfManyCores(t *testing.T) {
	assert.Equal(t, []int{1, 2, 4, 8, 12}, powersOfTwo(12))
	assert.Equal(t, []int{1}, powersOfTwo(1))
	s := parsed(t, "-cores")
	assert.Equal(t, []string{"hot-pass", "hot-refused", "uniform", "flood"}, bench.Names(s.workloads))
	assert.Equal(t, powersOfTwo(runtime.GOMAXPROCS(0)), s.CPUs)
	assert.Equal(t, []string{coresJSON, coresHTML}, []string{s.json, s.html})
	assert.Equal(t, withAlways(), general(s))
	for _, flag := range []string{"-fleet", "-serve", "-goals", "-peers=none"} {
		_, err := parse([]string{"-cores", flag})
		assert.Error(t, err, flag)
	}

	t.Chdir(t.TempDir())
	stdout, stderr := mustRun(t, slices.Concat(quick, []string{"-cores", "-cpu", "1,2"})...)
	assert.Contains(t, stderr, coresJSON+" and "+coresHTML)
	assert.Regexp(t, `(?m)^ hot-pass +by the model +\d`, stdout)
	page := read(coresHTML)
	assert.Contains(t, page, "Ral by cores")
	assert.Contains(t, page, `"contender":"Ral by the model"`)
	assert.Contains(t, page, " -cores ")
	again, _ := mustRun(t, coresJSON)
	assert.Equal(t, stdout, again, "the file has all")
	d, err := report.Read(coresJSON)
	require.NoError(t, err)
	assert.Positive(t, d.Transfer)
}

func TestMissingCompilerIsSaid(t *testing.T) {
	if os.Getenv("RALBENCH_WITHOUT_COMPILER") == "" {
		// The program is built once in a process.
		c := exec.CommandContext(t.Context(), must.Get(os.Executable()), "-test.run", "^TestMissingCompilerIsSaid$")
		c.Env = append(os.Environ(), "RALBENCH_WITHOUT_COMPILER=1", "PATH="+t.TempDir())
		out, err := c.CombinedOutput()
		require.NoError(t, err, "%s", out)
		return
	}
	stdout, stderr := mustRun(t, slices.Concat(quick, []string{"-peers", "none", "-workloads", "hot-pass"})...)
	assert.Contains(t, stderr, "C floor is left out: it needs a C compiler: ")
	assert.NotContains(t, stdout, "C floor")
	assert.Contains(t, stdout, "xsync map")
}

func TestMissingProgramsAreNamed(t *testing.T) {
	withoutRedis(t)
	for mode, want := range map[string]string{"-fleet": "apt-get install redis-server", "-serve": "install"} {
		code, stdout, stderr := run(t.Context(), mode)
		assert.Equal(t, exitFailed, code, mode)
		assert.Empty(t, stdout, mode)
		assert.Contains(t, stderr, want)
	}
	withRedis(t) // which is no program
	code, stdout, stderr := run(t.Context(), "-fleet")
	assert.Equal(t, exitFailed, code)
	assert.Contains(t, stderr, "starting")
	assert.Contains(t, stdout, "Nothing was measured")
}

func TestRunOfFleetMode(t *testing.T) {
	file, page := filepath.Join(t.TempDir(), "out.json"), filepath.Join(t.TempDir(), "out.html")
	table, progress := mustRun(t, "-fleet", "-workloads", "fleet-hot,fleet-memory,fleet-share-even-1000", "-rounds", "1", "-duration", "2ms", "-scale", "0.01", "-json", file, "-html", page)
	for _, part := range []string{"fleet-hot (1 of 3)", "fleet-memory (2 of 3)", "fleet-share-even-1000 (3 of 3)", "fleet-share-even-1000 took"} {
		assert.Contains(t, progress, "ralbench: "+part)
	}
	assert.Contains(t, table, "SCALED")
	for _, title := range []string{"fleet-hot: 64 callers", "fleet-memory: ", "fleet-share-even-1000: usable share", "Goals of Ral: "} {
		assert.Contains(t, table, "\n"+title)
	}
	assert.NotContains(t, table+progress, "\x1b", "no terminal, no escape codes")

	written := read(file)
	d, err := report.Decode(strings.NewReader(written))
	require.NoError(t, err)
	require.Len(t, d.Workloads, 3)
	assert.Contains(t, d.Settings.Args, "-fleet", "the page says how to repeat the run")
	assert.Positive(t, d.Workloads[0].Results[0].Over(bench.Pass.BehindNsPerOp).Median)
	assert.NotNil(t, d.Workloads[0].Results[0].Latency)
	assert.Len(t, d.Workloads[1].Results, 3)
	assert.Positive(t, d.Workloads[2].Results[0].Share)
	var again bytes.Buffer
	require.NoError(t, d.WriteJSON(&again))
	assert.Equal(t, written, again.String(), "there and back")
	assert.Contains(t, read(page), "Fleet mode on Redis")

	later, _ := mustRun(t, file)
	_, goals, _ := strings.Cut(table, "\nGoals of Ral: ")
	goals, _, _ = strings.Cut(goals, "\nops/s by the clock")
	assert.Contains(t, later, goals)
}

func TestBreachesOfFleetModeAreFailures(t *testing.T) {
	over := &bench.Audit{Over: 3, Admitted: 10, Passes: 2, OverPasses: 1}
	result := func(name string, audit *bench.Audit) bench.Result {
		return bench.Result{Contender: bench.Contender{Name: name, Exact: true}, Audit: audit}
	}
	refused := bench.WorkloadReport{Workload: bench.Workload{Name: fleetbench.Refused}, CPU: 2, Results: []bench.Result{
		result(fleetbench.RedisRate, over), result(fleetbench.Exact, new(bench.Audit)),
	}}
	d := report.Document{Report: bench.Report{Workloads: []bench.WorkloadReport{refused}}}
	s := parsed(t, "-fleet")
	assert.NoError(t, s.breach(d), "a peer's own concern")
	refused.Results[1].Audit = over
	assert.ErrorContains(t, s.breach(d), "Ral fleet exact admits more than its limit: fleet-refused (2 CPUs), 1 of 2 passes")
	assert.NoError(t, parsed(t).breach(d), "the verdict says so, and the exit code does not")
}

func TestServeRefusesFlagsOfOtherModes(t *testing.T) {
	s := parsed(t, "-serve")
	assert.Equal(t, bench.Names(servebench.Workloads(1)), bench.Names(s.workloads))
	assert.Equal(t, serveDuration, s.Duration)
	assert.Equal(t, defaultRounds, s.Rounds)
	assert.True(t, s.record().Serve)
	s = parsed(t, "-serve", "-full", "-rounds", "2", "-workloads", servebench.TCP)
	assert.Equal(t, serveFullDuration, s.Duration)
	assert.Equal(t, []string{servebench.TCP}, bench.Names(s.workloads))
	for _, flag := range []string{"-fleet", "-goals", "-peers=none", "-cpu=1", "-budget=1s", "-workloads=fleet-hot"} {
		_, err := parse([]string{"-serve", flag})
		assert.Error(t, err, flag)
	}
}

func TestRunOfServersWithProcesses(t *testing.T) {
	if testing.Short() {
		t.Skip("builds and starts rald, beside Redis and its generator of load")
	}
	file, page := filepath.Join(t.TempDir(), "out.json"), filepath.Join(t.TempDir(), "out.html")
	stdout, stderr := mustRun(t, "-serve", "-workloads", servebench.TCP, "-rounds", "1", "-duration", "10ms", "-json", file, "-html", page)
	assert.Contains(t, stderr, "ralbench: serve-tcp (1 of 1)")
	for _, text := range []string{"\nserve-tcp: redis-benchmark", "\nGoals of Ral: ", " rald ", " Redis, Lua GCRA ", " Redis, PING ", " Go, fixed answer ", "at least 0.9"} {
		assert.Contains(t, stdout, text)
	}
	shown := read(page)
	assert.Contains(t, shown, "Rald beside other servers")
	assert.Contains(t, shown, "Redis, Lua GCRA")
	assert.NotContains(t, shown, `id="audit"`)
	later, _ := mustRun(t, file)
	assert.Equal(t, stdout, later, "without measuring, the same comes of it")
}
