package keycodec

import (
	"errors"
	"fmt"
	"reflect"
	"unsafe"
)

// Codec turns keys into bytes and back. Any number of goroutines may use one at once.
//
// Append never gives two keys that differ the same bytes, and Decode of a key's bytes is
// that key.
type Codec[K any] interface {
	// Name returns a text that is the same for all codecs of the same bytes for the same
	// keys, and for no others. It must not depend on the machine or the process.
	Name() string
	// Append appends the bytes of a key to dst. It fails if the key cannot be told by
	// bytes; what it returns then is not to be used.
	Append(dst []byte, key K) ([]byte, error)
	// Decode returns the key that has these bytes, and keeps no part of src. It fails if
	// no key of this type and this machine has them.
	Decode(src []byte) (K, error)
}

// ErrNotAKey is wrapped by the errors of Decode: the bytes are those of no key.
var ErrNotAKey = errors.New("the bytes are not those of a key")

// maxName bounds the name of a codec that For returns, in bytes.
const maxName = 4 << 10

// For returns the codec of a type, or an error that says which part of the type has none.
// The types are strings, integers of all sizes but uintptr, bools, types derived from these,
// netip.Addr, netip.Prefix and netip.AddrPort, and arrays and structs of what is in this
// list. All fields of a struct must be exported: what an unexported one means may be known
// to this process alone, as the number of an entry in one of its tables.
//
// A type T that implements encoding.BinaryMarshaler, and *T encoding.BinaryUnmarshaler, is
// turned into bytes by these, whatever it is made of. Append calls both, and fails if the
// second does not return the same key.
//
// An int or uint has the bytes of an int64 or uint64. On a machine of 32 bits, Decode fails
// for one that is too large.
func For[K comparable]() (Codec[K], error) {
	of := reflect.TypeFor[K]()
	w, err := wireOf(of, nil)
	if err != nil {
		return nil, fmt.Errorf("keys of type %s cannot be written to a file: %w", of, err)
	}
	if n := len(w.name()); n > maxName {
		return nil, fmt.Errorf("keys of type %s cannot be written to a file: the description of the type has %d bytes, want at most %d", of, n, maxName)
	}
	return &codec[K]{w.name(), w}, nil
}

// codec is the codec of a type that For knows.
type codec[K comparable] struct {
	name string
	wire wire
}

func (c *codec[K]) Name() string { return c.name }

func (c *codec[K]) Append(dst []byte, key K) ([]byte, error) {
	return c.wire.append(dst, unsafe.Pointer(&key), true)
}

func (c *codec[K]) Decode(src []byte) (key K, err error) {
	rest, err := c.wire.decode(src, unsafe.Pointer(&key), true)
	if err == nil && len(rest) > 0 {
		err = fmt.Errorf("%w: %d bytes are left", ErrNotAKey, len(rest))
	}
	if err != nil {
		var none K
		return none, err
	}
	return key, nil
}
