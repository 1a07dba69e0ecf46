package main

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/bench"
	"github.com/ral-limiter/ral/cmd/ralbench/fleetbench"
	"github.com/ral-limiter/ral/cmd/ralbench/report"
)

func TestFlagsOfFleetMode(t *testing.T) {
	s, err := parse([]string{"-fleet"})
	require.NoError(t, err)
	assert.Equal(t, bench.Names(fleetbench.Workloads(1)), bench.Names(s.workloads))
	assert.Equal(t, []string{fleetbench.RedisRate, fleetbench.Exact, fleetbench.Leased, fleetbench.ExactByDefault, fleetbench.LeasedByDefault, fleetbench.EngineTake, fleetbench.EngineChoke}, s.record().Contenders)
	assert.Equal(t, fleetDuration, s.duration)
	assert.Equal(t, defaultRounds, s.rounds)
	assert.Equal(t, fleetBudget, s.budget)
	assert.Equal(t, fleetShare, s.share)
	assert.True(t, s.record().Fleet)
	o := s.fleetOptions("server", s.progress(io.Discard))
	assert.Equal(t, memoryKeys, o.Keys)
	assert.Equal(t, []bench.Limit{shareLimit}, o.Limits)
	assert.Equal(t, "server", o.Server)
	estimate := func() time.Duration { return bench.Estimate(o.Workloads, s.contenders, o.Bench) + o.Share }
	assert.InDelta(t, 57, estimate().Seconds(), 20, "about a minute")

	s, err = parse([]string{"-fleet", "-full"})
	require.NoError(t, err)
	assert.Equal(t, fleetFullDuration, s.duration)
	assert.Equal(t, fullRounds, s.rounds)
	assert.Equal(t, fleetFullShare, s.share)
	assert.Zero(t, s.budget)
	o = s.fleetOptions("server", s.progress(io.Discard))
	assert.Equal(t, []bench.Limit{shareLimit, smallShareLimit}, o.Limits)
	assert.InDelta(t, 240, estimate().Seconds(), 40, "about four minutes")

	s, err = parse([]string{"-fleet", "-full", "-duration", "3ms", "-rounds", "2", "-share", "0", "-scale", "0.01", "-workloads", "fleet-keys"})
	require.NoError(t, err)
	assert.Equal(t, 3*time.Millisecond, s.duration)
	assert.Equal(t, 2, s.rounds)
	assert.Zero(t, s.share)
	assert.Equal(t, 100, s.workloads[0].Keys)
	assert.Equal(t, 100, s.fleetOptions("", s.progress(io.Discard)).Keys)

	s, err = parse(nil)
	require.NoError(t, err)
	assert.False(t, s.record().Fleet)
	assert.Zero(t, s.share)
}

func TestFleetModeWithoutRedisSaysHowToInstallIt(t *testing.T) {
	withoutRedis(t)
	var stdout, stderr bytes.Buffer
	assert.Equal(t, exitFailed, execute(t.Context(), []string{"-fleet"}, &stdout, &stderr))
	assert.Empty(t, stdout.String())
	assert.Contains(t, stderr.String(), "there is no redis-server here")
	assert.Contains(t, stderr.String(), "apt-get install redis-server")
}

func TestFleetModeOnARedisThatDoesNotStartFails(t *testing.T) {
	withRedis(t) // which is no program
	var stdout, stderr bytes.Buffer
	assert.Equal(t, exitFailed, execute(t.Context(), []string{"-fleet"}, &stdout, &stderr))
	assert.Contains(t, stderr.String(), "starting")
	assert.Contains(t, stdout.String(), "Nothing was measured")
}

func TestRunOfFleetMode(t *testing.T) {
	file, page := filepath.Join(t.TempDir(), "out.json"), filepath.Join(t.TempDir(), "out.html")
	var stdout, stderr bytes.Buffer
	args := []string{"-fleet", "-workloads", "fleet-hot", "-rounds", "1", "-duration", "2ms", "-share", "200ms", "-scale", "0.01", "-json", file, "-html", page}
	require.Equal(t, exitOK, execute(t.Context(), args, &stdout, &stderr), stderr.String())
	for _, part := range []string{"fleet-hot (1 of 3)", "memory in Redis (2 of 3)", "usable share (3 of 3)", "usable share took"} {
		assert.Contains(t, stderr.String(), "ralbench: "+part)
	}
	table := stdout.String()
	assert.Contains(t, table, "SCALED")
	for _, title := range []string{"fleet-hot: 64 callers", "goals: ", "what Redis does: ", "memory in Redis: ", "usable share of the limit: "} {
		assert.Contains(t, table, "\n"+title)
	}
	assert.NotContains(t, table+stderr.String(), "\x1b", "no terminal, no escape codes")

	written, err := os.ReadFile(file)
	require.NoError(t, err)
	d, err := report.Decode(bytes.NewReader(written))
	require.NoError(t, err)
	assert.Len(t, d.Fleet.Work, 5)
	assert.Len(t, d.Fleet.Memory, 3)
	assert.Len(t, d.Fleet.Shares, 6)
	assert.NotNil(t, d.Workloads[0].Results[0].Latency)
	var again bytes.Buffer
	require.NoError(t, d.WriteJSON(&again))
	assert.Equal(t, string(written), again.String(), "there and back")
	shown, err := os.ReadFile(page)
	require.NoError(t, err)
	assert.Contains(t, string(shown), `id="fleet"`)

	var later bytes.Buffer
	require.Equal(t, exitOK, execute(t.Context(), []string{file}, &later, &stderr))
	_, goals, _ := strings.Cut(table, "\ngoals: ")
	goals, _, _ = strings.Cut(goals, "\nops/s by the clock")
	assert.Contains(t, later.String(), goals)
}
