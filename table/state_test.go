package table

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/ral-limiter/ral/policy"
	"github.com/stretchr/testify/require"
)

// A table is drained among calls on known and new keys, in every order of steps. Each admitted unit
// is in the last words. As in package cell, a closed table opens no key and refuses a new key that
// finds it closed after its take.
func TestDrainMissesNoUnit(t *testing.T) {
	for _, keys := range [][]string{{"known", "known"}, {"new", "new"}, {"known", "new", "other"}} {
		t.Run(fmt.Sprint(keys), func(t *testing.T) {
			explore(t, 5-len(keys), func(x *explorer) (each, end func() string) {
				table := New[string](Options{Policy: policy.Must(policy.Funnel(100, 1, time.Hour)), Idle: time.Minute, MaxKeys: 4})
				table.hasher = func(key string) uint64 { return map[string]uint64{"known": 1, "new": 2 << 20, "other": 4 << 20}[key] }
				table.step = x.step
				known, _ := table.View().Open(1, "known")
				table.File(1, 1)
				closed, admitted, drained := false, map[string]int64{}, map[string]int64{}
				for i, key := range keys {
					x.spawn(fmt.Sprint("caller ", i, " of ", key), func() {
						e, isNew := known, false
						for {
							if key != "known" || e != known {
								isNew = true
								x.step("call: look whether it is closed")
								if closed {
									return
								}
								e, _ = table.View().Open(table.hash(key), key)
							}
							for {
								x.step("call: take")
								word, terms := table.View().Read(e)
								state, alive := terms.State(word)
								if !alive {
									e = nil
									break
								}
								next, _ := terms.Policy.Take(state, 1, 1, 0)
								x.step("call: decided")
								if e.Advance(word, next) {
									x.step("call: taken")
									if !isNew || !closed {
										admitted[key]++
									}
									return
								}
							}
						}
					})
				}
				x.spawn("closer", func() {
					x.step("close: begin")
					closed = true
					table.Drain(func(e *Entry[string], r Reading) {
						_, d := r.Terms.Policy.Take(r.State, 1, 0, 0)
						drained[e.Key()] += 100 - d.Remaining
					})
				})
				return func() string { return "" }, func() string {
					for key, n := range admitted {
						if drained[key] < n {
							return fmt.Sprintf("%d units of %s are admitted, and %d in its last word", n, key, drained[key])
						}
					}
					return ""
				}
			})
		})
	}
}

// A drained table has only dead entries, and new words never reach it.
func TestDrainEndsEveryEntry(t *testing.T) {
	table := New[int](Options{Policy: policy.Must(policy.Funnel(100, 1, time.Hour)), Idle: time.Minute, MaxKeys: 1000})
	var all []*Entry[int]
	for key := range 1000 {
		e, _ := table.View().Open(table.hash(key), key)
		next, _ := table.View().Terms().Policy.Take(0, 1, 1, 0)
		if key%3 > 0 {
			require.True(t, e.Advance(e.Word(), next))
		}
		if key%2 == 0 {
			table.File(table.hash(key), 1)
		}
		all = append(all, e)
	}
	seen := map[int]bool{}
	table.Drain(func(e *Entry[int], r Reading) {
		require.False(t, seen[e.Key()], "a key was drained twice")
		seen[e.Key()] = true
		require.Equal(t, e.Key()%3 > 0, r.State != 0)
	})
	require.Len(t, seen, 1000)
	for _, e := range all {
		require.True(t, e.dead())
		_, ok := table.View().State(e)
		require.False(t, ok)
	}
	table.Drain(func(*Entry[int], Reading) { t.Error("a dead entry was drained") })
}

// A loader keeps the keys with the most debt, in any order, each with its last word.
func TestLoaderKeepsTheKeysOfMostDebt(t *testing.T) {
	const most = 50
	for range 20 {
		table := New[int](Options{Policy: policy.Must(policy.Funnel(1000, 1, time.Hour)), Idle: time.Minute, MaxKeys: most})
		l := table.Loader()
		units := map[int]int64{}
		for _, key := range rand.Perm(200) {
			for range 1 + rand.IntN(2) {
				if table.View().Len() == most && units[key] > 0 {
					// The key may have been left out.
					break
				}
				n := 1 + 4*int64(key) + rand.Int64N(4)
				state, _ := table.View().Terms().Policy.Take(0, 1, n, 0)
				l.Add(key, state, key%2 == 0)
				units[key] = n
			}
		}
		l.Done(table.View().Terms().Policy, 7)
		require.EqualValues(t, 7, table.View().Horizon())
		require.Equal(t, most, table.View().Len())
		require.EqualValues(t, 150, table.counters.Forgiven.Load())
		for e, r := range table.View().All() {
			require.GreaterOrEqual(t, e.Key(), 150)
			_, d := r.Terms.Policy.Take(r.State, 1, 0, 0)
			require.Equal(t, units[e.Key()], 1000-d.Remaining)
			require.Equal(t, e.Key()%2 == 0, r.Foreign)
		}
		table.Recover()
		for table.Unsettled() {
			table.Settle(8)
		}
		require.NoError(t, table.Check())
	}
}
