package engine

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"
)

// One operation is a call that finds so many in line, and is told that its turn would come
// too late.
func BenchmarkJoinLine(b *testing.B) {
	for _, waiting := range []int{1, 100, 1000} {
		b.Run(fmt.Sprintf("waiting=%d", waiting), func(b *testing.B) {
			e, err := New[string](Config{Policy: funnel(1, 1, time.Hour), MaxWaiting: 2000})
			if err != nil {
				b.Fatal(err)
			}
			defer e.Close()
			e.Choke("key")
			for range waiting {
				go func() { _ = e.Wait(background, "key", 1) }()
			}
			for late := context.DeadlineExceeded; errors.Is(late, context.DeadlineExceeded); {
				// Until all are there: patience is looked at first.
				ctx, cancel := context.WithTimeout(background, time.Second)
				_, late = e.Acquire(ctx, "key", 1, time.Duration(waiting)*time.Hour)
				cancel()
			}
			for b.Loop() {
				_, _ = e.Acquire(background, "key", 1, 0)
			}
		})
	}
}

// One operation is a call of Wait that need not wait: without any line in the engine, and
// while calls wait for another key.
func BenchmarkWaitAtOnce(b *testing.B) {
	for _, lines := range []int{0, 1} {
		b.Run(fmt.Sprintf("lines=%d", lines), func(b *testing.B) {
			e, err := New[string](Config{Policy: funnel(10_000_000, 10_000_000, time.Second)})
			if err != nil {
				b.Fatal(err)
			}
			defer e.Close()
			if lines > 0 {
				e.Take("other", 10_000_000)
				e.Refund("other", -10_000_000_000) // for a quarter of an hour
				go func() { _ = e.Wait(background, "other", 1) }()
				time.Sleep(50 * time.Millisecond)
			}
			b.ReportAllocs()
			for b.Loop() {
				_ = e.Wait(background, "key", 1)
			}
		})
	}
}

// One operation is a call that stands in a line and is served. The limit allows one every
// 3,333 ns.
func BenchmarkServeLine(b *testing.B) {
	for _, callers := range []int{2, 64} {
		b.Run(fmt.Sprintf("callers=%d", callers), func(b *testing.B) {
			e, err := New[string](Config{Policy: funnel(1, 300_000, time.Second)})
			if err != nil {
				b.Fatal(err)
			}
			defer e.Close()
			b.ReportAllocs()
			var left atomic.Int64
			left.Store(int64(b.N))
			together(callers, func(int) {
				for left.Add(-1) >= 0 {
					_ = e.Wait(background, "key", 1)
				}
			})
		})
	}
}
