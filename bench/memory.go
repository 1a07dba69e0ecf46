package bench

import (
	"context"
	"runtime"
	"slices"
	"time"
)

// Memory is what a limiter's keys hold, and what that costs the garbage
// collector. Heaps are what a full collection leaves, without what was there
// before the limiter was made: the names of the keys, above all.
type Memory struct {
	Keys int `json:"keys"`
	// KeyBytes is what the names of the keys take. They belong to the caller, and
	// are in none of the other figures, unless the limiter made copies.
	KeyBytes int64 `json:"key_bytes"`
	// BytesPerKey is FullHeap by key.
	BytesPerKey float64 `json:"bytes_per_key"`
	// GC is how long a full collection takes once the limiter has all keys, and
	// GCBefore what it took before the limiter was made; each the median of three.
	GC       time.Duration `json:"gc_ns"`
	GCBefore time.Duration `json:"gc_before_ns"`
	// FullHeap is what the limiter holds with all keys, IdleHeap what is left of
	// that after they have not been asked for Idle and have been swept out: in
	// another limiter, which is made with that idle time. Idle is 0 for a limiter
	// that keeps its keys for ever; then both are the same.
	FullHeap int64         `json:"full_heap"`
	IdleHeap int64         `json:"idle_heap"`
	Idle     time.Duration `json:"idle_ns"`
}

// IdleShare returns what an idle period leaves of the full heap.
func (m Memory) IdleShare() float64 { return float64(m.IdleHeap) / float64(max(m.FullHeap, 1)) }

// gauge reads the heap, compared with what it was when the gauge was made.
type gauge struct {
	base   int64
	before time.Duration
}

func newGauge() gauge {
	before := collect()
	return gauge{base: heap(), before: before}
}

// full measures a limiter that has all keys.
func (g gauge) full(keys int) *Memory {
	m := &Memory{Keys: keys, KeyBytes: int64(keys) * keyLength, GCBefore: g.before}
	m.GC = collect()
	m.FullHeap = max(heap()-g.base, 0)
	m.IdleHeap = m.FullHeap
	m.BytesPerKey = float64(m.FullHeap) / float64(max(keys, 1))
	return m
}

// How often an idle heap is looked at: until it has stopped falling, but no
// longer than so many idle times.
const (
	leastIdles, mostIdles = 2, 12
	stillFalling          = 0.01 // of the full heap, from one look to the next
)

// idle waits until the keys have been forgotten, and measures what is left. It
// leaves the measure as it is if the context ends meanwhile.
func (g gauge) idle(ctx context.Context, m *Memory, idle time.Duration) {
	last := m.FullHeap
	for waited := idle; waited <= mostIdles*idle; waited += idle {
		select {
		case <-time.After(idle):
		case <-ctx.Done():
			return
		}
		runtime.GC()
		now := max(heap()-g.base, 0)
		if waited > leastIdles*idle && float64(last-now) < stillFalling*float64(m.FullHeap) {
			last = min(last, now)
			break
		}
		last = now
	}
	m.IdleHeap, m.Idle = last, idle
}

// collect returns how long a full garbage collection takes: the median of three.
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

// heap returns how many bytes of the heap are in use, or were not yet found to be
// free.
func heap() int64 {
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return int64(stats.HeapAlloc)
}
