package engine

import (
	"fmt"
	"hash/maphash"
	"math/rand/v2"
	"net/netip"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ral-limiter/ral/limits"
	"github.com/ral-limiter/ral/policy"
)

// benchChoke compares versions of the hot path with benchstat. ralbench measures Ral beside others,
// and the floor.

func benchChoke(b *testing.B, config Config, keys []string) {
	e, err := New[string](config)
	if err != nil {
		b.Fatal(err)
	}
	defer e.Close()
	for _, key := range keys {
		e.Choke(key)
	}
	settled(b, e)
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		if i == len(keys) {
			i = 0
		}
		e.Choke(keys[i])
	}
}

func BenchmarkChokeCoarseClock(b *testing.B) {
	var now atomic.Int64
	clock := func() policy.Instant { return policy.Instant(now.Load()) }
	config := Config{Policy: funnel(1<<40, 1<<20, time.Second), Clock: clock}
	b.Run("keys=1", func(b *testing.B) { benchChoke(b, config, keys(1)) })
	b.Run("keys=100000", func(b *testing.B) { benchChoke(b, config, keys(100_000)) })
}

// BenchmarkSteps measures a call on a known key step by step, each with all before:
// docs/performance.md. GOMAXPROCS callers draw keys at random; figures are of processor time.
func BenchmarkSteps(b *testing.B) {
	epoch := time.Now()
	steps := []struct {
		name string
		call func(e *Engine[string], key string) uint64
	}{
		{"draw", func(_ *Engine[string], key string) uint64 { return uint64(len(key)) }},
		{"hash", func(e *Engine[string], key string) uint64 {
			return maphash.Comparable(e.table.View().Seed(), key)
		}},
		{"clock", func(e *Engine[string], key string) uint64 {
			return maphash.Comparable(e.table.View().Seed(), key) + uint64(time.Since(epoch))
		}},
		{"find", func(e *Engine[string], key string) uint64 {
			view := e.table.View()
			hash := maphash.Comparable(view.Seed(), key)
			now := uint64(time.Since(epoch))
			return view.Load(hash, key).Word() + now
		}},
		{"swap", func(e *Engine[string], key string) uint64 {
			view := e.table.View()
			hash := maphash.Comparable(view.Seed(), key)
			now := uint64(time.Since(epoch))
			entry := view.Load(hash, key)
			word := entry.Word()
			entry.Advance(word, word+16)
			return word + now
		}},
		{"Choke", func(e *Engine[string], key string) uint64 {
			if e.Choke(key) {
				return 1
			}
			return 0
		}},
		{"swap-without-clock", func(e *Engine[string], key string) uint64 {
			view := e.table.View()
			entry := view.Load(maphash.Comparable(view.Seed(), key), key)
			word := entry.Word()
			entry.Advance(word, word+16)
			return word
		}},
	}
	for _, n := range []int{1, 100_000} {
		e, err := New[string](Config{Policy: funnel(1<<40, 1<<20, time.Second)})
		if err != nil {
			b.Fatal(err)
		}
		names := keys(n)
		for _, key := range names {
			e.Choke(key)
		}
		settled(b, e)
		for _, step := range steps {
			b.Run(fmt.Sprintf("keys=%d/%s", n, step.name), func(b *testing.B) {
				var sink atomic.Uint64
				b.RunParallel(func(pb *testing.PB) {
					random, sum := rand.NewPCG(rand.Uint64(), 1), uint64(0)
					for pb.Next() {
						sum += step.call(e, names[random.Uint64()%uint64(n)])
					}
					sink.Add(sum)
				})
				callers := float64(runtime.GOMAXPROCS(0))
				b.ReportMetric(callers*float64(b.Elapsed())/float64(b.N), "cpu-ns/op")
			})
		}
		if err := e.Close(); err != nil {
			b.Error(err)
		}
	}
}

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
