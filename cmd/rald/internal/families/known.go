package families

import "github.com/puzpuzpuz/xsync/v3"

// maxKnown bounds the values of a Known. A limiter takes no more than 1,024 different limits.
const maxKnown = 4096

// Known remembers values by their keys, up to maxKnown. NewKnown makes it. It is safe for concurrent
// use.
type Known[K, V comparable] struct{ values *xsync.MapOf[K, V] }

// NewKnown returns a Known without values.
func NewKnown[K, V comparable]() Known[K, V] { return Known[K, V]{xsync.NewMapOf[K, V]()} }

// Get returns the value of a key. It calls make for a key that is not known, and remembers the value
// unless there is an error.
func (k Known[K, V]) Get(key K, make func() (V, error)) (V, error) {
	if v, ok := k.values.Load(key); ok {
		return v, nil
	}
	v, err := make()
	if err == nil && k.values.Size() < maxKnown {
		k.values.Store(key, v)
	}
	return v, err
}

// drop forgets a value under all its keys.
func (k Known[K, V]) drop(v V) {
	k.values.Range(func(key K, known V) bool {
		if known == v {
			k.values.Delete(key)
		}
		return true
	})
}
