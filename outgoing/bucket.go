package outgoing

import "sync"

// maxBucketName is the longest name of a limit that is remembered, in bytes.
const maxBucketName = 256

// buckets maps keys to the first key whose answers named the same limit. The first answer of a key
// may come while other calls of that key wait. Those calls move to the line of the shared limit when
// they get their turn.
type buckets[K comparable] struct {
	// max bounds the names, and also the keys. When either is full, all are forgotten and learned anew.
	max int

	mu      sync.RWMutex
	first   map[string]K
	targets map[K]K
}

// key returns the key in whose line the calls of the given key wait: the first key of the same limit.
func (b *buckets[K]) key(key K) K {
	b.mu.RLock()
	defer b.mu.RUnlock()
	if target, ok := b.targets[key]; ok {
		return target
	}
	return key
}

// learn records that a key's calls count in the limit of that name.
func (b *buckets[K]) learn(key K, name string) {
	if name == "" || len(name) > maxBucketName {
		return
	}
	b.mu.RLock()
	target, known := b.targets[key]
	first, named := b.first[name]
	b.mu.RUnlock()
	if known && named && target == first {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.targets) >= b.max || len(b.first) >= b.max || b.targets == nil {
		b.first, b.targets = make(map[string]K), make(map[K]K)
	}
	if first, named = b.first[name]; !named {
		first, b.first[name] = key, key
	}
	b.targets[key] = first
}
