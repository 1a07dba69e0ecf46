package lease

import (
	"context"
	"testing"
	"time"

	"github.com/ral-limiter/ral/engine"
	"github.com/ral-limiter/ral/policy"
)

// A key that holds a lease, beside the engine's own Take of a funnel.
func BenchmarkTake(b *testing.B) {
	b.Run("leased", func(b *testing.B) {
		l := rich(b)
		defer l.Close(context.Background())
		b.ReportAllocs()
		b.RunParallel(func(pb *testing.PB) {
			for i := 0; pb.Next(); i++ {
				if i%(maxUnits/8) == 0 {
					refill(l)
				}
				if d, err := l.Take("key", 1, budget, nil); err != nil || !d.Allowed {
					refill(l)
				}
			}
		})
	})
	b.Run("refused", func(b *testing.B) {
		l := rich(b)
		defer l.Close(context.Background())
		l.words.TakeWith(refusal{until: l.instant(time.Now().Add(time.Hour))}, "refused", 1)
		b.ReportAllocs()
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				if d, err := l.Take("refused", 1, budget, nil); err != nil || d.Allowed {
					b.Error("it is not refused")
				}
			}
		})
	})
	for name, capacity := range map[string]int64{"engine/allowed": 1 << 40, "engine/refused": 1} {
		b.Run(name, func(b *testing.B) {
			rate := int64(1 << 20)
			if capacity == 1 {
				rate = 1
			}
			e, err := engine.New[string](engine.Config{Policy: policy.Must(policy.Funnel(capacity, rate, time.Minute))})
			if err != nil {
				b.Fatal(err)
			}
			defer e.Close()
			e.Take("key", 1)
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					e.Take("key", 1)
				}
			})
		})
	}
}
