package ralprom_test

import (
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/engine"
	"github.com/ral-limiter/ral/metrics"
	"github.com/ral-limiter/ral/metrics/ralprom"
	"github.com/ral-limiter/ral/policy"
)

// BenchmarkScrape gathers an engine of one key, and one of a million.
func BenchmarkScrape(b *testing.B) {
	for name, keys := range map[string]int{"keys=1": 1, "keys=1e6": 1_000_000} {
		b.Run(name, func(b *testing.B) {
			e, err := engine.New[int](engine.Config{Policy: policy.Must(policy.Funnel(1, 1, time.Hour))})
			require.NoError(b, err)
			defer e.Close()
			for key := range keys {
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
		})
	}
}
