package engine

import (
	"testing"
	"time"

	"github.com/ral-limiter/ral/policy"
)

func benchVerb(b *testing.B, call func(e *Engine[string], key string)) {
	e, err := New[string](Config{Policy: funnel(1<<40, 1<<20, time.Second)})
	if err != nil {
		b.Fatal(err)
	}
	defer e.Close()
	names := keys(1000)
	for _, key := range names {
		e.Choke(key)
	}
	settled(b, e)
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		call(e, names[i%len(names)])
	}
}

func BenchmarkTake(b *testing.B) {
	benchVerb(b, func(e *Engine[string], key string) { e.Take(key, 2) })
}

func BenchmarkReserveAndCancel(b *testing.B) {
	benchVerb(b, func(e *Engine[string], key string) {
		r := e.Reserve(key, 2, time.Hour)
		r.Cancel()
	})
}

func BenchmarkRefund(b *testing.B) {
	benchVerb(b, func(e *Engine[string], key string) {
		e.Take(key, 2)
		e.Refund(key, 2)
	})
}

// Calls that need not wait.
func BenchmarkWait(b *testing.B) {
	benchVerb(b, func(e *Engine[string], key string) { _ = e.Wait(background, key, 1) })
}

func BenchmarkAcquireAndCancel(b *testing.B) {
	benchVerb(b, func(e *Engine[string], key string) {
		r, _ := e.Acquire(background, key, 1, 0)
		r.Cancel()
	})
}

func BenchmarkTakeAllOfTwo(b *testing.B) {
	other, err := New[string](Config{Policy: funnel(1<<40, 1<<20, time.Second)})
	if err != nil {
		b.Fatal(err)
	}
	defer other.Close()
	benchVerb(b, func(e *Engine[string], key string) { TakeAll(e.Claim(key, 1), other.Claim("all", 1)) })
}

func benchTiered(b *testing.B, second policy.Policy, call func(t *Tiered[string], key string)) {
	t, err := NewTiered[string](Config{Policy: funnel(1<<40, 1<<20, time.Second)}, second)
	if err != nil {
		b.Fatal(err)
	}
	defer t.Close()
	names := keys(1000)
	for _, key := range names {
		t.Choke(key)
	}
	for _, e := range t.Engines() {
		settled(b, e)
	}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		call(t, names[i%len(names)])
	}
}

func BenchmarkTieredAdmitted(b *testing.B) {
	benchTiered(b, funnel(1<<39, 1<<19, time.Second), func(t *Tiered[string], key string) { t.Choke(key) })
}

func BenchmarkTieredRefused(b *testing.B) {
	benchTiered(b, funnel(1, 1, time.Hour), func(t *Tiered[string], key string) { t.Choke(key) })
}

func BenchmarkTieredTake(b *testing.B) {
	benchTiered(b, funnel(1<<39, 1<<19, time.Second), func(t *Tiered[string], key string) { t.Take(key, 2) })
}
