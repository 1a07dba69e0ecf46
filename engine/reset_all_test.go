package engine

import (
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/policy"
)

// Promise: `Reset` forgets all used units of a key.
func TestResetForgetsAllUsedUnits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		clock := newHandClock()
		e := open[string](t, Config{Policy: funnel(3, 1, time.Second), Clock: clock.Now})
		assert.False(t, e.Reset("key"))
		require.True(t, e.Take("key", 3).Allowed)
		assert.True(t, e.Reset("key"), "a key must be reset in the nursery and when it is filed")
		assert.EqualValues(t, 3, e.Peek("key", 0).Remaining)
		assert.False(t, e.Reset("key"), "a key without used units was reset")
		synctest.Wait()
		require.True(t, e.Take("key", 3).Allowed)
		r := e.Reserve("key", 3, time.Hour)
		e.Refund("key", -5)
		assert.True(t, e.Reset("key"))
		assert.Equal(t, policy.Decision{Allowed: true, Limit: 3, Remaining: 3}, e.Peek("key", 0))
		require.True(t, e.Take("key", 2).Allowed)
		r.Cancel()
		assert.EqualValues(t, 1, e.Peek("key", 0).Remaining, "units that were given back already must not come back again")

		clock.Advance(2 * time.Second)
		assert.False(t, e.Reset("key"), "a drained key was reset")
		require.True(t, e.Choke("key"))
		require.NoError(t, e.SetPolicy(funnel(5, 1, time.Second)))
		assert.True(t, e.Reset("key"))
		assert.EqualValues(t, 5, e.Peek("key", 0).Remaining)
		assert.Zero(t, e.Stats().Refused)

		require.True(t, e.Choke("key"))
		require.NoError(t, e.Close())
		assert.False(t, e.Reset("key"))
	})
}

// 64 goroutines use up and reset keys in a table too small for all. Each reset that reports use
// gives one unit.
func TestEachResetGivesItsUnitOnce(t *testing.T) {
	clock := newHandClock()
	e := open[int](t, Config{Policy: funnel(1, 1, time.Hour), Clock: clock.Now, OpenTimeout: time.Minute})
	var passed, reset atomic.Int64
	together(64, func(i int) {
		dice := rand.New(rand.NewPCG(71, uint64(i)))
		for range 3000 / raceFactor {
			if key := dice.IntN(10); dice.IntN(3) == 0 {
				if e.Reset(key) {
					reset.Add(1)
				}
			} else if e.Choke(key) {
				passed.Add(1)
			}
		}
	})
	for key := range 10 {
		if e.Reset(key) {
			reset.Add(1)
		}
	}
	assert.Positive(t, reset.Load())
	assert.Equal(t, passed.Load(), reset.Load())
}

// Promise: `All` shows each remaining key once and no departed key.
func TestAllShowsEachKeyOnce(t *testing.T) {
	clock := newHandClock()
	e := open[int](t, Config{Policy: funnel(5, 1, time.Second), Clock: clock.Now})
	for key := range 3000 {
		require.True(t, e.Take(key, int64(key%5)+1).Allowed)
	}
	// The keys are partly in the nursery, and then all filed.
	for range 2 {
		seen := map[int]bool{}
		for key, d := range e.All() {
			require.False(t, seen[key])
			seen[key] = true
			require.Equal(t, e.Peek(key, 0), d)
		}
		assert.Len(t, seen, 3000)
		settled(t, e)
	}
	n := 0
	for range e.All() {
		if n++; n == 10 {
			break
		}
	}
	assert.Equal(t, 10, n)

	// The keys may be used meanwhile.
	require.NoError(t, e.SetPolicy(funnel(9, 1, time.Second)))
	for key, d := range e.All() {
		require.EqualValues(t, 9, d.Limit)
		require.True(t, e.Reset(key))
		require.True(t, e.Choke(key))
	}
	require.NoError(t, e.Close())
	for range e.All() {
		t.Fatal("All returned a key that was reset")
	}
}
