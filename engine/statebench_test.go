package engine

import (
	"io"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const savedKeys = 1_000_000

// manyKeys returns an engine with a million keys that owe for long.
func manyKeys(b *testing.B) (*Engine[string], Config, []string) {
	b.Helper()
	config := Config{Policy: funnel(100, 1, time.Hour), MaxKeys: 2 * savedKeys}
	e, err := New[string](config)
	require.NoError(b, err)
	all := keys(savedKeys)
	for i, key := range all {
		e.Choke(key)
		if i%1000 == 0 {
			runtime.Gosched()
		}
	}
	for e.Len() < savedKeys || e.queue.Len() > 0 || e.table.View().Landed() > 0 {
		time.Sleep(time.Millisecond)
	}
	b.Cleanup(func() { require.NoError(b, e.Close()) })
	return e, config, all
}

// One caller of a million known keys: while nothing else runs, while a goroutine computes, and
// while a goroutine saves repeatedly, in turn. Figures are medians of the rounds. Saving less
// computing is a save's cost besides processor time. A call is timed with two readings of the
// clock.
func BenchmarkChokeWhileSaving(b *testing.B) {
	e, _, all := manyKeys(b)
	var sink atomic.Uint64
	modes := []struct {
		name string
		step func() error // of the goroutine beside the caller
	}{
		{"alone", nil},
		{"computing", func() error {
			x := sink.Load()
			for range 1 << 20 {
				x = x*1664525 + 1013904223
			}
			sink.Store(x)
			return nil
		}},
		{"saving", func() error { return e.Save(io.Discard) }},
	}
	const calls = 2_000_000
	took := make([]time.Duration, calls)
	var tails, middles [3][]time.Duration
	i := uint32(1)
	for round := 0; b.Loop(); round++ {
		for turn := range modes {
			m := (round + turn) % len(modes)
			var stop atomic.Bool
			var wg sync.WaitGroup
			if step := modes[m].step; step != nil {
				wg.Go(func() {
					for !stop.Load() {
						if err := step(); err != nil {
							b.Error(err)
							return
						}
					}
				})
			}
			for call := range took {
				i = i*1664525 + 1013904223
				key := all[i%savedKeys]
				begun := time.Now()
				e.Choke(key)
				took[call] = time.Since(begun)
			}
			stop.Store(true)
			wg.Wait()
			slices.Sort(took)
			middles[m] = append(middles[m], took[calls/2])
			tails[m] = append(tails[m], took[calls*999/1000])
		}
	}
	for m, mode := range modes {
		slices.Sort(middles[m])
		slices.Sort(tails[m])
		b.ReportMetric(float64(middles[m][len(middles[m])/2]), mode.name+"-p50-ns")
		b.ReportMetric(float64(tails[m][len(tails[m])/2]), mode.name+"-p99.9-ns")
	}
	b.ReportMetric(0, "ns/op")
}
