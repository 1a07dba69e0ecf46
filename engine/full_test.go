package engine

import (
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/policy"
)

// 64 goroutines fill a table with exactly as many keys as it holds, in the same order. A table that
// only looks full because calls want the same place evicts no key, refuses no call, and lets each
// key pass once.
//
// Promise: The table never exceeds `MaxKeys`, under each `WhenFull`.
func TestFillingATableExactly(t *testing.T) {
	for _, when := range []WhenFull{EvictLeastDebt, RefuseNew, AdmitNew} {
		for _, maxKeys := range []int{1, 2, 100, 1500} {
			t.Run(fmt.Sprintf("%v %d", when, maxKeys), func(t *testing.T) {
				all := keys(maxKeys)
				for range 2 + 8/raceFactor {
					e, err := New[string](Config{
						Policy: funnel(1, 1, time.Hour), MaxKeys: maxKeys, WhenFull: when, OpenTimeout: time.Minute,
					})
					require.NoError(t, err)
					var admitted atomic.Int64
					together(64, func(int) {
						for _, key := range all {
							if e.Choke(key) {
								admitted.Add(1)
							}
						}
					})
					assert.EqualValues(t, maxKeys, admitted.Load())
					s := e.Stats()
					assert.Equal(t, maxKeys, s.Keys)
					assert.Zero(t, s.Forgiven+s.Full+s.Unavailable, "%+v", s)
					check(t, e)
				}
			})
		}
	}
}

// Promise: In a full table a new key costs one other.
func TestOneNewKeyCostsOneOther(t *testing.T) {
	const maxKeys = 100
	e := open[string](t, Config{Policy: funnel(1, 1, time.Hour), MaxKeys: maxKeys, OpenTimeout: time.Minute})
	for _, key := range keys(maxKeys) {
		require.True(t, e.Choke(key))
	}
	for i := range 50 {
		var admitted atomic.Int64
		together(64, func(int) {
			if e.Choke(fmt.Sprint("new", i)) {
				admitted.Add(1)
			}
		})
		require.EqualValues(t, 1, admitted.Load())
		require.EqualValues(t, i+1, e.Stats().Forgiven)
	}
}

// A call that waits for room in a full table takes when there is room: its units do not drain
// during the wait.
func TestTakeAfterWaitingForRoomBeginsThen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limit := &watched{Policy: policy.Must(policy.AtMost(10, 5*time.Millisecond))}
		e := open[int](t, Config{Policy: limit, MaxKeys: 1})
		require.True(t, e.Choke(0))
		synctest.Wait()
		time.Sleep(time.Minute)
		slow := func() { time.Sleep(8 * time.Millisecond) }
		limit.asked.Store(&slow)
		begun := time.Now()
		first := e.Take(1, 10)
		require.True(t, first.Allowed)
		require.GreaterOrEqual(t, time.Since(begun), 8*time.Millisecond, "it had to wait")
		assert.False(t, e.Choke(1), "11 within 5 ms")
	})
}
