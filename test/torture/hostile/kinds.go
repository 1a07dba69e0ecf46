package hostile

import (
	"encoding/binary"
	"math"
	"net/netip"
	"strings"
)

type kind[K comparable] struct {
	name string
	// key returns the nth key, distinct for each n if unique.
	key    func(n uint64) K
	unique bool
	lost   bool
}

var long = strings.Repeat("x", 64<<10-8)

func eight(n uint64) string { return string(binary.BigEndian.AppendUint64(nil, n)) }

// bad returns a distinct key with NUL and invalid UTF-8 for each n.
func bad(n uint64) string { return "\x00\xff\xfe\xc0\x80\xed\xa0\x80" + eight(n) + "\x00" }

// deep is comparable, but holds an interface with a value that may not be.
type deep struct {
	name string
	in   [2]struct{ any }
}

// Kinds of strings and numbers, recorded like others.
var (
	strs = []kind[string]{
		{name: "64 KiB, different at the end", key: func(n uint64) string { return long + eight(n) }, unique: true},
		{name: "64 KiB, different at the beginning", key: func(n uint64) string { return eight(n) + long }, unique: true},
		{name: "NUL and invalid UTF-8", key: bad, unique: true},
		{name: "empty", key: func(uint64) string { return "" }},
		{name: "NULs, of different length", key: func(n uint64) string { return strings.Repeat("\x00", int(n%4096)) }},
	}
	words = []kind[uint64]{
		{name: "sequential", key: func(n uint64) uint64 { return n }, unique: true},
		{name: "sequential in the high bits", key: func(n uint64) uint64 { return n << 40 }},
		{name: "powers of two", key: func(n uint64) uint64 { return 1 << (n % 64) }},
	}
	ipv4 = []kind[uint32]{
		{name: "IPv4", key: func(n uint64) uint32 { return 10<<24 | uint32(n) }, unique: true},
		{name: "IPv4 networks", key: func(n uint64) uint32 { return uint32(n) << 8 }},
	}
	addresses = []kind[netip.Addr]{
		{name: "IPv6 of one network", key: func(n uint64) netip.Addr {
			a := [16]byte{0x20, 0x01, 0xd, 0xb8}
			binary.BigEndian.PutUint64(a[8:], n)
			return netip.AddrFrom16(a)
		}, unique: true},
		{name: "the zero address", key: func(uint64) netip.Addr { return netip.Addr{} }},
	}
	floats = []kind[float64]{
		{name: "NaN", key: func(n uint64) float64 { return math.Float64frombits(0x7ff8000000000000 | n%1024) }, lost: true},
		{name: "tiny", key: func(n uint64) float64 { return math.Float64frombits(n + 1) }, unique: true},
	}
	complexes = []kind[complex128]{
		{name: "half NaN", key: func(n uint64) complex128 { return complex(float64(n), math.NaN()) }, lost: true},
	}
	anything = []kind[any]{
		{name: "slices", key: func(n uint64) any { return []uint64{n} }, lost: true},
		{name: "maps", key: func(n uint64) any { return map[uint64]bool{n: true} }, lost: true},
		{name: "functions", key: func(uint64) any { return func() {} }, lost: true},
		{name: "slices in arrays", key: func(n uint64) any { return [1]any{[]uint64{n}} }, lost: true},
		{name: "NaN in an interface", key: func(uint64) any { return math.NaN() }, lost: true},
		{name: "of many types", key: func(n uint64) any {
			return [...]any{int(n), int8(n), uint16(n), float32(n), eight(n), [1]uint64{n}, struct{}{}, nil, &long}[n%9]
		}},
	}
	deeps = []kind[deep]{
		{name: "a slice deep inside", key: func(n uint64) deep { return deep{in: [2]struct{ any }{1: {[]uint64{n}}}} }, lost: true},
		{name: "a number deep inside", key: func(n uint64) deep { return deep{in: [2]struct{ any }{1: {n}}} }, unique: true},
		{name: "another name, and a slice", key: func(n uint64) deep { return deep{eight(n), [2]struct{ any }{{[]int{}}}} }, lost: true},
	}
	arrays = []kind[[4096]byte]{
		{name: "arrays of 4 KiB", key: func(n uint64) (a [4096]byte) {
			binary.BigEndian.PutUint64(a[4088:], n)
			return a
		}, unique: true},
	}
	nothings = []kind[struct{}]{{name: "nothing", key: func(uint64) (k struct{}) { return k }}}
)
