package warn

import "sync"

// MaxLatest is the number of warnings that a Latest keeps.
const MaxLatest = 64

// Latest counts the warnings of a limiter and keeps the last. The zero Latest has none. A Latest is
// safe for concurrent use.
type Latest[W any] struct {
	// mu is a leaf.
	mu struct {
		sync.Mutex
		made uint64
		// last is a ring. The newest warning is at (made-1) % MaxLatest.
		last []W
	}
}

// Add adds a warning.
func (l *Latest[W]) Add(warning W) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.mu.made++; len(l.mu.last) < MaxLatest {
		l.mu.last = append(l.mu.last, warning)
	} else {
		l.mu.last[(l.mu.made-1)%MaxLatest] = warning
	}
}

// Count returns the number of warnings added.
func (l *Latest[W]) Count() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.mu.made
}

// Newest returns the last warnings, the newest first: at most n, and at most MaxLatest.
func (l *Latest[W]) Newest(n int) (list []W) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := 0; i < min(n, len(l.mu.last)); i++ {
		list = append(list, l.mu.last[(l.mu.made-1-uint64(i))%MaxLatest])
	}
	return list
}
