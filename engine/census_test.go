package engine

import (
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/policy"
)

func (k KeysByUse) inAll() int {
	return k.Unused + k.BelowHalf + k.Half + k.Most + k.All
}

func (k KeysByUse) withoutTime() KeysByUse {
	k.At = time.Time{}
	return k
}

// nextCount returns the counts a second from now, in a bubble.
func nextCount(e interface{ Stats() Stats }) KeysByUse {
	time.Sleep(janitorSecond)
	synctest.Wait()
	return e.Stats().KeysByUse
}

// janitorSecond is the time between two looks of the janitor.
const janitorSecond = time.Second

// Every number of used units, of 5 and of 10, under every family of limits.
//
// Promise: `Stats.KeysByUse` counts each remaining key once, by its own limit.
func TestKeysAreCountedByUse(t *testing.T) {
	for _, p := range []policy.Policy{
		policy.Must(policy.Funnel(5, 1, time.Hour)),
		policy.Must(policy.Funnel(10, 1, time.Hour)),
		policy.Must(policy.FixedWindow(10, 24*time.Hour)),
		policy.Must(policy.SlidingWindow(10, 24*time.Hour)),
		policy.Must(policy.AtMost(10, 24*time.Hour)),
		policy.Must(policy.AlignedWindow(10, 24*time.Hour)),
		policy.Must(policy.Funnel(1<<32, 1<<32, 24*time.Hour)),
	} {
		t.Run(p.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				e := open[int64](t, Config{Policy: p})
				assert.Zero(t, e.Stats().KeysByUse, "the keys must not be counted yet")
				limit, step := p.Limit(), max(p.Limit()/10, 1)
				for used := int64(0); used <= limit; used += step {
					if used > 0 {
						require.True(t, e.Take(used, used).Allowed)
					}
				}
				require.True(t, e.Choke(-1))
				require.True(t, e.Reset(-1))
				synctest.Wait()
				want := KeysByUse{Unused: 1, BelowHalf: 4, Half: 3, Most: 2, All: 1}
				switch limit {
				case 5:
					want = KeysByUse{Unused: 1, BelowHalf: 2, Half: 1, Most: 1, All: 1}
				// A tenth is rounded down.
				case 1 << 32:
					want = KeysByUse{Unused: 1, BelowHalf: 5, Half: 3, Most: 2}
				}
				got := nextCount(e)
				assert.Equal(t, want, got.withoutTime())
				assert.Equal(t, e.Len(), got.inAll())
				assert.Zero(t, time.Since(got.At))
				time.Sleep(janitorSecond / 2)
				assert.Equal(t, got, e.Stats().KeysByUse, "the count must stay until the next one")
				assert.Equal(t, janitorSecond, nextCount(e).At.Sub(got.At))
			})
		})
	}
}

// Promise: `KeysByUse.UnitsInUse` adds up the units in use of all keys, and loses those that end by themselves.
func TestUnitsInUseAreCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := open[string](t, Config{Policy: policy.Must(policy.InFlight(10, time.Minute))})
		first := e.Reserve("a", 3, 0)
		require.True(t, e.Reserve("b", 4, 0).Allowed)
		require.True(t, e.Choke("c"))
		synctest.Wait()
		assert.Equal(t, uint64(8), nextCount(e).UnitsInUse)
		first.Release()
		assert.Equal(t, uint64(5), nextCount(e).UnitsInUse)
		time.Sleep(2 * time.Minute)
		assert.Zero(t, nextCount(e).UnitsInUse)
	})
}

func TestKeysAreCountedByTheirOwnLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var changed atomic.Bool
		e, err := New(Config{Policy: funnel(10, 10, time.Hour)}, PolicyFor(func(key string) policy.Policy {
			switch key {
			case "large":
				return funnel(100, 10, time.Hour)
			case "used up":
				return funnel(1, 10, time.Hour)
			case "another family's":
				if changed.Load() {
					return policy.Must(policy.SlidingWindow(10, time.Hour))
				}
			}
			return nil
		}))
		require.NoError(t, err)
		defer check(t, e)
		for key, n := range map[string]int64{"small": 8, "large": 8, "used up": 1, "another family's": 5} {
			require.True(t, e.Take(key, n).Allowed)
		}
		changed.Store(true)
		synctest.Wait()
		assert.Equal(t, KeysByUse{BelowHalf: 1, Half: 1, Most: 1, All: 1}, nextCount(e).withoutTime())
		time.Sleep(time.Hour)
		assert.Equal(t, 0, nextCount(e).inAll()-e.Stats().KeysByUse.Unused)
	})
}

// A PolicyFor that blocks, panics or ends its goroutine makes the counts old, and nothing else.
func TestPolicyForHoldsUpTheCountAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var fault atomic.Pointer[func()]
		e, err := New(Config{Policy: funnel(10, 1, time.Second), Idle: 2 * time.Second}, PolicyFor(func(key string) policy.Policy {
			if do := fault.Load(); do != nil && key == "counted" {
				(*do)()
			}
			return nil
		}))
		require.NoError(t, err)
		defer check(t, e)
		held := make(chan struct{})
		for i, do := range []func(){func() { <-held }, func() { panic("a function of the user's") }, runtime.Goexit} {
			require.True(t, e.Take("counted", 10).Allowed)
			synctest.Wait()
			first := nextCount(e)
			require.Equal(t, 1, first.inAll())
			fault.Store(&do)
			require.True(t, e.Take("other", 1).Allowed)
			time.Sleep(5 * janitorSecond)
			require.Equal(t, 1, e.Len(), "the idle key must leave")
			require.Equal(t, first, e.Stats().KeysByUse)
			require.NoError(t, e.Health())
			fault.Store(nil)
			if i == 0 {
				close(held)
			}
			time.Sleep(time.Minute)
			require.NotEqual(t, first.At, e.Stats().KeysByUse.At)
		}
	})
}

// A count goes through the table in bounded steps, and reports nothing before the last. A key that
// stays is counted once while others come and go, the table grows and shrinks, and the policy
// changes.
func TestKeysThatStayAreCountedOnce(t *testing.T) {
	const stay, others = 400, 6000
	// 8 shards, which are copied several times on the way.
	e := open[int](t, Config{Policy: funnel(4, 1, 24*time.Hour), MaxKeys: 8 * 6400, Idle: time.Nanosecond})
	for key := range stay {
		require.True(t, e.Take(key, 4).Allowed)
	}
	settled(t, e)
	var changes atomic.Int64
	stop := make(chan struct{})
	var all sync.WaitGroup
	for _, change := range []func(i int){func(i int) {
		key := stay + i%others
		e.Choke(key)
		// The key leaves.
		e.Reset(stay + (i+others/2)%others)
	}, func(i int) {
		assert.NoError(t, e.SetPolicy(funnel(4, 1, time.Duration(24+i%3)*time.Hour)))
		changes.Add(1)
	}} {
		all.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				default:
					change(i)
				}
			}
		})
	}
	defer all.Wait()
	defer close(stop)
	evicted := func() uint64 { return e.table.View().Counters().Evicted.Load() }
	for counts := 0; counts < 50 || changes.Load() < 50 || evicted() < others; counts++ {
		c := &census[int]{view: e.table.View(), clock: e.control.Now}
		for !c.ended() {
			assert.Less(t, c.part(), censusPart+6400)
			runtime.Gosched()
		}
		require.Equal(t, stay, c.counts.All, "%+v", c.counts)
		require.Zero(t, c.counts.Most)
	}
}

// Promise: `Stats.BlockedKeys` is current for few blocks, else the last count.
func TestManyBlockedKeysAreCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := open[string](t, Config{Policy: funnel(2, 1, time.Hour), Penalty: Penalty{Refusals: 3, Within: time.Hour, For: time.Hour}})
		for i := range censusNow {
			require.NoError(t, e.Block(strconv.Itoa(i), time.Minute+time.Duration(i%2)*time.Hour))
		}
		synctest.Wait()
		assert.Equal(t, censusNow, e.Stats().BlockedKeys, "blocked keys must be counted as of now")
		require.True(t, e.Take("refused", 2).Allowed)
		require.False(t, e.Choke("refused"))
		synctest.Wait()
		assert.Zero(t, e.Stats().BlockedKeys, "keys must not be counted as blocked for refusals alone")
		nextCount(e)
		assert.Equal(t, censusNow, e.Stats().BlockedKeys)
		time.Sleep(time.Minute)
		nextCount(e)
		assert.Equal(t, censusNow/2, e.Stats().BlockedKeys)
		assert.Equal(t, KeysByUse{All: 1}, e.Stats().KeysByUse.withoutTime(), "keys of the other table must not be counted")
	})
}
