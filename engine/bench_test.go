package engine

import (
	"fmt"
	"hash/maphash"
	"math/rand/v2"
	"runtime"
	"sync/atomic"
	"testing"
	"time"
)

// BenchmarkSteps measures a call on a known key step by step, each with all before:
// docs/experiments.md. GOMAXPROCS callers draw keys at random; figures are of processor time.
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
