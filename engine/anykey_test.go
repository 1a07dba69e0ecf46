package engine

import (
	"net/netip"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
)

type userID string

type tenant struct {
	number int64
	name   string
}

type named struct {
	name   string
	number int64
}

// Whatever its type, and after its referents could have been collected or moved.
func TestKeysComeOutOfClaimsAsTheyWentIn(t *testing.T) {
	inAndOut(t, 0, "", strings.Repeat("key", 5))
	inAndOut(t, 0, userID(strings.Repeat("key", 20)))
	// long is for keys of three words of 64 bits.
	long := 0.0
	if wordSize < 8 {
		long = 1
	}
	inAndOut(t, long, netip.MustParseAddr("2001:db8::1%eth0"), netip.MustParseAddr("192.0.2.1"), netip.Addr{})
	inAndOut(t, 0, 1, -1)
	inAndOut(t, 0, int8(-3))
	inAndOut(t, 0, true, false)
	inAndOut(t, 0, [3]byte{1, 2, 3})
	inAndOut(t, 0, struct{}{})
	inAndOut(t, 0, struct {
		a int32
		b bool
	}{-7, true})
	inAndOut(t, 0, new(int), nil)
	inAndOut(t, 0, make(chan int))
	inAndOut(t, 0, [1]string{strings.Repeat("k", 9)})
	inAndOut(t, 0, struct {
		first  uintptr
		second *int
	}{1, new(int)})
	inAndOut(t, 1, [2]string{strings.Repeat("k", 9), "b"})
	inAndOut[any](t, 1, "key", 3, nil, tenant{1, "a"})
	inAndOut(t, 1, [5]uint64{1, 2, 3, 4, 5})
	inAndOut(t, 1, netip.MustParsePrefix("2001:db8::/32"))
	if wordSize == 8 {
		inAndOut(t, 0, tenant{-1, strings.Repeat("name", 3)})
		inAndOut(t, 0, named{strings.Repeat("name", 3), -1})
		inAndOut(t, 0, [2]uint64{1, 1 << 63})
		inAndOut(t, 0, complex(1, 2))
	}
}

func inAndOut[K comparable](t *testing.T, allocations float64, keys ...K) {
	t.Helper()
	form := formOf[K]()
	var packed []anyKey
	for _, key := range keys {
		packed = append(packed, pack(form, key))
	}
	runtime.GC()
	grow(1000)
	for i, key := range keys {
		assert.Equal(t, key, unpack[K](form, packed[i]), "%T", key)
		assert.Equal(t, allocations, testing.AllocsPerRun(100, func() { packed0 = pack(form, key) }), "%T", key)
	}
}

var packed0 anyKey

// grow moves the stack.
func grow(n int) int {
	if n == 0 {
		return 0
	}
	var room [64]int
	room[n%64] = n
	return grow(n-1) + room[n%64]
}
