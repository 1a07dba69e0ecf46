package keycodec

import (
	"math"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestIntThatDoesNotFitTheMachineIsRefused(t *testing.T) {
	signed, unsigned := integerWire[int32]{"int", 64}, integerWire[uint32]{"uint", 64}
	var i int32
	var u uint32
	for _, v := range []int64{0, 1, -1, math.MaxInt32, math.MinInt32, math.MaxInt32 + 1, math.MinInt32 - 1, math.MaxUint32, 1 << 32, math.MinInt64} {
		_, err := signed.decode(appendBits(nil, uint64(v), 64), unsafe.Pointer(&i), true)
		if v >= math.MinInt32 && v <= math.MaxInt32 {
			require.NoError(t, err)
			assert.Equal(t, v, int64(i))
		} else {
			assert.ErrorIs(t, err, ErrNotAKey, v)
		}
		_, err = unsigned.decode(appendBits(nil, uint64(v), 64), unsafe.Pointer(&u), true)
		if v >= 0 && v <= math.MaxUint32 {
			require.NoError(t, err)
			assert.Equal(t, v, int64(u))
		} else {
			assert.ErrorIs(t, err, ErrNotAKey, v)
		}
	}
	b, err := signed.append(nil, unsafe.Pointer(&[]int32{-2}[0]), true)
	require.NoError(t, err)
	assert.Equal(t, "\xff\xff\xff\xff\xff\xff\xff\xfe", string(b))
}
