package ralprom_test

import (
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/engine"
	"github.com/ral-limiter/ral/observe/metrics"
	"github.com/ral-limiter/ral/observe/ralprom"
	"github.com/ral-limiter/ral/policy"
)

// A scrape is to take less than 5 ms.
func BenchmarkScrapeMillionKeys(b *testing.B) {
	e, err := engine.New[int](engine.Config{Policy: policy.Must(policy.Funnel(1, 1, time.Hour))})
	require.NoError(b, err)
	defer e.Close()
	for key := range 1_000_000 {
		e.Choke(key)
	}
	registry := prometheus.NewRegistry()
	require.NoError(b, ralprom.Register(registry, metrics.Engine(e)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := registry.Gather(); err != nil {
			b.Fatal(err)
		}
	}
}
