package fleet

import (
	"math/rand/v2"
	"slices"
	"sync"
	"time"
)

// askAgain is the mean time after which the first waiting call of a server asks Redis for units in flight
// again. Each time is drawn from half to one and a half of it, so that servers do not ask together.
const askAgain = 100 * time.Millisecond

// lines are the calls of this server that wait for units in flight, by key and in the order in which they
// came. Only the first of a line asks Redis. Lines of other servers are not known here. The zero lines are
// empty. Any number of goroutines may use them.
type lines struct {
	mu     sync.Mutex
	perKey map[string][]*turn
}

// turn is a place in a line.
type turn struct {
	first chan struct{} // closed when it is the first
	woken chan struct{} // has a slot: units of the key came back here
}

// waits reports whether calls wait for the key.
func (l *lines) waits(key string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.perKey[key]) > 0
}

// join adds a call to the end of a key's line.
func (l *lines) join(key string) *turn {
	t := &turn{first: make(chan struct{}), woken: make(chan struct{}, 1)}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.perKey == nil {
		l.perKey = map[string][]*turn{}
	}
	if len(l.perKey[key]) == 0 {
		close(t.first)
	}
	l.perKey[key] = append(l.perKey[key], t)
	return t
}

// leave takes a call out of its line.
func (l *lines) leave(key string, t *turn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	line := l.perKey[key]
	index := slices.Index(line, t)
	line = slices.Delete(line, index, index+1)
	if len(line) == 0 {
		delete(l.perKey, key)
		return
	}
	if l.perKey[key] = line; index == 0 {
		close(line[0].first)
	}
}

// wake has the first of a key's line ask at once.
func (l *lines) wake(key string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if line := l.perKey[key]; len(line) > 0 {
		select {
		case line[0].woken <- struct{}{}:
		default: // it is about to ask
		}
	}
}

// pollAfter returns when a call that may wait for left asks again, if it is refused for retry.
func pollAfter(retry, left time.Duration) time.Duration {
	if left > 0 {
		retry = min(retry, askAgain/2+rand.N(askAgain), left)
	}
	return retry
}
