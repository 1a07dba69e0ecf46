package keycodec

import (
	"bytes"
	"encoding"
	"encoding/binary"
	"fmt"
	"net/netip"
	"reflect"
	"strconv"
	"strings"
	"unsafe"
)

// wire converts values of one type by their address, without reflection. alone says that no bytes
// follow, so that the end needs no mark. Otherwise no value's bytes are a prefix of another's.
type wire interface {
	// name describes the bytes.
	name() string
	// append appends the bytes of the value at an address.
	append(dst []byte, value unsafe.Pointer, alone bool) ([]byte, error)
	// decode sets the value at an address and returns the bytes after it.
	decode(src []byte, value unsafe.Pointer, alone bool) (rest []byte, err error)
}

var (
	marshaler   = reflect.TypeFor[encoding.BinaryMarshaler]()
	unmarshaler = reflect.TypeFor[encoding.BinaryUnmarshaler]()
)

// wireOf returns the wire of a type. path has the fields that lead to it, for errors.
func wireOf(typ reflect.Type, path []string) (wire, error) {
	switch typ {
	case reflect.TypeFor[netip.Addr]():
		return addrWire{}, nil
	case reflect.TypeFor[netip.Prefix]():
		return prefixWire{}, nil
	case reflect.TypeFor[netip.AddrPort]():
		return addrPortWire{}, nil
	}
	// A decoded pointer or interface could not be compared.
	if kind := typ.Kind(); kind != reflect.Pointer && kind != reflect.Interface && typ.Name() != "" &&
		reflect.PointerTo(typ).Implements(marshaler) && reflect.PointerTo(typ).Implements(unmarshaler) {
		return ownWire{typ}, nil
	}
	if w := integerWires[typ.Kind()]; w != nil {
		return w, nil
	}
	switch typ.Kind() {
	case reflect.String:
		return stringWire{}, nil
	case reflect.Bool:
		return boolWire{}, nil
	case reflect.Array:
		elem, err := wireOf(typ.Elem(), append(path, "[i]"))
		if err != nil {
			return nil, err
		}
		return &arrayWire{elem, typ.Elem().Size(), typ.Len()}, nil
	case reflect.Struct:
		return structWireOf(typ, path)
	}
	what := fmt.Sprintf("type %s", typ)
	if len(path) > 0 {
		what = fmt.Sprintf("the part %s is of type %s, which", strings.TrimPrefix(strings.Join(path, ""), "."), typ)
	}
	return nil, fmt.Errorf("%s has no bytes that mean the same in another process: "+
		"want strings, integers, bools, netip.Addr, netip.Prefix, netip.AddrPort, arrays and structs of these, "+
		"or a type with MarshalBinary and UnmarshalBinary", what)
}

func structWireOf(typ reflect.Type, path []string) (wire, error) {
	s := &structWire{}
	var names []string
	for i := range typ.NumField() {
		structField := typ.Field(i)
		if !structField.IsExported() {
			return nil, fmt.Errorf("field %s of type %s is not exported: export it, or give the type MarshalBinary and UnmarshalBinary", structField.Name, typ)
		}
		wire, err := wireOf(structField.Type, append(path, "."+structField.Name))
		if err != nil {
			return nil, err
		}
		s.fields = append(s.fields, field{wire, structField.Offset})
		names = append(names, structField.Name+" "+wire.name())
	}
	s.text = "struct{" + strings.Join(names, "; ") + "}"
	return s, nil
}

// appendBytes appends bytes, after their number unless alone.
func appendBytes[T string | []byte](dst []byte, text T, alone bool) []byte {
	if !alone {
		dst = binary.AppendUvarint(dst, uint64(len(text)))
	}
	return append(dst, text...)
}

func cutBytes(src []byte, alone bool) (text, rest []byte, err error) {
	if alone {
		return src, nil, nil
	}
	length, n := binary.Uvarint(src)
	if n <= 0 || n > 1 && src[n-1] == 0 {
		return nil, nil, fmt.Errorf("%w: not a varint of the shortest form", ErrNotAKey)
	}
	if length > uint64(len(src)-n) {
		return nil, nil, tooShort(len(src)-n, length)
	}
	end := n + int(length)
	return src[n:end], src[end:], nil
}

func tooShort(have int, want uint64) error {
	return fmt.Errorf("%w: %d bytes are left, want %d", ErrNotAKey, have, want)
}

type stringWire struct{}

func (stringWire) name() string { return "string" }

func (stringWire) append(dst []byte, value unsafe.Pointer, alone bool) ([]byte, error) {
	return appendBytes(dst, *(*string)(value), alone), nil
}

func (stringWire) decode(src []byte, value unsafe.Pointer, alone bool) ([]byte, error) {
	text, rest, err := cutBytes(src, alone)
	if err != nil {
		return nil, err
	}
	*(*string)(value) = string(text)
	return rest, nil
}

type boolWire struct{}

func (boolWire) name() string { return "bool" }

func (boolWire) append(dst []byte, value unsafe.Pointer, _ bool) ([]byte, error) {
	char := byte(0)
	if *(*bool)(value) {
		char = 1
	}
	return append(dst, char), nil
}

func (boolWire) decode(src []byte, value unsafe.Pointer, _ bool) ([]byte, error) {
	if len(src) == 0 {
		return nil, tooShort(0, 1)
	}
	if src[0] > 1 {
		return nil, fmt.Errorf("%w: a bool is %d, want 0 or 1", ErrNotAKey, src[0])
	}
	*(*bool)(value) = src[0] == 1
	return src[1:], nil
}

// integer is a constraint: the types that integerWire converts.
type integer interface {
	int | int8 | int16 | int32 | int64 | uint | uint8 | uint16 | uint32 | uint64
}

// integerWire writes an integer of bits, the highest byte first.
type integerWire[T integer] struct {
	// kind is "int" or "uint".
	kind string
	bits int
}

var integerWires = map[reflect.Kind]wire{
	reflect.Int8:   integerWire[int8]{"int", 8},
	reflect.Int16:  integerWire[int16]{"int", 16},
	reflect.Int32:  integerWire[int32]{"int", 32},
	reflect.Int64:  integerWire[int64]{"int", 64},
	reflect.Int:    integerWire[int]{"int", 64},
	reflect.Uint8:  integerWire[uint8]{"uint", 8},
	reflect.Uint16: integerWire[uint16]{"uint", 16},
	reflect.Uint32: integerWire[uint32]{"uint", 32},
	reflect.Uint64: integerWire[uint64]{"uint", 64},
	reflect.Uint:   integerWire[uint]{"uint", 64},
}

func (w integerWire[T]) name() string { return w.kind + strconv.Itoa(w.bits) }

func (w integerWire[T]) append(dst []byte, value unsafe.Pointer, _ bool) ([]byte, error) {
	return appendBits(dst, uint64(*(*T)(value)), w.bits), nil
}

func (w integerWire[T]) decode(src []byte, value unsafe.Pointer, _ bool) ([]byte, error) {
	v, rest, err := cutBits(src, w.bits)
	if err != nil {
		return nil, err
	}
	// The sign fills the bits above.
	if w.kind == "int" {
		v = uint64(int64(v<<(64-w.bits)) >> (64 - w.bits))
	}
	if *(*T)(value) = T(v); uint64(T(v)) != v {
		return nil, fmt.Errorf("%w: the bytes %x do not fit an %s of this machine, which has %d bits", ErrNotAKey, src[:w.bits/8], w.kind, strconv.IntSize)
	}
	return rest, nil
}

// appendBits appends the lowest bits of v, whole bytes.
func appendBits(dst []byte, v uint64, bits int) []byte {
	switch bits {
	case 8:
		return append(dst, byte(v))
	case 16:
		return binary.BigEndian.AppendUint16(dst, uint16(v))
	case 32:
		return binary.BigEndian.AppendUint32(dst, uint32(v))
	}
	return binary.BigEndian.AppendUint64(dst, v)
}

func cutBits(src []byte, bits int) (v uint64, rest []byte, err error) {
	if len(src) < bits/8 {
		return 0, nil, tooShort(len(src), uint64(bits/8))
	}
	for _, char := range src[:bits/8] {
		v = v<<8 | uint64(char)
	}
	return v, src[bits/8:], nil
}

// addrWire writes an address: its kind, bytes, and zone if it has one.
type addrWire struct{}

const (
	noAddr = 0
	addr4  = 4
	addr6  = 6
	zoned6 = 7
)

func (addrWire) name() string { return "netip.Addr" }

func (addrWire) append(dst []byte, value unsafe.Pointer, alone bool) ([]byte, error) {
	return appendAddr(dst, *(*netip.Addr)(value), alone), nil
}

func (addrWire) decode(src []byte, value unsafe.Pointer, alone bool) (rest []byte, err error) {
	*(*netip.Addr)(value), rest, err = cutAddr(src, alone)
	return rest, err
}

func appendAddr(dst []byte, address netip.Addr, alone bool) []byte {
	switch {
	case !address.IsValid():
		return append(dst, noAddr)
	case address.Is4():
		b := address.As4()
		return append(append(dst, addr4), b[:]...)
	}
	b, zone := address.As16(), address.Zone()
	if zone == "" {
		return append(append(dst, addr6), b[:]...)
	}
	return appendBytes(append(append(dst, zoned6), b[:]...), zone, alone)
}

func cutAddr(src []byte, alone bool) (address netip.Addr, rest []byte, err error) {
	if len(src) == 0 {
		return address, nil, tooShort(0, 1)
	}
	kind, src := src[0], src[1:]
	size := 16
	switch kind {
	case noAddr:
		return address, src, nil
	case addr4:
		size = 4
	case addr6, zoned6:
	default:
		return address, nil, fmt.Errorf("%w: an address is of kind %d, want %d, %d, %d or %d", ErrNotAKey, kind, noAddr, addr4, addr6, zoned6)
	}
	if len(src) < size {
		return address, nil, tooShort(len(src), uint64(size))
	}
	address, _ = netip.AddrFromSlice(src[:size])
	src = src[size:]
	if kind != zoned6 {
		return address, src, nil
	}
	zone, rest, err := cutBytes(src, alone)
	if err != nil {
		return netip.Addr{}, nil, err
	}
	if len(zone) == 0 {
		return netip.Addr{}, nil, fmt.Errorf("%w: an address has an empty zone", ErrNotAKey)
	}
	return address.WithZone(string(zone)), rest, nil
}

// prefixWire writes the address and the number of its bits, 255 if invalid.
type prefixWire struct{}

func (prefixWire) name() string { return "netip.Prefix" }

func (prefixWire) append(dst []byte, value unsafe.Pointer, _ bool) ([]byte, error) {
	prefix := *(*netip.Prefix)(value)
	return append(appendAddr(dst, prefix.Addr(), false), byte(prefix.Bits())), nil
}

func (prefixWire) decode(src []byte, value unsafe.Pointer, _ bool) ([]byte, error) {
	address, rest, err := cutAddr(src, false)
	if err != nil {
		return nil, err
	}
	if len(rest) == 0 {
		return nil, tooShort(0, 1)
	}
	bits := int(rest[0])
	if rest[0] == 255 {
		bits = -1
	}
	prefix := netip.PrefixFrom(address, bits)
	// A prefix has no zone, and no bits unless it is valid.
	if prefix.Addr() != address || prefix.Bits() != bits {
		return nil, fmt.Errorf("%w: %v and %d bits are not a prefix", ErrNotAKey, address, bits)
	}
	*(*netip.Prefix)(value) = prefix
	return rest[1:], nil
}

type addrPortWire struct{}

func (addrPortWire) name() string { return "netip.AddrPort" }

func (addrPortWire) append(dst []byte, value unsafe.Pointer, _ bool) ([]byte, error) {
	port := *(*netip.AddrPort)(value)
	return binary.BigEndian.AppendUint16(appendAddr(dst, port.Addr(), false), port.Port()), nil
}

func (addrPortWire) decode(src []byte, value unsafe.Pointer, _ bool) ([]byte, error) {
	address, rest, err := cutAddr(src, false)
	if err != nil {
		return nil, err
	}
	port, rest, err := cutBits(rest, 16)
	if err != nil {
		return nil, err
	}
	*(*netip.AddrPort)(value) = netip.AddrPortFrom(address, uint16(port))
	return rest, nil
}

type arrayWire struct {
	elem wire
	// size is the size in memory.
	size uintptr
	n    int
}

func (w *arrayWire) name() string { return "[" + strconv.Itoa(w.n) + "]" + w.elem.name() }

func (w *arrayWire) append(dst []byte, value unsafe.Pointer, _ bool) (_ []byte, err error) {
	if _, ok := w.elem.(integerWire[uint8]); ok {
		return append(dst, unsafe.Slice((*byte)(value), w.n)...), nil
	}
	for i := range w.n {
		if dst, err = w.elem.append(dst, unsafe.Add(value, uintptr(i)*w.size), false); err != nil {
			return nil, err
		}
	}
	return dst, nil
}

func (w *arrayWire) decode(src []byte, value unsafe.Pointer, _ bool) (_ []byte, err error) {
	if _, ok := w.elem.(integerWire[uint8]); ok {
		if len(src) < w.n {
			return nil, tooShort(len(src), uint64(w.n))
		}
		copy(unsafe.Slice((*byte)(value), w.n), src)
		return src[w.n:], nil
	}
	for i := range w.n {
		if src, err = w.elem.decode(src, unsafe.Add(value, uintptr(i)*w.size), false); err != nil {
			return nil, err
		}
	}
	return src, nil
}

type structWire struct {
	text   string
	fields []field
}

type field struct {
	wire   wire
	offset uintptr
}

func (w *structWire) name() string { return w.text }

func (w *structWire) append(dst []byte, value unsafe.Pointer, _ bool) (_ []byte, err error) {
	for _, field := range w.fields {
		if dst, err = field.wire.append(dst, unsafe.Add(value, field.offset), false); err != nil {
			return nil, err
		}
	}
	return dst, nil
}

func (w *structWire) decode(src []byte, value unsafe.Pointer, _ bool) (_ []byte, err error) {
	for _, field := range w.fields {
		if src, err = field.wire.decode(src, unsafe.Add(value, field.offset), false); err != nil {
			return nil, err
		}
	}
	return src, nil
}

// ownWire uses the type's MarshalBinary and UnmarshalBinary.
type ownWire struct {
	typ reflect.Type
}

func (w ownWire) name() string { return "binary " + w.typ.PkgPath() + "." + w.typ.Name() }

func (w ownWire) append(dst []byte, value unsafe.Pointer, alone bool) ([]byte, error) {
	from := reflect.NewAt(w.typ, value)
	text, err := from.Interface().(encoding.BinaryMarshaler).MarshalBinary()
	if err != nil {
		return nil, fmt.Errorf("key of type %s: %w", w.typ, err)
	}
	again := reflect.New(w.typ)
	// A copy, since UnmarshalBinary may change its argument.
	if err := again.Interface().(encoding.BinaryUnmarshaler).UnmarshalBinary(bytes.Clone(text)); err != nil {
		return nil, fmt.Errorf("key of type %s: its UnmarshalBinary refuses what its MarshalBinary returns: %w", w.typ, err)
	}
	if !again.Elem().Equal(from.Elem()) {
		return nil, fmt.Errorf("key of type %s: UnmarshalBinary of what MarshalBinary returns is another key", w.typ)
	}
	return appendBytes(dst, text, alone), nil
}

func (w ownWire) decode(src []byte, value unsafe.Pointer, alone bool) ([]byte, error) {
	text, rest, err := cutBytes(src, alone)
	if err != nil {
		return nil, err
	}
	if err := reflect.NewAt(w.typ, value).Interface().(encoding.BinaryUnmarshaler).UnmarshalBinary(bytes.Clone(text)); err != nil {
		return nil, fmt.Errorf("%w of type %s: %w", ErrNotAKey, w.typ, err)
	}
	return rest, nil
}
