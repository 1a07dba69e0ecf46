package servebench

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/bench"
	"github.com/ral-limiter/ral/internal/testkit/child"
	"github.com/ral-limiter/ral/internal/testkit/must"
)

func workloads(t *testing.T, names ...string) []bench.Workload {
	return must.Get(bench.Select(Workloads(0.001), names))
}

// All servers answer each generator.
func TestRunOverTheNetwork(t *testing.T) {
	if testing.Short() {
		t.Skip("the first build of the servers takes minutes, and needs the network")
	}
	some := Workloads(0.001)
	require.NoError(t, Missing(some), "make needs installs it")
	r, redis, err := Run(t.Context(), some, bench.Options{Duration: 10 * time.Millisecond, Rounds: 2})
	require.NoError(t, err)
	require.Len(t, r.Workloads, len(some))
	assert.Regexp(t, `^\d+\.\d+`, redis)
	for i, w := range r.Workloads {
		assert.Equal(t, some[i].Name, w.Name)
		want := []string{GoFloor, Ping, Rald, Script}
		if isEnvoy(w.Name) {
			want = []string{GRPCFloor, Rald, Reference}
		}
		var names []string
		for _, s := range w.Results {
			names = append(names, s.Name)
			require.Len(t, s.Rounds, 2, "%s, %s", w.Name, s.Name)
			for i, round := range s.Rounds {
				assert.Positive(t, round.OpsPerSecond(), "%s, %s", w.Name, s.Name)
				assert.Equal(t, w.Name != Envoy, len(s.LatencyRounds) > i, "%s, %s", w.Name, s.Name)
			}
		}
		assert.Equal(t, want, names)
	}
	assert.False(t, r.Interrupted)
}

func TestInterruptedRunIsNoErrorWithProcesses(t *testing.T) {
	if testing.Short() {
		t.Skip("it builds rald, as a test of the command does")
	}
	ctx, cancel := context.WithCancel(t.Context())
	r, _, err := Run(ctx, workloads(t, TCP), bench.Options{Duration: time.Millisecond, Rounds: 100_000, Progress: func(p bench.Progress) {
		if p.Round > 1 {
			cancel()
		}
	}})
	require.NoError(t, err)
	assert.True(t, r.Interrupted)
}

func TestScriptIsCLThrottle(t *testing.T) {
	s, err := child.OpenRedis(child.RedisConfig{})
	require.NoError(t, err, "make needs installs it")
	defer func() { require.NoError(t, s.Close()) }()
	c := redis.NewClient(&redis.Options{Addr: s.Addr()})
	defer c.Close()
	for _, step := range []struct {
		quantity int
		want     []int64
	}{
		{1, []int64{0, 16, 15, -1, 3600}},
		{15, []int64{0, 16, 0, -1, 57600}},
		{1, []int64{1, 16, 0, 3600, 57600}},
		{16, []int64{1, 16, 0, 57600, 57600}},
	} {
		got := must.Get(c.Eval(t.Context(), gcra, []string{"key"}, 15, 1, 3600, step.quantity).Int64Slice())
		assert.Equal(t, step.want[:3], got[:3])
		assert.InDeltaSlice(t, step.want[3:], got[3:], 60, "seconds, of which some have passed")
	}
}

func TestReadsRedisBenchmark(t *testing.T) {
	const names = `"test","rps","avg_latency_ms","min_latency_ms","p50_latency_ms","p95_latency_ms","p99_latency_ms","max_latency_ms"`
	r := must.Get(readCSV(names + "\n" + `"CL.THROTTLE key:__rand_int__ 15 30 60","60192.61","0.537","0.136","0.503","0.839","1.063","3.535"`))
	assert.Equal(t, Round{PerSecond: 60192.61, P50: 503 * time.Microsecond, P99: 1063 * time.Microsecond}, r)
	for _, bad := range []string{"", names, names + "\n" + `"PING","x","0","0","0","0","0","0"`, names + "\n" + `"PING","0","0","0","0","0","0","0"`} {
		_, err := readCSV(bad)
		assert.Error(t, err, bad)
	}
}

func TestReadsH2load(t *testing.T) {
	const text = "starting benchmark...\n\nfinished in 2.19s, 45622.75 req/s, 6.31MB/s\nstatus codes: 100 2xx, 0 3xx, 0 4xx, 0 5xx\n"
	assert.Equal(t, Round{PerSecond: 45622.75}, must.Get(readH2load(text, 100)))
	_, err := readH2load(text, 101)
	assert.ErrorContains(t, err, "other answers than 101 times 200")
	_, err = readH2load(strings.Replace(text, "finished", "began", 1), 100)
	assert.Error(t, err)
}

func TestReadsGhz(t *testing.T) {
	const text = `{"rps": 19876.5, "statusCodeDistribution": {"OK": 3}, "latencyDistribution": [
		{"percentage": 50, "latency": 400000}, {"percentage": 99, "latency": 900000}]}`
	assert.Equal(t, Round{PerSecond: 19876.5, P50: 400 * time.Microsecond, P99: 900 * time.Microsecond}, must.Get(readGhz(text, 3)))
	_, err := readGhz(text, 4)
	assert.ErrorContains(t, err, "other codes than 4 times OK: map[OK:3]")
	_, err = readGhz("server does not support", 3)
	assert.ErrorContains(t, err, "ghz wrote")
}
