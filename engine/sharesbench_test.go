package engine

import (
	"math/rand/v2"
	"runtime"
	"testing"
	"time"

	"github.com/ral-limiter/ral/policy"
)

// BenchmarkShares measures a call of one of 100,000 tenants, drawn at random, beside Choke on an engine
// with the same keys. bytes/key is the memory of a tenant, without the caller's key.
func BenchmarkShares(b *testing.B) {
	const tenants = 100_000
	names := keys(tenants)
	ceiling := funnel(1<<40, 1<<20, time.Second)
	shares := func(limit, ceiling policy.Policy) func(b *testing.B) func(string) bool {
		return func(b *testing.B) func(string) bool {
			s := newShares(b, SharesConfig[string]{
				Total:     funnel(1<<49, 15_000_000, time.Second),
				Reserved:  funnel(1<<48, 14_000_000, time.Second),
				Guarantee: func(string) policy.Policy { return limit },
				Ceiling:   func(string) policy.Policy { return ceiling },
			})
			return func(name string) bool { return s.Take(name, 1).Allowed }
		}
	}
	for _, c := range []struct {
		name string
		open func(b *testing.B) func(string) bool
	}{
		{"Choke", func(b *testing.B) func(string) bool {
			e := open[string](b, Config{Policy: funnel(1<<40, 1<<20, time.Second)})
			return e.Choke
		}},
		{"guaranteed", shares(funnel(1<<30, 100, time.Second), nil)},
		{"borrowed", shares(funnel(1, 1, 100*24*time.Hour), nil)},
		{"ceiling", shares(funnel(1, 1, 100*24*time.Hour), ceiling)},
	} {
		b.Run(c.name, func(b *testing.B) {
			before := liveBytes()
			call := c.open(b)
			// The first call uses up a guarantee of one unit.
			for range 2 {
				for _, name := range names {
					call(name)
				}
			}
			memory := (float64(liveBytes()) - float64(before)) / tenants
			random := rand.NewPCG(1, 58)
			b.ResetTimer()
			for range b.N {
				if !call(names[random.Uint64()%tenants]) {
					b.Fatal("refused")
				}
			}
			b.ReportMetric(memory, "bytes/key")
		})
		b.Run(c.name+", two callers", func(b *testing.B) {
			call := c.open(b)
			for range 2 {
				for _, name := range names {
					call(name)
				}
			}
			b.ResetTimer()
			together(2, func(caller int) {
				random := rand.NewPCG(uint64(caller), 58)
				for range b.N / 2 {
					call(names[random.Uint64()%tenants])
				}
			})
		})
	}
}

func liveBytes() uint64 {
	// Pools and finalizers keep memory for a cycle or two.
	for range 3 {
		runtime.GC()
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
