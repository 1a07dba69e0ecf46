package engine

import (
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
