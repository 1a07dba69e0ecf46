//go:build unix

package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/maypok86/otter/v2"
	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/engine"
	"github.com/ral-limiter/ral/internal/core/statefile"
	"github.com/ral-limiter/ral/internal/testkit/must"
	"github.com/ral-limiter/ral/policy"
)

const savedKeys = 1_000_000

// BenchmarkState saves and loads a million keys of 14 bytes with 64-bit numbers, by Ral and by the
// cache otter. save writes to memory, save-file to a synced and renamed file; load reads it into a
// new table. ns/op and cpu-ns/op are medians of wall and process time. Otter also writes expiry,
// refresh and weight of entries.
func BenchmarkState(b *testing.B) {
	keys := make([]string, savedKeys)
	for i := range keys {
		keys[i] = fmt.Sprintf("client-%07d", i)
	}
	b.Run("ral", func(b *testing.B) { benchRalState(b, keys) })
	b.Run("otter", func(b *testing.B) { benchOtterState(b, keys) })
}

func benchRalState(b *testing.B, keys []string) {
	// A unit drains in 36 s, so that no key is as good as new before the last load.
	config := engine.Config{Policy: policy.Must(policy.Funnel(100, 100, time.Hour)), MaxKeys: 2 * savedKeys}
	e := must.Get(engine.New[string](config))
	defer e.Close()
	for i, key := range keys {
		require.True(b, e.Choke(key))
		if i%1000 == 0 {
			runtime.Gosched()
		}
	}
	for e.Len() < savedKeys || e.Stats().QueueDepth > 0 {
		time.Sleep(time.Millisecond)
	}
	file := filepath.Join(b.TempDir(), "state")
	benchSaves(b, file, e.Save, func() error { return statefile.Replace(file, e.Save) })
	b.Run("load", func(b *testing.B) {
		var loaded *engine.Engine[string]
		measure(b, func() error {
			f, err := os.Open(file)
			if err != nil {
				return err
			}
			defer f.Close()
			loaded, err = engine.Load[string](f, config)
			return err
		}, func() {
			require.Equal(b, savedKeys, loaded.Len())
			require.EqualValues(b, 99, loaded.Peek(keys[savedKeys/2], 0).Remaining)
			require.NoError(b, loaded.Close())
			loaded = nil
		})
	})
}

func benchOtterState(b *testing.B, keys []string) {
	bounded := &otter.Options[string, uint64]{MaximumSize: 2 * savedKeys}
	c := otter.Must(bounded)
	defer c.StopAllGoroutines()
	first := uint64(time.Now().UnixNano())
	for i, key := range keys {
		c.Set(key, first+uint64(i))
	}
	c.CleanUp()
	require.Equal(b, savedKeys, c.EstimatedSize())
	file := filepath.Join(b.TempDir(), "state")
	benchSaves(b, file,
		func(w io.Writer) error { return otter.SaveCacheTo(c, w) },
		func() error { return otter.SaveCacheToFile(c, file) })
	b.Run("load", func(b *testing.B) {
		var loaded *otter.Cache[string, uint64]
		measure(b, func() (err error) {
			loaded, err = otter.New(bounded)
			if err != nil {
				return err
			}
			return otter.LoadCacheFromFile(loaded, file)
		}, func() {
			require.Equal(b, savedKeys, loaded.EstimatedSize())
			value, ok := loaded.GetIfPresent(keys[savedKeys/2])
			require.True(b, ok)
			require.Equal(b, first+savedKeys/2, value)
			loaded.StopAllGoroutines()
			loaded = nil
		})
	})
}

// benchSaves runs save and save-file. replace writes the file and leaves it for the load.
func benchSaves(b *testing.B, file string, save func(io.Writer) error, replace func() error) {
	require.NoError(b, replace())
	b.Run("save", func(b *testing.B) {
		var size counter
		measure(b, func() error {
			size = 0
			return save(&size)
		}, func() {})
		b.ReportMetric(float64(size)/savedKeys, "bytes/key")
	})
	b.Run("save-file", func(b *testing.B) {
		measure(b, replace, func() {})
		info := must.Get(os.Stat(file))
		b.ReportMetric(float64(info.Size())/savedKeys, "bytes/key")
	})
}

// measure reports the median wall and processor times of run, without earlier garbage and without
// done, called after each run.
func measure(b *testing.B, run func() error, done func()) {
	var wall, cpu []time.Duration
	for b.Loop() {
		b.StopTimer()
		runtime.GC()
		used, begun := processorTime(b), time.Now()
		b.StartTimer()
		err := run()
		b.StopTimer()
		wall, cpu = append(wall, time.Since(begun)), append(cpu, processorTime(b)-used)
		require.NoError(b, err)
		done()
		b.StartTimer()
	}
	slices.Sort(wall)
	slices.Sort(cpu)
	b.ReportMetric(float64(wall[len(wall)/2]), "ns/op")
	b.ReportMetric(float64(cpu[len(cpu)/2]), "cpu-ns/op")
}

func processorTime(b *testing.B) time.Duration {
	var u syscall.Rusage
	require.NoError(b, syscall.Getrusage(syscall.RUSAGE_SELF, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

type counter int64

func (c *counter) Write(p []byte) (int, error) {
	*c += counter(len(p))
	return len(p), nil
}
