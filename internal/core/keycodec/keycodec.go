package keycodec

import (
	"errors"
	"fmt"
	"reflect"
	"unsafe"
)

// Codec converts keys to bytes and back. Any number of goroutines may use it. Append gives
// different keys different bytes, and Decode returns the key of its bytes.
type Codec[K any] interface {
	// Name returns a text shared exactly by codecs with equal bytes for equal keys, on any machine.
	Name() string
	// Append appends the bytes of a key to dst. If it fails, the result must not be used.
	Append(dst []byte, key K) ([]byte, error)
	// Decode returns the key with these bytes, or an error if there is none. It keeps no part of src.
	Decode(src []byte) (K, error)
}

// ErrNotAKey is wrapped by errors of Decode for bytes of no key.
var ErrNotAKey = errors.New("the bytes are not those of a key")

// maxName bounds the name of a codec, in bytes.
const maxName = 4 << 10

// For returns the codec of a type, or an error with the part of the type that has none. Types are
// strings, integers except uintptr, bools, types derived from these, netip.Addr, netip.Prefix and
// netip.AddrPort, and arrays and structs of such types. Unexported fields of a struct are an error:
// they may be valid only in this process, like an index into a table.
//
// A type T with encoding.BinaryMarshaler, and *T with encoding.BinaryUnmarshaler, uses these.
// Append calls both, and fails if the key does not come back. An int or uint has the bytes of an
// int64 or uint64. On 32-bit machines Decode fails if it is too large.
func For[K comparable]() (Codec[K], error) {
	typ := reflect.TypeFor[K]()
	wire, err := wireOf(typ, nil)
	if err != nil {
		return nil, fmt.Errorf("keys of type %s cannot be written to a file: %w", typ, err)
	}
	if n := len(wire.name()); n > maxName {
		return nil, fmt.Errorf("keys of type %s cannot be written to a file: the description of the type has %d bytes, want at most %d", typ, n, maxName)
	}
	return &codec[K]{wire.name(), wire}, nil
}

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
