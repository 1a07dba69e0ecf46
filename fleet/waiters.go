package fleet

import (
	"fmt"
	"sync"
	"time"

	"github.com/ral-limiter/ral/engine"
)

// waiters counts this server's calls that wait, or may have to. Any goroutine may use it.
type waiters struct {
	maxPerKey, max int

	mu     sync.Mutex
	perKey map[string]int // of the keys that calls wait for
	total  int

	// Of calls that had to wait and have ended: number and total time.
	waits uint64
	took  time.Duration
}

func (w *waiters) waited(took time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.waits++
	w.took += took
}

// count returns the number of waiting calls, and waits and took.
func (w *waiters) count() (waiting int, waits uint64, took time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.total, w.waits, w.took
}

func (w *waiters) forKey(key string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.perKey[key]
}

// enter counts a call for the key until leave. It returns engine.ErrCrowded if too many wait.
func (w *waiters) enter(key string) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch n := w.perKey[key]; {
	case n >= w.maxPerKey:
		return fmt.Errorf("%w: %d for this key on this server, of at most %d", engine.ErrCrowded, n, w.maxPerKey)
	case w.total >= w.max:
		return fmt.Errorf("%w: %d for all keys on this server, of at most %d", engine.ErrCrowded, w.total, w.max)
	}
	if w.perKey == nil {
		w.perKey = map[string]int{}
	}
	w.perKey[key]++
	w.total++
	return nil
}

func (w *waiters) leave(key string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.total--
	if w.perKey[key]--; w.perKey[key] == 0 {
		delete(w.perKey, key)
	}
}
