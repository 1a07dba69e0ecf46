package table

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// Keys with equal hashes are told apart by themselves. With 64-bit hashes only these tests see
// that.

func newAlike(t *testing.T) rig[string] {
	r := newRig[string](t, Options{})
	r.hasher = oneHash[string]
	return r
}

// Promise: Different keys never share a bucket, even with equal hashes.
func TestAllKeysOfAHashAreHeld(t *testing.T) {
	r := newAlike(t)
	for _, key := range []string{"a", "b", "c"} {
		r.add(key, 1)
	}
	for _, key := range []string{"a", "b", "c"} {
		e := r.View().Load(7, key)
		require.NotNil(t, e, key)
		require.Equal(t, key, e.Key())
		require.False(t, r.take(e, 2), "its own word is kept")
	}
	require.Nil(t, r.View().Load(7, "d"))
	require.Equal(t, 3, r.View().Len())
}

func TestAnyKeyOfAHashCanLeave(t *testing.T) {
	for _, gone := range []string{"first", "middle", "last"} {
		t.Run(gone, func(t *testing.T) {
			r := newAlike(t)
			for _, key := range []string{"last", "middle", "first"} {
				at := 2 * hour
				if key == gone {
					at = 1
				}
				r.add(key, at)
			}
			require.Equal(t, 1, r.sweep(2*hour))
			for _, key := range []string{"first", "middle", "last"} {
				require.Equal(t, key != gone, r.has(key), key)
			}
			require.NoError(t, r.Check())
			require.Equal(t, 2, r.sweep(4*hour), "and then the others")
			require.Zero(t, r.View().Len())
		})
	}
}

// While evictions are half done, a key's dead and new entries are both in the map.
func TestADeadEntryHidesNoNewOne(t *testing.T) {
	r := newAlike(t)
	old := r.add("a", 1)
	old.word.Store(tombstone) // a writer died before unlinking it
	r.Recover()
	fresh := r.open("a")
	require.NotSame(t, old, fresh)
	require.True(t, r.take(fresh, 2))
	r.fileOne(fresh, 2)
	require.Same(t, fresh, r.View().Load(7, "a"))
	r.settle(3)
	require.Same(t, fresh, r.View().Load(7, "a"))
	require.Equal(t, 1, r.View().Len())
}

// Promise: The index files each key once.
func TestEachKeyOfAHashHasOneFiling(t *testing.T) {
	r := newRig[int](t, Options{MaxKeys: 200})
	r.hasher = oneHash[int]
	for key := range 100 {
		r.add(key, 1)
	}
	require.Equal(t, 100, r.index.Len())
	require.NoError(t, r.Check())
	r.Recover()
	r.settle(1)
	require.Equal(t, 100, r.index.Len())
	require.NoError(t, r.Check())
	require.Equal(t, 100, r.sweep(2*hour))
}
