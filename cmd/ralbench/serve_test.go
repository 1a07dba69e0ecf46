package main

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/ral-limiter/ral/bench"
	"github.com/ral-limiter/ral/cmd/ralbench/servebench"
)

func TestFlagsOfServers(t *testing.T) {
	s := parsed(t, "-serve")
	assert.Equal(t, bench.Names(servebench.Workloads(1)), bench.Names(s.workloads))
	assert.Equal(t, serveDuration, s.duration)
	assert.Equal(t, defaultRounds, s.rounds)
	assert.True(t, s.record().Serve)
	s = parsed(t, "-serve", "-full", "-rounds", "2", "-workloads", servebench.TCP)
	assert.Equal(t, serveFullDuration, s.duration)
	assert.Equal(t, []string{servebench.TCP}, bench.Names(s.workloads))
	for _, flag := range []string{"-fleet", "-goals", "-peers=none", "-cpu=1", "-budget=1s", "-share=5s", "-o=x", "-workloads=fleet-hot"} {
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
	for _, text := range []string{"\nserve-tcp: redis-benchmark", "\ngoals: ", " rald ", " Redis, Lua GCRA ", " Redis, PING ", " Go, fixed answer ", "at least 0.9"} {
		assert.Contains(t, stdout, text)
	}
	shown := read(page)
	assert.Contains(t, shown, `id="serve"`)
	assert.Contains(t, shown, "Redis, Lua GCRA")
	assert.NotContains(t, shown, `id="audit"`)
	later, _ := mustRun(t, file)
	assert.Equal(t, stdout, later, "without measuring, the same comes of it")
}
