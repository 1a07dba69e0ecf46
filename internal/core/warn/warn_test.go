package warn

import (
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/internal/core/shape"
	"github.com/ral-limiter/ral/policy"
)

func TestSharesArePassedOnce(t *testing.T) {
	shares := Shares{0.07, 0.5, 0.999}
	var passed [3][]int64
	for before := int64(100); before > 0; before-- {
		for i := range shares {
			if shares.Passed(100, before, before-1)&(1<<i) != 0 {
				passed[i] = append(passed[i], 100-before+1)
			}
		}
	}
	assert.Equal(t, [3][]int64{{7}, {50}, {100}}, passed, "used units, rounded up")
	assert.Equal(t, Set(7), shares.Passed(100, 100, 0))
	assert.Equal(t, Set(0), shares.Passed(100, 0, 100))
	assert.Equal(t, Set(7), shares.Passed(1, 1, 0), "of a single unit")
	assert.Equal(t, int64(93), shares.First(100))
}

// The levels answer as the decisions of the limit do, except that those of a sliding window may
// err to the safe side.
func TestLevelsMissNoPassing(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for _, limit := range []policy.Policy{
		policy.Must(policy.Funnel(100, 3, time.Second)), policy.Must(policy.Funnel(1, 1, time.Second)),
		policy.Must(policy.Queue(100, 3, time.Second)), policy.Must(policy.Bursty(100, 30*time.Second, 50)), policy.Must(policy.Bursty(100, 30*time.Second, 20)),
		policy.Must(policy.FixedWindow(100, 7*time.Second)), policy.Must(policy.FixedWindow(1_000_000, time.Millisecond)),
		policy.Must(policy.AlignedWindow(100, 7*time.Second)),
		policy.Must(policy.SlidingWindow(100, 7*time.Second)), policy.Must(policy.SlidingWindow(3, time.Second)),
	} {
		shares, most := Shares{0.07, 0.5, 0.95}, shape.AtOnce(limit)
		levels := NewLevels(shares, limit, most)
		require.True(t, levels.byWord)
		sliding := levels.shift > 0
		word, now, below, passings := uint64(0), policy.Instant(1), 0, 0
		for range 20_000 {
			now += policy.Instant(random.IntN(int(time.Second / 2)))
			if random.IntN(500) == 0 {
				now += policy.Instant(30 * time.Second)
			}
			_, before := limit.Take(word, now, 0, 0)
			next, d := limit.Take(word, now, 1, 0)
			if !d.Allowed {
				continue
			}
			passed := shares.Passed(most, before.Remaining, d.Remaining)
			if may := levels.MayPass(next, now); passed != 0 || !sliding {
				require.Equal(t, passed != 0, may, "%v: %d, then %d", limit, before.Remaining, d.Remaining)
			}
			if levels.Below(next, now) {
				require.Greater(t, d.Remaining, levels.Bounds[0], limit)
				below++
			}
			if passed != 0 {
				passings++
			}
			require.False(t, passed != 0 && !levels.MayHavePassed(d.Remaining, 1), limit)
			word = next
		}
		assert.Equal(t, most > 3, below > 0, limit)
		assert.Equal(t, most < 1_000_000, passings > 0, limit)
	}
	atMost := NewLevels(Shares{0.5}, policy.Must(policy.AtMost(10, time.Second)), 10)
	require.False(t, atMost.byWord)
	assert.True(t, atMost.MayPass(1, 1), "its words are unknown")
	require.False(t, atMost.Below(0, 1))
}

func TestTableRemembersUntilTheEnd(t *testing.T) {
	var table Table
	const unit = 1 << endUnit
	assert.True(t, table.First(1, 0, 1, 10*unit))
	assert.False(t, table.First(1, 0, 9*unit, 20*unit), "before the end")
	assert.True(t, table.First(1, 1, 1, 10*unit), "another share")
	assert.True(t, table.First(1, 0, 10*unit, 20*unit), "at the end")
	assert.True(t, table.First(2, 0, 1, 1<<62), "an end beyond all")
	assert.False(t, table.First(2, 0, latestEnd-unit, 0))
	assert.True(t, table.First(3, 0, -5, -5), "a clock before the first instant")
}

// Promise: The table of keys that were warned of is bounded, and few warnings are lost or repeated while it has room.
func TestTableIsBounded(t *testing.T) {
	var table Table
	random := rand.New(rand.NewPCG(1, 2))
	keys := make([]uint64, 1000)
	lost, repeated := 0, 0
	for i := range keys {
		keys[i] = random.Uint64()
		if !table.First(keys[i], 0, 0, int64(time.Hour)) {
			lost++
		}
	}
	for _, key := range keys {
		if table.First(key, 0, 1, int64(time.Hour)) {
			repeated++
		}
	}
	assert.Zero(t, lost)
	assert.Less(t, repeated, 20, "a set of four has seldom five")
	for range 100_000 {
		if !table.First(random.Uint64(), 0, 1, int64(2*time.Hour)) {
			lost++
		}
	}
	assert.Less(t, lost, 30, "a full set has a like tag in 1 of 16,384")
}

// Promise: One of many calls at once may warn of a key.
func TestOneOfManyIsFirst(t *testing.T) {
	for key := range uint64(100) {
		var table Table
		var firsts atomic.Int64
		var callers sync.WaitGroup
		for range 16 {
			callers.Go(func() {
				if table.First(key, 0, 1, int64(time.Hour)) {
					firsts.Add(1)
				}
			})
		}
		callers.Wait()
		require.EqualValues(t, 1, firsts.Load())
	}
}
