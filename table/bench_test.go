package table

import (
	"slices"
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

func report(b *testing.B, s []time.Duration, per int) {
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

// BenchmarkSweep evicts a million expired keys in the steps that a janitor asks for. A new key may
// have to wait for the longest step.
func BenchmarkSweep(b *testing.B) {
	var s []time.Duration
	for range b.N {
		t := newBench(b, million)
		fill(b, t, million)
		for more := true; more; {
			begin := time.Now()
			more = t.Sweep(2*hour, sweepBudget).More
			s = append(s, time.Since(begin))
		}
		if t.View().Len() > 0 {
			b.Fatal("some are left")
		}
	}
	report(b, s, million)
}
