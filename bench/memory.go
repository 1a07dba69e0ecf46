package bench

import (
	"context"
	"runtime"
	"slices"
	"time"
)

// Memory is the heap of a limiter's keys and the cost of a garbage collection with it. Heaps are
// measured after a full collection, less the heap before the limiter was made. Each key's name was
// built for one call, so that a heap has the names that the limiter keeps.
type Memory struct {
	Keys int `json:"keys"`
	// KeyBytes is the size of all names.
	KeyBytes int64 `json:"key_bytes"`
	// BytesPerKey is FullHeap / Keys.
	BytesPerKey float64 `json:"bytes_per_key"`
	// GC and GCBefore are full collections with all keys and without the limiter, medians of three.
	GC       time.Duration `json:"gc_ns"`
	GCBefore time.Duration `json:"gc_before_ns"`
	// FullHeap is the heap with all keys. IdleHeap is the rest after keys idle for Idle were swept,
	// on another limiter with that idle time. Idle is 0, and both heaps are the same, if keys are
	// kept for ever. IdleUnknown reports that the run ended before an idle heap could be measured.
	FullHeap int64         `json:"full_heap"`
	IdleHeap int64         `json:"idle_heap"`
	Idle     time.Duration `json:"idle_ns"`

	IdleUnknown bool `json:"idle_unknown,omitempty"`
	// Usage is the mean MEMORY USAGE of a key in Redis, 0 for other memory.
	Usage float64 `json:"usage,omitempty"`
}

// IdleShare returns IdleHeap as a share of FullHeap.
func (m Memory) IdleShare() float64 { return float64(m.IdleHeap) / float64(max(m.FullHeap, 1)) }

type gauge struct {
	empty  int64
	before time.Duration
}

func newGauge() gauge {
	before := collect()
	return gauge{empty: heap(), before: before}
}

func (g gauge) full(keys int) *Memory {
	memory := &Memory{Keys: keys, KeyBytes: int64(keys) * addressLength, GCBefore: g.before}
	memory.GC = collect()
	memory.FullHeap = max(heap()-g.empty, 0)
	memory.IdleHeap = memory.FullHeap
	memory.BytesPerKey = float64(memory.FullHeap) / float64(max(keys, 1))
	return memory
}

// The idle heap is read after each idle time until it stops falling, minIdles to maxIdles times.
const (
	minIdles, maxIdles = 2, 12
	// stillFalling is a share of the full heap, between two looks.
	stillFalling = 0.01
)

// idle measures the heap once the keys are forgotten, or leaves memory unchanged if the context ends.
func (g gauge) idle(ctx context.Context, memory *Memory, idle time.Duration) {
	last := memory.FullHeap
	for waited := idle; waited <= maxIdles*idle; waited += idle {
		select {
		case <-time.After(idle):
		case <-ctx.Done():
			return
		}
		runtime.GC()
		now := max(heap()-g.empty, 0)
		if waited > minIdles*idle && float64(last-now) < stillFalling*float64(memory.FullHeap) {
			last = min(last, now)
			break
		}
		last = now
	}
	memory.IdleHeap, memory.Idle, memory.IdleUnknown = last, idle, false
}

// collect returns the time of a full garbage collection, the median of three.
func collect() time.Duration {
	var took [3]time.Duration
	for i := range took {
		start := time.Now()
		runtime.GC()
		took[i] = time.Since(start)
	}
	slices.Sort(took[:])
	return took[1]
}

// heap returns the bytes in use or not yet found to be free.
func heap() int64 {
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return int64(stats.HeapAlloc)
}
