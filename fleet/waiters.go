package fleet

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/ral-limiter/ral/engine"
)

// waiters are this server's calls that wait, or may have to. Those of a key stand in the order in which they
// came. Lines of other servers are not known here. Any goroutine may use it.
type waiters struct {
	maxPerKey, max int

	mu sync.Mutex
	// perKey has the lines of the keys that calls wait for.
	perKey map[string][]*turn
	total  int

	// Of calls that had to wait and have ended: number and total time.
	waits uint64
	took  time.Duration
}

// turn is a call's place in the line of its key. Under a limit in flight only the first of a line asks Redis.
type turn struct {
	// first is closed when the call is the first.
	first chan struct{}
	// waits reports whether others were before the call.
	waits bool
	// woken has a slot: units in flight came back here.
	woken chan struct{}
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
	return len(w.perKey[key])
}

// enter adds a call to the end of the key's line until leave. It returns engine.ErrCrowded if too many wait.
func (w *waiters) enter(key string) (*turn, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	line := w.perKey[key]
	switch {
	case len(line) >= w.maxPerKey:
		return nil, fmt.Errorf("%w: %d for this key on this server, of at most %d", engine.ErrCrowded, len(line), w.maxPerKey)
	case w.total >= w.max:
		return nil, fmt.Errorf("%w: %d for all keys on this server, of at most %d", engine.ErrCrowded, w.total, w.max)
	}
	if w.perKey == nil {
		w.perKey = map[string][]*turn{}
	}
	t := &turn{first: make(chan struct{}), waits: len(line) > 0, woken: make(chan struct{}, 1)}
	if !t.waits {
		close(t.first)
	}
	w.perKey[key] = append(line, t)
	w.total++
	return t, nil
}

func (w *waiters) leave(key string, turn *turn) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.total--
	line := w.perKey[key]
	index := slices.Index(line, turn)
	line = slices.Delete(line, index, index+1)
	if len(line) == 0 {
		delete(w.perKey, key)
		return
	}
	if w.perKey[key] = line; index == 0 {
		close(line[0].first)
	}
}

// wake has the first of a key's line ask Redis at once.
func (w *waiters) wake(key string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if line := w.perKey[key]; len(line) > 0 {
		wake(line[0].woken)
	}
}

// askAgain is the mean time after which the first waiting call of a server asks Redis for units in flight
// again. Each time is drawn from half to one and a half of it, so that servers do not ask together.
const askAgain = 100 * time.Millisecond

// pollAfter returns when a call that may wait for left asks again, if it is refused for retry.
func pollAfter(retry, left time.Duration) time.Duration {
	if left > 0 {
		retry = min(retry, askAgain/2+rand.N(askAgain), left)
	}
	return retry
}
