package servebench

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/ral-limiter/ral/internal/testkit/must"
)

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
