package store_test

import (
	"context"
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/fleet/internal/redistest"
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

// BenchmarkChargeEach charges 64 keys by each script. It reports how long Redis works for a
// key: in the script, and in all. Keys are new, or they have the word of a charge before:
// the same word, or each its own.
func BenchmarkChargeEach(b *testing.B) {
	const keys = 64
	for _, p := range []policy.Policy{
		policy.Must(policy.Funnel(100_000, 1, time.Hour)),
		policy.Must(policy.FixedWindow(1_000_000, time.Hour)),
		policy.Must(policy.SlidingWindow(1_000_000, time.Hour)),
	} {
		for _, state := range []string{"new", "alike", "all different"} {
			b.Run(fmt.Sprintf("%v/%s", p, state), func(b *testing.B) {
				redis, err := redistest.Open(redistest.Options{})
				require.NoError(b, err)
				defer redis.Close()
				client := redis.Client(b)
				s := store.New(client, store.Options{Name: "n"})
				l := limit(b, s, p)
				scripts := make([][]store.Debt, b.N)
				for i := range scripts {
					for k := range keys {
						d := store.Debt{Tail: store.Tail(fmt.Sprint(i, " ", k)), Units: 1}
						scripts[i] = append(scripts[i], d)
						if state == "all different" {
							d.Units += int64(k)
						}
						if state != "new" {
							require.NoError(b, s.ChargeEach(b.Context(), l, []store.Debt{d})[0])
						}
					}
				}
				before, worked := workOf(b, redis), redis.ProcessorTime(b)
				b.ResetTimer()
				for _, debts := range scripts {
					for _, err := range s.ChargeEach(b.Context(), l, debts) {
						require.NoError(b, err)
					}
				}
				b.StopTimer()
				b.ReportMetric(float64(workOf(b, redis).usec-before.usec)/keys/float64(b.N), "µs/key-script")
				b.ReportMetric(float64((redis.ProcessorTime(b)-worked).Microseconds())/keys/float64(b.N), "µs/key-redis")
			})
		}
	}
}
