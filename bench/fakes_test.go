package bench

import (
	"sync"
	"sync/atomic"
	"time"
)

// fake is a limiter by functions.
type fake struct {
	ask func(keys []string) (passed int)
	// closed may be nil.
	closed func() error
	asked  atomic.Bool
	// told are its keys, before any is asked for.
	told []string
}

func (f *fake) limiter() Limiter {
	return Limiter{Ask: func(keys []string) int { f.asked.Store(true); return f.ask(keys) }, Prepare: f.prepare, Free: f.closed}
}

func (f *fake) prepare(keys []string) {
	if f.asked.Load() {
		panic("asked before it was told of its keys")
	}
	f.told = append(f.told, keys...)
}

func faked(name string, build func(Setup) *fake) Contender {
	return Contender{Name: name, New: func(s Setup) (Limiter, error) { return build(s).limiter(), nil }}
}

// passAll admits every call.
func passAll(keys []string) int { return len(keys) }

// byKey returns a limiter that makes a function for each key.
func byKey(build func() func() bool) *fake {
	var mu sync.Mutex
	keys := map[string]func() bool{}
	choke := func(key string) bool {
		mu.Lock()
		if keys[key] == nil {
			keys[key] = build()
		}
		choke := keys[key]
		mu.Unlock()
		return choke()
	}
	return &fake{ask: func(keys []string) int { return AskEach(keys, choke) }}
}

// exactBucket has a bucket for each key that never drains.
func exactBucket(name string) Contender {
	return faked(name, func(s Setup) *fake {
		return byKey(func() func() bool {
			taken := new(atomic.Int64)
			return func() bool { return taken.Add(1) <= s.Limit.Capacity }
		})
	})
}

// sleeping lets each call pass after a time, in a bubble.
func sleeping(name string, call time.Duration) Contender {
	return faked(name, func(Setup) *fake {
		return &fake{ask: func(keys []string) int {
			time.Sleep(call * time.Duration(len(keys)))
			return len(keys)
		}}
	})
}

type tape struct{ all []time.Duration }

func newTape() Recorder { return new(tape) }

func (t *tape) Record(d time.Duration) { t.all = append(t.all, d) }
func (t *tape) Add(other Recorder)     { t.all = append(t.all, other.(*tape).all...) }
func (t *tape) Reset()                 { t.all = nil }
func (t *tape) Latency() Latency       { return Latency{Calls: int64(len(t.all))} }
