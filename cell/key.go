package cell

import (
	"hash/maphash"
	"reflect"
)

// hash returns the key's hash. ok is false if the key holds a slice, a map or a function.
func (c *Cell[K]) hash(key K) (hash uint64, ok bool) {
	if c.guarded {
		return c.guardedHash(key)
	}
	return maphash.Comparable(c.seed, key), true
}

func (c *Cell[K]) guardedHash(key K) (hash uint64, ok bool) { return GuardedHash(c.seed, key) }

// GuardedHash returns the hash of a key of a type for which MayNotHash is true. ok is false if the key
// has none.
func GuardedHash[K comparable](seed maphash.Seed, key K) (hash uint64, ok bool) {
	// A panic costs some microseconds. The type of most such keys already shows that they have no
	// hash.
	if t := reflect.TypeOf(any(key)); t != nil && !t.Comparable() {
		return 0, false
	}
	defer func() { _ = recover() }()
	return maphash.Comparable(seed, key), true
}

// Hash returns the key's hash, for Offer and to order the keys of a call. If ok is false, the key
// has no hash, and must not be compared with another key either.
func (c *Cell[K]) Hash(key K) (hash uint64, ok bool) { return c.hash(key) }

// Seed returns the seed of Hash.
func (c *Cell[K]) Seed() maphash.Seed { return c.seed }

// MayNotHash reports whether a K may be impossible to hash: K holds an interface.
func MayNotHash[K comparable]() bool { return holdsInterface(reflect.TypeFor[K]()) }

func holdsInterface(t reflect.Type) bool {
	switch t.Kind() {
	case reflect.Interface:
		return true
	case reflect.Array:
		return holdsInterface(t.Elem())
	case reflect.Struct:
		for i := range t.NumField() {
			if holdsInterface(t.Field(i).Type) {
				return true
			}
		}
	}
	return false
}
