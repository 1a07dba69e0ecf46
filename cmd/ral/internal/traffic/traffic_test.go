package traffic

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Promise: `ral replay` sorts requests by their beginning, and counts those that its window is too short for.
func TestRequestsLeaveByArrival(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	var want, got []Request
	w := Window{Span: time.Second, Max: 1 << 20}
	for i := range int64(20_000) {
		end := (i + 2_000) * 1_000_000
		r := Request{Key: uint32(i), Duration: time.Duration(random.Int64N(1_000_000_000))}
		r.Arrival = end - int64(r.Duration)
		want = append(want, r)
		w.Push(r)
		for r, ok := w.Pop(false); ok; r, ok = w.Pop(false) {
			got = append(got, r)
		}
	}
	held := w.held.Len()
	assert.Greater(t, held, 400)
	assert.Less(t, held, 1_100, "a second's requests")
	for r, ok := w.Pop(true); ok; r, ok = w.Pop(true) {
		got = append(got, r)
	}
	slices.SortStableFunc(want, func(a, b Request) int { return cmp.Compare(a.Arrival, b.Arrival) })
	assert.Equal(t, want, got)
	assert.Zero(t, w.Late)
	assert.Zero(t, w.Crowded)
}

func TestLateRequestsLeaveWithTheLast(t *testing.T) {
	w := Window{Span: 10, Max: 3}
	var arrivals []int64
	for _, arrival := range []int64{100, 120, 95, 121, 122, 123, 124} {
		w.Push(Request{Arrival: arrival})
		for r, ok := w.Pop(false); ok; r, ok = w.Pop(false) {
			arrivals = append(arrivals, r.Arrival)
		}
	}
	assert.Equal(t, []int64{100, 100, 120, 121}, arrivals)
	assert.EqualValues(t, 1, w.Late)
	assert.EqualValues(t, 2, w.Crowded, "no more than three are held back")
}

func TestKeysAreBounded(t *testing.T) {
	k := Keys{Max: 64, CanGo: func(uint32) bool { return true }}
	number := func(i int) (uint32, bool) { return k.Number(fmt.Appendf(nil, "key %d", i)) }
	pinned, _ := number(0)
	k.Pin(pinned)
	for i := range 10_000 {
		n, ok := number(i)
		require.True(t, ok)
		require.Equal(t, fmt.Sprintf("key %d", i), k.Name(n))
		require.LessOrEqual(t, k.Len(), 64)
		require.LessOrEqual(t, k.Size(), 64)
	}
	again, _ := number(0)
	assert.Equal(t, pinned, again)
	assert.Greater(t, k.Forgotten, int64(9_900))
	assert.Zero(t, k.Unknown)

	k.CanGo = func(uint32) bool { return false }
	for i := range 200 {
		number(20_000 + i)
	}
	assert.Equal(t, 64, k.Len())
	assert.Greater(t, k.Unknown, int64(100))
	k.CanGo = nil
	_, ok := number(30_000)
	assert.False(t, ok)
	seen := 0
	for range k.All {
		seen++
	}
	assert.Equal(t, 64, seen)
}
