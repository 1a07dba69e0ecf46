package engine

import (
	"bytes"
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

// A million keys of 14 bytes. bytes/key is what each takes in the file.
func BenchmarkSaveMillion(b *testing.B) {
	e, _, _ := manyKeys(b)
	var size counter
	for b.Loop() {
		size = 0
		require.NoError(b, e.Save(&size))
	}
	b.ReportMetric(float64(size)/savedKeys, "bytes/key")
}

// To a file that is synced and renamed, as by Config.State.
func BenchmarkSaveMillionToFile(b *testing.B) {
	e, config, _ := manyKeys(b)
	k := &keeper{state: inFile(b, config).State}
	for b.Loop() {
		require.NoError(b, k.replace(e.save))
	}
}

func BenchmarkLoadMillion(b *testing.B) {
	e, config, _ := manyKeys(b)
	var file bytes.Buffer
	require.NoError(b, e.Save(&file))
	for b.Loop() {
		loaded, err := Load[string](bytes.NewReader(file.Bytes()), config)
		require.NoError(b, err)
		b.StopTimer()
		require.Equal(b, savedKeys, loaded.Len())
		require.NoError(b, loaded.Close())
		b.StartTimer()
	}
}

// One caller of a million known keys, while nothing is saved, and while the state is saved
// again and again. What a call takes is measured with two readings of the clock.
func BenchmarkChokeWhileSaving(b *testing.B) {
	e, _, all := manyKeys(b)
	for _, saving := range []bool{false, true} {
		name := "nothing"
		if saving {
			name = "saving"
		}
		b.Run(name, func(b *testing.B) {
			var stop atomic.Bool
			var wg sync.WaitGroup
			if saving {
				wg.Go(func() {
					for !stop.Load() {
						if err := e.Save(io.Discard); err != nil {
							b.Error(err)
							return
						}
					}
				})
			}
			took := make([]time.Duration, 0, 1<<22)
			i := uint32(1)
			for b.Loop() {
				i = i*1664525 + 1013904223
				key := all[i%savedKeys]
				begun := time.Now()
				e.Choke(key)
				if d := time.Since(begun); len(took) < cap(took) {
					took = append(took, d)
				}
			}
			stop.Store(true)
			wg.Wait()
			slices.Sort(took)
			b.ReportMetric(float64(took[len(took)/2]), "p50-ns")
			b.ReportMetric(float64(took[len(took)*999/1000]), "p99.9-ns")
		})
	}
}

// counter counts what is written to it.
type counter int64

func (c *counter) Write(p []byte) (int, error) {
	*c += counter(len(p))
	return len(p), nil
}
