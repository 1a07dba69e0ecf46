package engine

import (
	"fmt"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/internal/testkit/testenv"
	"github.com/ral-limiter/ral/janitor"
	"github.com/ral-limiter/ral/policy"
)

// soon is the longest time to live after Idle: the janitor's period, for the tick just missed, and
// the sweep.
func soon(idle time.Duration) time.Duration { return janitor.Every(idle) + time.Millisecond }

// Promise: Keys without debt leave soon after `Idle`.
func TestIdleAndDrainedKeyIsGoneSoon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const idle = time.Minute
		e := open[string](t, Config{Policy: funnel(10, 1, time.Second), Idle: idle})

		// The units have drained after 3 s.
		require.True(t, e.Take("three", 3).Allowed)
		// The unit has drained after 1 s.
		require.True(t, e.Choke("one"))
		time.Sleep(idle + time.Second - time.Nanosecond)
		synctest.Wait()
		assert.Equal(t, 2, e.Len(), "both keys must stay, as it is too soon for either")

		time.Sleep(soon(idle))
		assert.Equal(t, 1, e.Len(), "only the key that had drained sooner must leave")
		time.Sleep(2*time.Second - time.Millisecond)
		assert.Equal(t, 0, e.Len())

		s := e.Stats()
		assert.EqualValues(t, 2, s.Evicted)
		assert.Zero(t, s.Forgiven)
		assert.Equal(t, int64(10), e.Peek("three", 0).Remaining)
	})
}

// A flood of new keys against a victim at its limit. During and after it:
//
//  1. there are never more than MaxKeys entries;
//  2. the heap is at most 1.2 times the first full table's: out of order entries fill the leaves of
//     the index by two thirds;
//  3. the victim is always refused;
//  4. the flood's keys were evicted to make room, owing one unit each.
//
// Promise: Under a bucket a flood evicts no key that owes more.
func TestFloodNeitherGrowsTheTableNorForgivesTheVictim(t *testing.T) {
	const callers = 4
	maxKeys, flood := 100_000, 5_000_000
	if testing.Short() || testenv.Race {
		maxKeys, flood = 20_000, 60_000
	}
	e := open[string](t, Config{Policy: funnel(10, 1, time.Hour), MaxKeys: maxKeys, OpenTimeout: time.Minute})

	require.True(t, e.Take("victim", 10).Allowed)
	for i := range maxKeys - 1 {
		require.True(t, e.Choke(fmt.Sprintf("regular-%08d", i)))
	}
	settled(t, e)
	full := heapInUse()

	together(callers, func(c int) {
		for i := range flood / callers {
			if !e.Choke(fmt.Sprintf("flood-%02d-%07d", c, i)) {
				t.Error("a new key was refused")
			}
			if i%1000 == 0 {
				assert.False(t, e.Choke("victim"))
				assert.LessOrEqual(t, e.Len(), maxKeys)
			}
		}
	})
	settled(t, e)
	assert.False(t, e.Choke("victim"), "the flood has washed the victim out")
	assert.LessOrEqual(t, e.Len(), maxKeys)
	after := heapInUse()
	assert.LessOrEqual(t, float64(after), 1.2*float64(full), "the heap grew from %d in a full table to %d after the flood", full, after)
	s := e.Stats()
	assert.Zero(t, s.Unavailable)
	assert.GreaterOrEqual(t, s.Forgiven, uint64(flood))
	t.Logf("heap: %d KiB full, %d KiB after %d new keys, %d evicted", full>>10, after>>10, flood, s.Evicted)
}

func heapInUse() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

func TestWhenFullDecidesForNewKeys(t *testing.T) {
	for when, retry := range map[WhenFull]time.Duration{RefuseNew: time.Minute, AdmitNew: 0} {
		synctest.Test(t, func(t *testing.T) {
			e := open[string](t, Config{Policy: funnel(2, 1, time.Second), MaxKeys: 2, WhenFull: when, Idle: time.Minute})
			require.True(t, e.Choke("a"))
			require.True(t, e.Choke("b"))
			for range 3 {
				d := e.Take("c", 1)
				assert.Equal(t, when == AdmitNew, d.Allowed)
				assert.Equal(t, retry, d.RetryAfter)
				assert.Equal(t, int64(2), d.Limit)
			}
			assert.Equal(t, policy.Never, e.Take("c", 3).RetryAfter, "a call above the limit must be refused for ever")
			assert.True(t, e.Choke("a"), "a known key must go on")
			assert.False(t, e.Choke("a"))
			s := e.Stats()
			assert.Equal(t, 2, s.Keys)
			assert.EqualValues(t, 3, s.Full)
			assert.Zero(t, s.Forgiven)

			time.Sleep(2*time.Second + time.Minute + soon(time.Minute))
			require.True(t, e.Choke("c"), "a new key must pass once the others have left")
			assert.Equal(t, 1, e.Len())
			assert.EqualValues(t, 3, e.Stats().Full)
		})
	}
}
