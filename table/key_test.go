package table

import (
	"fmt"
	"math"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"
)

// built returns a text in memory of its own, and a function that overwrites that memory.
func built(text string) (key string, overwrite func()) {
	if text == "" {
		return "", func() {}
	}
	buffer := []byte(text)
	return unsafe.String(&buffer[0], len(buffer)), func() {
		for i := range buffer {
			buffer[i] = '!'
		}
	}
}

// Promise: The table copies texts of at most 80 bytes, and keeps no memory of the caller's for them.
func TestShortTextsStandBesideTheirLevel(t *testing.T) {
	r := newRig[string](t, Options{})
	for length := range 120 {
		want := strings.Repeat("a", length)
		key, overwrite := built(want)
		e := newEntry(key, r.texts)
		require.True(t, e.is(key), length)
		require.False(t, e.is(key+"a"), length)
		if length > 0 {
			require.False(t, e.is(key[1:]), length)
			require.False(t, e.is(key[1:]+"b"), length)
		}
		overwrite()
		require.Equal(t, length <= 80, e.Key() == want || length == 0, length)
	}
}

// An entry of a text up to 16 bytes is no larger than one with a pointer to it, and texts up to 48
// bytes are in one cache line with their word.
func TestShortTextLiesInItsEntry(t *testing.T) {
	r := newRig[string](t, Options{})
	for length, want := range map[int]uintptr{0: 32, 16: 32, 17: 64, 48: 64, 49: 80, 64: 80, 65: 96, 80: 96} {
		const n = 1000
		key := strings.Repeat("a", length)
		entries := make([]*Entry[string], n)
		// Goroutines of the runtime allocate as well, which only adds: the least of several figures counts.
		size := uint64(math.MaxUint64)
		for range 5 {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			for i := range entries {
				entries[i] = newEntry(key, r.texts)
			}
			runtime.ReadMemStats(&after)
			size = min(size, after.TotalAlloc-before.TotalAlloc)
		}
		require.InDelta(t, float64(want*n), float64(size), n, length)
		runtime.KeepAlive(entries)
	}
}

type name string

// Keys are texts by their underlying type, which an interface does not have.
func TestKeysOfOtherTypes(t *testing.T) {
	require.True(t, newRig[name](t, Options{}).texts)
	testKeys(t, name("a"), name("b"), name(""), name(strings.Repeat("c", 80)), name(strings.Repeat("c", 81)))
	require.False(t, newRig[any](t, Options{}).texts)
	testKeys[any](t, "a", "b", name("a"), 1, nil, [2]string{"a", "b"})
	testKeys(t, 0, 1, -1)
	testKeys(t, [2]uint64{}, [2]uint64{1}, [2]uint64{0, 1})
	testKeys(t, [1]string{"a"}, [1]string{""})
	testKeys(t, struct{ name string }{"a"}, struct{ name string }{""})
	testKeys(t, struct{}{})
}

func testKeys[K comparable](t *testing.T, keys ...K) {
	r := newRig[K](t, Options{})
	for i, key := range keys {
		e := r.open(key)
		require.Equal(t, key, e.Key())
		require.True(t, r.take(e, 1))
		if i%2 == 0 {
			r.fileOne(e, 1)
		}
	}
	for _, key := range keys {
		e := r.View().Look(r.hash(key), key)
		require.NotNil(t, e, key)
		require.Equal(t, key, e.Key())
		require.False(t, r.take(e, 1))
	}
}

// An entry's counts and marks stand beside the length of its text, and none changes another.
func TestLengthOfATextStaysWithItsLevel(t *testing.T) {
	r := newRig[string](t, Options{})
	key := strings.Repeat("k", 80)
	e := r.add(key, 1)
	require.True(t, e.LockReturn())
	require.False(t, e.LockReturn())
	e.AddReturned(ReturnedMask)
	require.Equal(t, uint64(ReturnedMask), e.Returned())
	e.MarkForeignTurn()
	require.True(t, e.HasForeignTurn())
	e.AddReturned(2)
	e.UnlockReturn()
	require.EqualValues(t, 1, e.Returned(), "the count must wrap")
	require.Equal(t, key, e.Key())
	require.True(t, e.HasForeignTurn())
	require.True(t, e.LockReturn())
	e.UnlockReturn()
}

// A change of policy copies each text again, lest an entry keep the one before it alive.
func TestReplacedEntryIsCollected(t *testing.T) {
	r := newTally[string](t, Options{})
	for i := range 60 {
		r.add(fmt.Sprintf("%0*d", i+1, i%10), 1)
	}
	var collected atomic.Int64
	for e := range r.View().All() {
		runtime.AddCleanup(e, func(n int64) { collected.Add(n) }, 1)
	}
	r.mustChange(tally{2}, 1)
	for collections := 0; collected.Load() < 60; collections++ {
		require.Less(t, collections, 1000, "%d of 60 were collected", collected.Load())
		runtime.GC()
	}
	for i := range 60 {
		require.True(t, r.has(fmt.Sprintf("%0*d", i+1, i%10)))
	}
}

// A text from Key outlives its entry.
func TestKeyOfADeadEntry(t *testing.T) {
	r := newRig[string](t, Options{MaxKeys: 100})
	var keys []string
	for i := range 100 {
		keys = append(keys, r.add(fmt.Sprintf("key %0*d", i, i), 1).Key())
	}
	require.Equal(t, 100, r.sweep(9*hour))
	runtime.GC()
	for range 1000 {
		// These entries lie in the memory of entries that were collected.
		newEntry(strings.Repeat("x", 48), true)
	}
	for i, key := range keys {
		require.Equal(t, fmt.Sprintf("key %0*d", i, i), key)
	}
}
