package table

import (
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ral-limiter/ral/policy"
)

const million = 1_000_000

// sweepBudget is janitor.Budget, which imports this package.
const sweepBudget = 256

func newBench(b *testing.B, keys int) *Table[int] {
	b.Helper()
	return New[int](Options{
		Policy:  policy.Must(policy.Funnel(1, 1, time.Hour)),
		Idle:    time.Minute,
		MaxKeys: keys,
	})
}

func fill(b *testing.B, t *Table[int], keys int) {
	b.Helper()
	for key := range keys {
		e, status := t.View().Open(t.hash(key), key)
		if status != Landed {
			b.Fatal(status)
		}
		e.Advance(tentative, uint64(key+1)<<4)
		t.File(t.hash(e.key), policy.Instant(key+1))
	}
}

// steps keeps how long steps took.
type steps []time.Duration

func (s *steps) time(step func()) {
	begin := time.Now()
	step()
	*s = append(*s, time.Since(begin))
}

func (s steps) report(b *testing.B, per int) {
	slices.Sort(s)
	sum := time.Duration(0)
	for _, d := range s {
		sum += d
	}
	ms := func(d time.Duration) float64 { return float64(d) / 1e6 }
	b.ReportMetric(ms(s[len(s)/2]), "p50-ms/step")
	b.ReportMetric(ms(s[len(s)*99/100]), "p99-ms/step")
	b.ReportMetric(ms(s[len(s)-1]), "max-ms/step")
	b.ReportMetric(float64(sum)/float64(per)/float64(b.N), "ns/key")
	b.ReportMetric(0, "ns/op")
}

// BenchmarkSweep evicts a million expired keys in the steps that a janitor asks
// for. The longest step is what a new key may have to wait.
func BenchmarkSweep(b *testing.B) {
	var s steps
	for range b.N {
		t := newBench(b, million)
		fill(b, t, million)
		for more := true; more; {
			s.time(func() { more = t.Sweep(2*hour, sweepBudget).More })
		}
		if t.View().Len() > 0 {
			b.Fatal("some are left")
		}
	}
	s.report(b, million)
}

// BenchmarkRecover rebuilds the index of a million keys, 512 of them a step.
func BenchmarkRecover(b *testing.B) {
	var s steps
	t := newBench(b, million)
	fill(b, t, million)
	b.ResetTimer()
	for range b.N {
		s.time(t.Recover)
		for t.Unsettled() {
			s.time(func() { t.Settle(1) })
		}
	}
	s.report(b, million)
}

// BenchmarkFile opens new keys and files each at once, all by one goroutine. In
// the longest of these steps the garbage collector or the machine did something
// else.
func BenchmarkFile(b *testing.B) {
	var s steps
	for range b.N {
		t := newBench(b, million)
		for key := range million {
			s.time(func() {
				e, _ := t.View().Open(t.hash(key), key)
				e.Advance(tentative, uint64(key+1)<<4)
				t.File(t.hash(e.key), policy.Instant(key+1))
			})
		}
	}
	s.report(b, million)
}

// BenchmarkNursery has two callers flood a writer with new keys, through a queue
// as deep as an engine's, and counts how many commands find it full.
func BenchmarkNursery(b *testing.B) {
	for bits := 8; bits <= 14; bits++ {
		b.Run(fmt.Sprintf("slots=%d", 1<<bits), func(b *testing.B) {
			var strays, landed atomic.Int64
			for range b.N {
				t := newBench(b, million)
				t.nursery = make([]slot[int], 1<<bits)
				t.adopted = len(t.nursery)
				queue := make(chan Command[int], 1024)
				flood(t, queue, &strays, &landed)
			}
			keys := float64(landed.Load())
			b.ReportMetric(100*float64(strays.Load())/keys, "%stray")
			b.ReportMetric(float64(b.Elapsed())/keys, "ns/key")
			b.ReportMetric(0, "ns/op")
		})
	}
}

func flood(t *Table[int], queue chan Command[int], strays, landed *atomic.Int64) {
	var callers sync.WaitGroup
	for id := range 2 {
		callers.Go(func() {
			nStray := 0
			for key := id; key < million; key += 2 {
				hash, now := t.hash(key), policy.Instant(key+1)
				e, _ := t.View().Open(hash, key)
				e.Advance(tentative, uint64(now)<<4)
				select {
				case queue <- FileCommand[int](hash, now):
				default:
					nStray++
					t.View().NoteLostFiling()
					runtime.Gosched()
				}
			}
			strays.Add(int64(nStray))
			landed.Add(million / 2)
		})
	}
	go func() { callers.Wait(); close(queue) }()
	for open := true; open; {
		var command Command[int]
		for range 256 {
			select {
			case command, open = <-queue:
			default:
				if !t.Unsettled() {
					command, open = <-queue
				}
			}
			t.Apply(command)
			command = Command[int]{}
			if !open {
				break
			}
		}
		if t.Unsettled() {
			t.Settle(1)
		}
	}
}
