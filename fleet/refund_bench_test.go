package fleet

import (
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ral-limiter/ral/limits"
	"github.com/ral-limiter/ral/policy"
)

// BenchmarkRefund has 64 callers charge units to one key and give them back, alone and
// while 64 others take from it. It reports how many were done each second, and of a
// hundred: the callers gave up the others.
func BenchmarkRefund(b *testing.B) {
	for _, takers := range []int{0, 64} {
		b.Run(strconv.Itoa(takers)+" takers", func(b *testing.B) {
			c := at(shared.Addr(), policy.Must(policy.FixedWindow(1_000_000, time.Hour)))
			taker, giver := open(b, c), open(b, c)
			var exact atomic.Int64
			var stop atomic.Bool
			var others sync.WaitGroup
			for range takers {
				others.Go(func() {
					for !stop.Load() {
						_, _ = taker.Take(b.Context(), "k", 1)
					}
				})
			}
			defer others.Wait()
			defer stop.Store(true)
			b.SetParallelism(32) // of two processors
			b.ResetTimer()
			b.RunParallel(func(pb *testing.PB) {
				for n := int64(-1); pb.Next(); n = -n { // charges first, so that each writes
					a, err := giver.Refund(b.Context(), "k", n)
					if err != nil {
						b.Error(err)
						return
					}
					if a.Source() == limits.SourceRedis {
						exact.Add(1)
					}
				}
			})
			b.ReportMetric(float64(exact.Load())/b.Elapsed().Seconds(), "done/s")
			b.ReportMetric(100*float64(exact.Load())/float64(b.N), "done%")
		})
	}
}
