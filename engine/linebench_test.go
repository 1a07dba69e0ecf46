package engine

import (
	"context"
	"errors"
	"fmt"
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
