package engine

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"
)

// BenchmarkBuiltAnew measures Choke among keys whose texts each call builds anew in a small buffer,
// as a server builds them from a header or an address. So the text that the table has stored is
// memory that no caller has read lately. Figures are of processor time.
func BenchmarkBuiltAnew(b *testing.B) {
	for _, length := range []int{13, 24, 36, 51} {
		for _, n := range []int{1, 100_000, 1_000_000} {
			b.Run(fmt.Sprintf("length=%d/keys=%d", length, n), func(b *testing.B) {
				e, err := New[string](Config{Policy: funnel(1<<40, 1<<20, time.Second), MaxKeys: n * 11 / 10})
				if err != nil {
					b.Fatal(err)
				}
				defer e.Close()
				name := make([]byte, length)
				for _, i := range rand.New(rand.NewPCG(1, 1)).Perm(n) {
					e.Choke(string(nameOf(name, uint32(i))))
				}
				settled(b, e)
				runtime.GC()
				b.ResetTimer()
				var passed atomic.Uint64
				b.RunParallel(func(pb *testing.PB) {
					random, sum := rand.NewPCG(rand.Uint64(), 1), uint64(0)
					name := make([]byte, length)
					for pb.Next() {
						nameOf(name, uint32(random.Uint64()%uint64(n)))
						if e.Choke(unsafe.String(&name[0], length)) {
							sum++
						}
					}
					passed.Add(sum)
				})
				callers := float64(runtime.GOMAXPROCS(0))
				b.ReportMetric(callers*float64(b.Elapsed())/float64(b.N), "cpu-ns/op")
			})
		}
	}
}

// nameOf fills name with the i-th key's text.
func nameOf(name []byte, i uint32) []byte {
	for j := range name {
		name[len(name)-1-j] = '0' + byte(i%10)
		i /= 10
	}
	return name
}
