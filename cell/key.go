package cell

import (
	"hash/maphash"
	"reflect"
)

// hash returns the key's hash. ok is false if the key cannot have one, as an
// interface that holds a slice, a map or a function.
func (c *Cell[K]) hash(key K) (hash uint64, ok bool) {
	if c.guarded {
		// A panic costs some microseconds: what the type tells need not come to that.
		if t := reflect.TypeOf(any(key)); t != nil && !t.Comparable() {
			return 0, false
		}
		defer func() { _ = recover() }()
	}
	return maphash.Comparable(c.seed, key), true
}

// mayNotHash tells whether values of type K may be impossible to hash, although
// the compiler takes K for comparable: it holds an interface somewhere.
func mayNotHash[K comparable]() bool { return holdsInterface(reflect.TypeFor[K]()) }

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
