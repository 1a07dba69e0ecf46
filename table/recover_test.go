package table

import (
	"testing"
	"time"

	"github.com/ral-limiter/ral/policy"
	"github.com/stretchr/testify/require"
)

// A new writer visits all shards in bounded steps. Due entries leave, and the others end with a
// filing each, by their words and not by the old index.
func TestRecoverIndexesInSteps(t *testing.T) {
	const shards = 5
	r := newRig[int](t, Options{MaxKeys: shards * keysPerShard})
	for key := range 3000 {
		e := r.add(key, policy.Instant(1+key))
		if key%2 == 0 {
			require.True(t, r.take(e, 2*hour))
		}
	}
	r.Recover()
	require.Zero(t, r.index.Len())
	for !r.recovered() {
		require.True(t, r.Unsettled())
		before := r.index.Len()
		r.Settle(2 * hour)
		require.LessOrEqual(t, r.index.Len()-before, settleStep)
		require.NoError(t, r.Check(), "the part of the index that is rebuilt must agree with the map")
	}
	// Settle the rest of the nursery.
	r.settle(2 * hour)
	require.Equal(t, 1500, r.View().Len())
	require.Equal(t, 1500, r.index.Len())
	require.Zero(t, r.sweep(2*hour))
}

// Wherever a writer dies, the next ends up with a consistent table that has lost nothing.
//
// Promise: A writer's death at any point refills no bucket.
func TestRecoverFromDeathAtEachPoint(t *testing.T) {
	for _, deadly := range Points() {
		t.Run(deadly, func(t *testing.T) {
			armed := false
			r := newRig[string](t, Options{MaxKeys: 3, Fault: func(point string) {
				if armed && point == deadly {
					armed = false
					panic(killed{})
				}
			}})
			dies := func(work func()) (died bool) {
				armed = true
				defer func() {
					armed = false
					died = recover() != nil
				}()
				work()
				return false
			}
			r.add("owing", 2*hour)
			used := r.add("used", 1)
			require.True(t, r.take(used, 2*hour))
			r.add("idle", 1)
			fresh := (*Entry[string])(nil)
			slower := policy.Must(policy.Funnel(1, 1, 2*time.Hour))
			change := NewChange(slower, 1)

			works := []func(){
				func() { r.Sweep(2*hour, 10) },
				func() {
					if fresh = r.open("new"); fresh.Word() == tentative {
						r.take(fresh, 2*hour)
					}
					r.fileOne(fresh, 2*hour)
				},
				func() { r.Apply(ChangeCommand[string](change)); r.settle(2 * hour) },
				func() { r.MakeRoom(2*hour, 1, 10) },
				func() { r.Recover(); r.settle(2 * hour) },
			}
			deaths := 0
			for _, work := range works {
				if dies(work) {
					deaths++
					r.Recover()
					r.settle(2 * hour)
					require.NoError(t, r.Check())
					// The new writer tries the command again.
					work()
				}
				require.NoError(t, r.Check())
			}
			require.NotZero(t, deaths, "no schedule came by the point")
			require.Equal(t, ChangeMade, <-change.Answer())
			require.Equal(t, slower, r.terms.Load().Policy)
			require.False(t, r.changing)
			for e := range r.View().All() {
				require.False(t, r.take(e, 4*hour-1), "%s must have its debt, for as long as the new policy keeps it", e.Key())
			}
			require.Equal(t, 2, r.View().Len(), "three keys less the key that made room must remain")
			require.EqualValues(t, 2, r.counters.Evicted.Load(), "the idle key and the key with the least debt must be evicted")
		})
	}
}

// Entries whose command was lost are adopted in bounded steps, wherever they are, even if more are
// lost all the time.
func TestSettleAdoptsLostFilings(t *testing.T) {
	for _, unceasing := range []bool{false, true} {
		r := newRig[uint64](t, Options{MaxKeys: 1 << 20})
		r.hasher = func(key uint64) uint64 { return key }
		n := uint64(len(r.nursery))
		require.Greater(t, n, uint64(3*settleStep))
		for _, key := range []uint64{0, settleStep, n - 1} {
			require.True(t, r.take(r.open(key), 1))
		}
		r.View().NoteLostFiling()
		for range n/settleStep + 1 {
			require.True(t, r.Unsettled())
			if unceasing {
				r.View().NoteLostFiling()
			}
			r.Settle(1)
		}
		require.Equal(t, 3, r.index.Len())
		require.Equal(t, unceasing, r.Unsettled())
		r.settle(1)
	}
}

// Even if each writer dies after a shard, before it sweeps, the idle keys of every shard leave.
func TestRecoverGoesOnWhereThePredecessorWas(t *testing.T) {
	const shards, keys, idle = 5, 5 * settleStep, 5 * settleStep / 4
	r := newRig[int](t, Options{MaxKeys: shards * keysPerShard})
	for key := range keys {
		if e := r.add(key, 1); key >= idle {
			require.True(t, r.take(e, 2*hour), "an entry in use was removed")
		}
	}
	for life := 0; r.View().Len() > keys-idle; life++ {
		require.Less(t, life, 2*shards, "%d idle keys are left", r.View().Len()-keys+idle)
		r.Recover()
		for begun := false; !begun || len(r.pending) > 0; begun = true {
			r.Settle(2 * hour)
			require.NoError(t, r.Check())
		}
	}
}
