package bench

import (
	"context"
	"runtime"
	"slices"
	"time"
)

// Memory is the heap that a limiter's keys hold, and the cost of collecting garbage
// with it. A heap is what a full collection leaves, without what was there before
// the limiter was made, such as the names of the keys.
type Memory struct {
	Keys int `json:"keys"`
	// KeyBytes is the size of the names of all keys. They belong to the caller, and
	// are in none of the other figures unless the limiter made copies.
	KeyBytes int64 `json:"key_bytes"`
	// BytesPerKey is FullHeap / Keys.
	BytesPerKey float64 `json:"bytes_per_key"`
	// GC is the time of a full collection once the limiter has all keys, GCBefore
	// that of one before the limiter was made. Each is the median of three.
	GC       time.Duration `json:"gc_ns"`
	GCBefore time.Duration `json:"gc_before_ns"`
	// FullHeap is the heap that the limiter holds with all keys. IdleHeap is what is
	// left of it after the keys were idle for Idle and have been swept out; it is
	// measured on another limiter, made with that idle time. Idle is 0 for a limiter
	// that keeps its keys for ever, and both heaps are the same then. IdleUnknown reports
	// whether the limiter forgets idle keys, but the run ended before that was measured.
	FullHeap int64         `json:"full_heap"`
	IdleHeap int64         `json:"idle_heap"`
	Idle     time.Duration `json:"idle_ns"`

	IdleUnknown bool `json:"idle_unknown,omitempty"`
}

// IdleShare returns the share of the full heap that an idle time leaves.
func (m Memory) IdleShare() float64 { return float64(m.IdleHeap) / float64(max(m.FullHeap, 1)) }

// gauge measures how much the heap has grown since the gauge was made.
type gauge struct {
	empty  int64
	before time.Duration
}

func newGauge() gauge {
	before := collect()
	return gauge{empty: heap(), before: before}
}

// full measures a limiter that has all keys.
func (g gauge) full(keys int) *Memory {
	m := &Memory{Keys: keys, KeyBytes: int64(keys) * keyLength, GCBefore: g.before}
	m.GC = collect()
	m.FullHeap = max(heap()-g.empty, 0)
	m.IdleHeap = m.FullHeap
	m.BytesPerKey = float64(m.FullHeap) / float64(max(keys, 1))
	return m
}

// An idle heap is looked at after each idle time, at least leastIdles and at most
// mostIdles times, until it has stopped falling.
const (
	leastIdles, mostIdles = 2, 12
	stillFalling          = 0.01 // share of the full heap, from one look to the next
)

// idle waits until the keys have been forgotten, and measures what is left. It
// leaves m as it is if the context ends meanwhile.
func (g gauge) idle(ctx context.Context, m *Memory, idle time.Duration) {
	last := m.FullHeap
	for waited := idle; waited <= mostIdles*idle; waited += idle {
		select {
		case <-time.After(idle):
		case <-ctx.Done():
			return
		}
		runtime.GC()
		now := max(heap()-g.empty, 0)
		if waited > leastIdles*idle && float64(last-now) < stillFalling*float64(m.FullHeap) {
			last = min(last, now)
			break
		}
		last = now
	}
	m.IdleHeap, m.Idle, m.IdleUnknown = last, idle, false
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

// heap returns the bytes of the heap that are in use or were not yet found to be
// free.
func heap() int64 {
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return int64(stats.HeapAlloc)
}
