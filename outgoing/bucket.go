package outgoing

import "sync"

// maxBucketName bounds the bytes of a name.
const maxBucketName = 256

// buckets maps keys to the first key whose answers named the same limit. The first answer of a key
// may come while others of its calls wait; they move to the limit's line once they have their turn.
type buckets[K comparable] struct {
	// max bounds the names and keys. Beyond it all are learned anew.
	max int

	mu      sync.RWMutex
	first   map[string]K
	targets map[K]K
}

// key returns the key in whose line a key's calls wait.
func (b *buckets[K]) key(key K) K {
	b.mu.RLock()
	defer b.mu.RUnlock()
	if target, ok := b.targets[key]; ok {
		return target
	}
	return key
}

// learn records the name of the limit of a key.
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
