package table

import (
	"slices"
	"testing"
	"time"

	"github.com/ral-limiter/ral/policy"
)

const million = 1_000_000

// BenchmarkSweep evicts a million expired keys in the steps that a janitor asks for. A new key may
// have to wait for the longest step.
func BenchmarkSweep(b *testing.B) {
	const budget = 256 // janitor.Budget, which imports this package
	var steps []time.Duration
	for range b.N {
		t := New[int](Options{Policy: policy.Must(policy.Funnel(1, 1, time.Hour)), Idle: time.Minute, MaxKeys: million})
		for key := range million {
			e, status := t.View().Open(t.hash(key), key)
			if status != Landed {
				b.Fatal(status)
			}
			e.Advance(tentative, uint64(key+1)<<4)
			t.File(t.hash(e.key), policy.Instant(key+1))
		}
		for more := true; more; {
			begin := time.Now()
			more = t.Sweep(2*hour, budget).More
			steps = append(steps, time.Since(begin))
		}
		if t.View().Len() > 0 {
			b.Fatal("some are left")
		}
	}
	slices.Sort(steps)
	for name, d := range map[string]time.Duration{
		"p50": steps[len(steps)/2], "p99": steps[len(steps)*99/100], "max": steps[len(steps)-1],
	} {
		b.ReportMetric(float64(d)/1e6, name+"-ms/step")
	}
}
