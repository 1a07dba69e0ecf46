package engine

import (
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/ral-limiter/ral/policy"
)

// For comparing two versions of the hot path with benchstat. What Ral is worth
// beside others, and the floor, ralbench measures.

func benchChoke(b *testing.B, p policy.Policy, keys []string) {
	e, err := New[string](Config{Policy: p})
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

func BenchmarkChokeHotKeyAdmitted(b *testing.B) {
	benchChoke(b, funnel(1<<40, 1<<20, time.Second), keys(1))
}

func BenchmarkChokeHotKeyRefused(b *testing.B) {
	benchChoke(b, funnel(1, 1, 24*time.Hour), keys(1))
}

func BenchmarkChokeManyKeys(b *testing.B) {
	benchChoke(b, funnel(1<<40, 1<<20, time.Second), keys(100_000))
}

// One operation is a brand-new key, asked by one of as many callers as there are
// processors, until it has been filed.
func BenchmarkChokeNewKeys(b *testing.B) {
	const flood = 250_000
	names := keys(flood)
	callers := runtime.GOMAXPROCS(0)
	b.ReportAllocs()
	for n := 0; n < b.N; n += flood {
		b.StopTimer()
		e, err := New[string](Config{Policy: funnel(1000, 1000, time.Second)})
		if err != nil {
			b.Fatal(err)
		}
		runtime.GC()
		b.StartTimer()
		var group sync.WaitGroup
		for i := range callers {
			group.Go(func() {
				for k := i; k < min(flood, b.N-n); k += callers {
					e.Choke(names[k])
				}
			})
		}
		group.Wait()
		settled(b, e)
		b.StopTimer()
		e.Close()
		b.StartTimer()
	}
}
