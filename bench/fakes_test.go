package bench

import (
	"runtime"
	"sync"
	"sync/atomic"
	"time"
)

// bucket is a limiter with a bucket for each key that never drains.
type bucket struct {
	capacity int64
	mu       sync.Mutex
	taken    map[string]*atomic.Int64
	racy     bool
	closed   func() error
}

func (b *bucket) Choke(key string) bool {
	b.mu.Lock()
	taken := b.taken[key]
	if taken == nil {
		taken = new(atomic.Int64)
		b.taken[key] = taken
	}
	b.mu.Unlock()

	if !b.racy {
		return taken.Add(1) <= b.capacity
	}
	// Read, decide, write: of two equal writes one take is lost.
	n := taken.Load()
	if n >= b.capacity {
		return false
	}
	for range 10 {
		runtime.Gosched()
	}
	taken.Store(n + 1)
	return true
}

func (b *bucket) ChokeAll(keys []string) int {
	return AskEach(keys, func(key string) bool { return b.Choke(key) })
}

func (b *bucket) Close() error {
	if b.closed != nil {
		return b.closed()
	}
	return nil
}

func exactBucket(name string) Contender {
	return Contender{Name: name, New: func(s Setup) (Limiter, error) {
		return &bucket{capacity: s.Limit.Capacity, taken: map[string]*atomic.Int64{}}, nil
	}}
}

func racyBucket(name string) Contender {
	return Contender{Name: name, New: func(s Setup) (Limiter, error) {
		return &bucket{capacity: s.Limit.Capacity, taken: map[string]*atomic.Int64{}, racy: true}, nil
	}}
}

type tape struct{ all []time.Duration }

func newTape() Recorder { return new(tape) }

func (t *tape) Record(d time.Duration) { t.all = append(t.all, d) }
func (t *tape) Add(other Recorder)     { t.all = append(t.all, other.(*tape).all...) }
func (t *tape) Reset()                 { t.all = nil }
func (t *tape) Latency() Latency       { return Latency{Calls: int64(len(t.all))} }
