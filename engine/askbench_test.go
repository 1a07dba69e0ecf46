package engine

import (
	"net/netip"
	"testing"
	"time"

	"github.com/ral-limiter/ral/limits"
	"github.com/ral-limiter/ral/policy"
)

// BenchmarkAsk measures the cost of limits.Limiter over Take: at most 5 ns. It alternates a few
// calls of each, and reports the fastest, which a busy machine changes least.
func BenchmarkAsk(b *testing.B) {
	for _, of := range []struct {
		name   string
		policy policy.Policy
	}{
		{"admitted", policy.Must(policy.Funnel(1<<40, 1<<20, time.Second))},
		{"refused", policy.Must(policy.Funnel(1, 1, 24*time.Hour))},
	} {
		b.Run(of.name, func(b *testing.B) {
			e, key, ctx := open[netip.Addr](b, Config{Policy: of.policy}), netip.MustParseAddr("192.0.2.1"), b.Context()
			e.Choke(key)
			settled(b, e)
			var l limits.Limiter[netip.Addr] = e
			const calls = 256
			direct, through := time.Hour, time.Hour
			b.ReportAllocs()
			for b.Loop() {
				began := time.Now()
				for range calls {
					e.Take(key, 1)
				}
				between := time.Now()
				for range calls {
					_, _ = l.Ask(ctx, key, 1)
				}
				ended := time.Now()
				direct, through = min(direct, between.Sub(began)), min(through, ended.Sub(between))
			}
			b.ReportMetric(float64(direct)/calls, "Take-ns")
			b.ReportMetric(float64(through)/calls, "Ask-ns")
			b.ReportMetric(float64(through-direct)/calls, "more-ns")
		})
	}
}
