package main

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/bench"
	"github.com/ral-limiter/ral/cmd/ralbench/servebench"
)

func TestFlagsOfServers(t *testing.T) {
	s, err := parse([]string{"-serve"})
	require.NoError(t, err)
	assert.Equal(t, bench.Names(servebench.Workloads(1)), bench.Names(s.workloads))
	assert.Equal(t, serveDuration, s.duration)
	assert.Equal(t, defaultRounds, s.rounds)
	assert.True(t, s.record().Serve)
	s, err = parse([]string{"-serve", "-full", "-rounds", "2", "-workloads", servebench.TCP})
	require.NoError(t, err)
	assert.Equal(t, serveFullDuration, s.duration)
	assert.Equal(t, []string{servebench.TCP}, bench.Names(s.workloads))
	for _, flag := range []string{"-fleet", "-goals", "-peers=none", "-cpu=1", "-budget=1s", "-share=5s", "-o=x", "-workloads=fleet-hot"} {
		_, err := parse([]string{"-serve", flag})
		assert.Error(t, err, flag)
	}
}

func TestServersThatAreMissing(t *testing.T) {
	withoutRedis(t)
	var stdout, stderr bytes.Buffer
	assert.Equal(t, exitFailed, execute(t.Context(), []string{"-serve"}, &stdout, &stderr))
	assert.Contains(t, stderr.String(), "install")
}

func TestRunOfServers(t *testing.T) {
	file, page := filepath.Join(t.TempDir(), "out.json"), filepath.Join(t.TempDir(), "out.html")
	var stdout, stderr bytes.Buffer
	args := []string{"-serve", "-workloads", servebench.TCP, "-rounds", "1", "-duration", (10 * time.Millisecond).String(), "-json", file, "-html", page}
	require.Equal(t, exitOK, execute(t.Context(), args, &stdout, &stderr), stderr.String())
	assert.Contains(t, stderr.String(), "ralbench: serve-tcp (1 of 1)")
	for _, text := range []string{"\nserve-tcp: redis-benchmark", "\ngoals: ", " rald ", " Redis, Lua GCRA ", " Redis, PING ", "at least 0.8"} {
		assert.Contains(t, stdout.String(), text)
	}
	shown, err := os.ReadFile(page)
	require.NoError(t, err)
	assert.Contains(t, string(shown), `id="serve"`)
	assert.Contains(t, string(shown), "Redis, Lua GCRA")
	assert.NotContains(t, string(shown), `id="audit"`)

	var later bytes.Buffer
	require.Equal(t, exitOK, execute(t.Context(), []string{file}, &later, &stderr), stderr.String())
	assert.Equal(t, stdout.String(), later.String(), "without measuring, the same comes of it")
}
