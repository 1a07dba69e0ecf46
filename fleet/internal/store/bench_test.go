package store_test

import (
	"context"
	"strconv"
	"testing"
	"time"

	"github.com/ral-limiter/ral/fleet/internal/store"
	"github.com/ral-limiter/ral/policy"
)

// BenchmarkTake is a call in Redis, made by 64 callers a processor on 10,000 keys.
func BenchmarkTake(b *testing.B) {
	client := connect(b, shared)
	for _, p := range []policy.Policy{
		policy.Must(policy.Funnel(100, 1_000_000, time.Second)), // all pass
		policy.Must(policy.Funnel(1, 1, time.Hour)),             // all are refused but the first
		policy.Must(policy.FixedWindow(1_000_000, time.Minute)),
		policy.Must(policy.SlidingWindow(1_000_000, time.Minute)),
		newLog(b, 100, time.Second),
	} {
		b.Run(p.String(), func(b *testing.B) {
			s := store.New(client, store.Options{Name: own(b)})
			l := limit(b, s, p)
			keys := make([]string, 10_000)
			for i := range keys {
				keys[i] = strconv.Itoa(i)
			}
			b.ReportAllocs()
			b.SetParallelism(64)
			b.RunParallel(func(pb *testing.PB) {
				for i := 0; pb.Next(); i++ {
					if _, err := s.Take(context.Background(), l, keys[i%len(keys)], 1, 0); err != nil {
						b.Error(err)
						return
					}
				}
			})
		})
	}
}
