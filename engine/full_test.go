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

// 64 goroutines fill a table with exactly as many keys as it holds, in the same order or their own.
// A table that only looks full because calls want the same place evicts no key, refuses no call,
// and lets each key pass once. Then each further key evicts one, unless the table is large enough to
// make room ahead of need.
//
// Promise: The table never exceeds `MaxKeys`, under each `WhenFull`.
// Promise: Racing calls for new keys pass exactly to the limit.
// Promise: In a full table a new key costs one other.
func TestFillingATableExactly(t *testing.T) {
	for _, when := range []WhenFull{EvictLeastDebt, RefuseNew, AdmitNew} {
		for _, maxKeys := range []int{1, 2, 100, 1500} {
			t.Run(fmt.Sprintf("%v %d", when, maxKeys), func(t *testing.T) {
				all := keys(maxKeys)
				for round := range 2 + 8/raceFactor {
					e, err := New[string](Config{
						Policy: funnel(1, 1, time.Hour), MaxKeys: maxKeys, WhenFull: when, OpenTimeout: time.Minute,
					})
					require.NoError(t, err)
					var admitted atomic.Int64
					together(64, func(i int) {
						for j := range all {
							if round%2 == 1 {
								// The order goes through all keys, as 7 divides no maxKeys.
								j = (j*7 + i*31) % maxKeys
							}
							if e.Choke(all[j]) {
								admitted.Add(1)
							}
						}
					})
					assert.EqualValues(t, maxKeys, admitted.Load())
					s := e.Stats()
					assert.Equal(t, maxKeys, s.Keys)
					assert.Zero(t, s.Forgiven+s.Full+s.Unavailable, "%+v", s)
					assert.EqualValues(t, 64*maxKeys, s.Admitted+s.Refused)
					for i := 0; when == EvictLeastDebt && maxKeys == 100 && i < 50; i++ {
						admitted.Store(0)
						together(64, func(int) {
							if e.Choke(fmt.Sprint("new", i)) {
								admitted.Add(1)
							}
						})
						assert.EqualValues(t, 1, admitted.Load())
						assert.EqualValues(t, i+1, e.Stats().Forgiven)
					}
					check(t, e)
				}
			})
		}
	}
}

// A call that waits for room in a full table takes when there is room: its units do not drain
// during the wait.
func TestTakeAfterWaitingForRoomBeginsThen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var slow atomic.Bool
		limit := &hooked{Policy: policy.Must(policy.AtMost(10, 5*time.Millisecond)), fresh: func() {
			if slow.CompareAndSwap(true, false) {
				time.Sleep(8 * time.Millisecond)
			}
		}}
		e := open[int](t, Config{Policy: limit, MaxKeys: 1})
		require.True(t, e.Choke(0))
		synctest.Wait()
		time.Sleep(time.Minute)
		slow.Store(true)
		begun := time.Now()
		first := e.Take(1, 10)
		require.True(t, first.Allowed)
		require.GreaterOrEqual(t, time.Since(begun), 8*time.Millisecond, "the call must have waited for room")
		assert.False(t, e.Choke(1), "the key must be at its limit, as 11 calls within 5 ms have used its units")
	})
}
