package guard

import "sync"

// unused holds answers that came too late for their callers. They serve no other call: the server
// decided them before it began, and their units may not be used in a later window, or closer to
// another turn. Its methods may be called by any number of goroutines.
type unused[Q comparable, A any] struct {
	mu  sync.Mutex
	all []answer[Q, A]
}

type answer[Q comparable, A any] struct {
	ask   Q
	value A
}

// maxUnused bounds how many are kept for Unused.
const maxUnused = 4096

func (u *unused[Q, A]) put(ask Q, value A) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if len(u.all) < maxUnused {
		u.all = append(u.all, answer[Q, A]{ask, value})
	}
}

// Unused passes to use each late answer received since the previous call of Unused, at most 4,096.
func (b *Batch[Q, A]) Unused(use func(ask Q, value A)) {
	b.unused.mu.Lock()
	all := b.unused.all
	b.unused.all = nil
	b.unused.mu.Unlock()
	for _, a := range all {
		use(a.ask, a.value)
	}
}
