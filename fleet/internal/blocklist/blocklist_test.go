package blocklist

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/policy"
)

func itself(key string) string { return key }

// A block ends as heard last, by Redis's clock, to the nanosecond.
func TestLaterWordHolds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := New(100, itself)
		require.True(t, l.Empty())
		l.Heard("a", 0, 5)
		require.True(t, l.Empty())
		l.Heard("a", time.Minute, 10)
		l.Heard("a", time.Hour, 9)
		l.Heard("a", 0, 9)
		time.Sleep(time.Second)
		left := l.Left("a", time.Second+1)
		assert.Equal(t, 59*time.Second, left)
		assert.Zero(t, l.Left("a", time.Second), "it was heard a second ago")
		left = l.Left("b", policy.Never)
		assert.Zero(t, left)
		time.Sleep(59*time.Second - 1)
		left = l.Left("a", policy.Never)
		assert.Equal(t, time.Nanosecond, left)
		time.Sleep(1)
		left = l.Left("a", policy.Never)
		assert.Zero(t, left)
		assert.True(t, l.Empty(), "what has ended is removed when it is looked at")

		l.Heard("a", time.Minute, 20)
		l.Heard("a", 0, 20)
		assert.True(t, l.Empty())
		l.Heard("a", time.Minute, 30)
		l.Forget("a")
		l.Forget("a")
		assert.True(t, l.Empty())
	})
}

// A server's own block holds until Redis is heard, and shortens none.
func TestOwnBlockHoldsUntilRedisSpeaks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := New(100, itself)
		l.Heard("a", time.Hour, 10)
		l.Block("a", time.Minute)
		left := l.Left("a", policy.Never)
		assert.Equal(t, time.Hour, left)
		l.Block("a", 2*time.Hour)
		l.Heard("a", time.Second, 9)
		left = l.Left("a", policy.Never)
		assert.Equal(t, 2*time.Hour, left)
		l.Heard("a", time.Second, 11)
		left = l.Left("a", policy.Never)
		assert.Equal(t, time.Second, left)
		l.Block("b", time.Hour)
		l.Heard("b", 0, -5)
		left = l.Left("b", policy.Never)
		assert.Equal(t, time.Hour, left, "heard by a clock from before")
		l.Heard("b", 0, 0)
		left = l.Left("b", policy.Never)
		assert.Zero(t, left)
	})
}

// A full list drops ended blocks, and never long blocks for shorter.
// Promise: `MaxKeys` bounds the list of known blocks.
func TestListIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, most := range []int{1, 2, 63, 64, 1000} {
			l := New(most, itself)
			count := func() (n int) {
				for i := range l.shards {
					n += len(l.shards[i].entries)
				}
				require.EqualValues(t, n, l.count.Load())
				return n
			}
			for i := range 3 * most {
				l.Heard(fmt.Sprint("long ", i), time.Hour, 1)
			}
			require.LessOrEqual(t, count(), most)
			for i := range 3 * most {
				l.Heard(fmt.Sprint("short ", i), time.Minute, 1)
			}
			held := 0
			for i := range 3 * most {
				if left := l.Left(fmt.Sprint("short ", i), policy.Never); left > 0 {
					held++
				}
			}
			require.LessOrEqual(t, count(), most)
			require.LessOrEqual(t, held, most-most/4, "only where there was room in a shard")
			time.Sleep(2 * time.Hour)
			for i := range 20 * most {
				l.Heard(fmt.Sprint("later ", i), time.Hour, 1)
			}
			require.LessOrEqual(t, count(), most)
			held = 0
			for i := range 20 * most {
				if left := l.Left(fmt.Sprint("later ", i), policy.Never); left > 0 {
					held++
				}
			}
			assert.Positive(t, held)
		}
	})
}

func TestKeysAreKnownByTheirNames(t *testing.T) {
	l := New(10, func(key string) string { return key[:1] })
	l.Heard("a"+strings.Repeat("x", 1000), time.Hour, 1)
	left := l.Left("a", policy.Never)
	assert.Positive(t, left)
}

func TestLooksAllocateNothingAndRace(t *testing.T) {
	l := New(100, itself)
	l.Heard("a", time.Hour, 1)
	assert.Zero(t, testing.AllocsPerRun(100, func() { l.Left("a", policy.Never); l.Left("b", policy.Never); l.Empty() }))
	var all sync.WaitGroup
	for i := range 4 {
		all.Go(func() {
			r := rand.New(rand.NewPCG(uint64(i), 1))
			for range 2000 {
				key := fmt.Sprint(r.IntN(200))
				switch r.IntN(5) {
				case 0:
					l.Heard(key, time.Duration(r.IntN(1000)), 1)
				case 1:
					l.Heard(key, 0, 1)
				case 2:
					l.Block(key, time.Duration(r.IntN(1000)))
				case 3:
					l.Forget(key)
				default:
					l.Left(key, policy.Never)
				}
			}
		})
	}
	all.Wait()
	n := 0
	for i := range l.shards {
		n += len(l.shards[i].entries)
	}
	assert.EqualValues(t, n, l.count.Load())
	assert.LessOrEqual(t, n, 100)
}
