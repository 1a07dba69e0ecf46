package fleet

import (
	"fmt"
	"sync"
	"time"

	"github.com/ral-limiter/ral/engine"
)

// waiters counts the calls of this server that wait, or may have to when Redis has answered.
// Its methods may be called by any number of goroutines.
type waiters struct {
	mostPerKey, most int

	mu    sync.Mutex
	of    map[string]int // of the keys that calls wait for
	total int

	// Of calls that had to wait and have ended: how many, and how long they took in all.
	waits uint64
	took  time.Duration
}

// waited counts a call that had to wait and has ended.
func (w *waiters) waited(took time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.waits++
	w.took += took
}

// count returns the number of calls that wait now, that of those that have, and how long these
// took in all.
func (w *waiters) count() (waiting int, waits uint64, took time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.total, w.waits, w.took
}

// forKey returns the number of calls that wait for the key now.
func (w *waiters) forKey(key string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.of[key]
}

// enter counts one more call for the key, until leave. It returns engine.ErrCrowded if as many
// wait as may.
func (w *waiters) enter(key string) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch n := w.of[key]; {
	case n >= w.mostPerKey:
		return fmt.Errorf("%w: %d for this key on this server, of at most %d", engine.ErrCrowded, n, w.mostPerKey)
	case w.total >= w.most:
		return fmt.Errorf("%w: %d for all keys on this server, of at most %d", engine.ErrCrowded, w.total, w.most)
	}
	if w.of == nil {
		w.of = map[string]int{}
	}
	w.of[key]++
	w.total++
	return nil
}

// leave takes back what enter counted.
func (w *waiters) leave(key string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.total--
	if w.of[key]--; w.of[key] == 0 {
		delete(w.of, key)
	}
}
