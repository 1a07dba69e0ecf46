package engine

import (
	"bytes"
	"context"
	"fmt"
	"hash/maphash"
	"maps"
	"path/filepath"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/internal/core/penalty"
	"github.com/ral-limiter/ral/internal/core/seam"
	"github.com/ral-limiter/ral/internal/testkit/must"
	"github.com/ral-limiter/ral/limits"
	"github.com/ral-limiter/ral/policy"
)

// verbsOnKey are all verbs that ask for n units at once. They return the answer, and the decision
// unless the verb has none.
func verbsOnKey(e, other *Engine[string]) map[string]func(key string, n int64) (d policy.Decision, allowed bool) {
	ctx := context.Background()
	all := func(out Outcome) (policy.Decision, bool) { return out.Decisions[0], out.Allowed }
	take := func(key string, n int64) (policy.Decision, bool) {
		d := e.Take(key, n)
		return d, d.Allowed
	}
	ofOne := func(choke func(key string) bool) func(string, int64) (policy.Decision, bool) {
		return func(key string, n int64) (policy.Decision, bool) {
			if n != 1 {
				return take(key, n)
			}
			return policy.Decision{}, choke(key)
		}
	}
	return map[string]func(string, int64) (policy.Decision, bool){
		"Choke": ofOne(func(key string) bool { return e.Choke(key) }),
		"Allow": ofOne(func(key string) bool { return e.Allow(key) }),
		"Take":  take,
		"TakeWith": func(key string, n int64) (policy.Decision, bool) {
			d := e.TakeWith(e.Limit(), key, n)
			return d, d.Allowed
		},
		"Reserve": func(key string, n int64) (policy.Decision, bool) {
			r := e.Reserve(key, n, 0)
			return r.Decision, r.Allowed
		},
		"Acquire": func(key string, n int64) (policy.Decision, bool) {
			r, err := e.Acquire(ctx, key, n, 0)
			return r.Decision, err == nil
		},
		"TakeAll": func(key string, n int64) (policy.Decision, bool) { return all(TakeAll(e.Claim(key, n))) },
		"AcquireAll": func(key string, n int64) (policy.Decision, bool) {
			out, err := AcquireAll(ctx, 0, e.Claim(key, n))
			return out.Decisions[0], err == nil
		},
		"Admit": func(key string, n int64) (policy.Decision, bool) {
			a, err := e.Admit(ctx, key, n)
			return a.Decision, err == nil && a.Allowed
		},
		"Hold": func(key string, n int64) (policy.Decision, bool) {
			g, err := e.Hold(ctx, limits.Call[string]{Key: key, N: n})
			return g.Decision, err == nil && g.Allowed
		},
		"Tiered": func(key string, n int64) (policy.Decision, bool) {
			d := (&Tiered[string]{engines: []*Engine[string]{e}}).Take(key, n)
			return d, d.Allowed
		},
		"TakeAll of two": func(key string, n int64) (policy.Decision, bool) {
			return all(TakeAll(e.Claim(key, n), other.Claim("other", 1)))
		},
	}
}

// forEachVerb runs f in a bubble for each verb, on an engine made of config.
func forEachVerb(t *testing.T, config Config, f func(t *testing.T, e *Engine[string], call func(string, int64) (policy.Decision, bool))) {
	for name := range verbsOnKey(nil, nil) {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				e, other := open[string](t, config), open[string](t, Config{Policy: funnel(1000, 1, time.Second)})
				f(t, e, verbsOnKey(e, other)[name])
			})
		})
	}
}

// The later end of the block and the limit decides.
//
// Promise: Every verb refuses a blocked key, to the nanosecond.
func TestBlockedKeyIsRefusedByEveryVerb(t *testing.T) {
	config := Config{Policy: funnel(100, 1, time.Second)}
	forEachVerb(t, config, func(t *testing.T, e *Engine[string], call func(string, int64) (policy.Decision, bool)) {
		for _, c := range []struct {
			used, n int64
			ends    time.Duration
		}{{0, 1, time.Minute}, {0, 100, time.Minute}, {100, 1, time.Minute}, {100, 100, 100 * time.Second}} {
			e.Reset("k")
			e.Take("k", c.used)
			settled(t, e)
			require.NoError(t, e.Block("k", time.Minute))
			began := time.Now()
			for _, after := range []time.Duration{time.Second, time.Minute - 1, c.ends - 1} {
				time.Sleep(time.Until(began.Add(after)))
				d, allowed := call("k", c.n)
				require.False(t, allowed, "%+v, after %v", c, after)
				if d != (policy.Decision{}) {
					require.Equal(t, c.ends-after, d.RetryAfter)
					require.EqualValues(t, 100, d.Limit)
					if after < time.Minute {
						require.Zero(t, d.Remaining)
					}
				}
			}
			require.True(t, e.Choke("another"))
			time.Sleep(time.Nanosecond)
			_, allowed := call("k", c.n)
			require.True(t, allowed, "%+v", c)
			// All units have drained.
			time.Sleep(5 * time.Minute)
		}
	})
}

func lift(e *Engine[string], key string) bool { return e.Block(key, 0) == nil }

// Promise: A `Block` of 0 lifts blocks and keeps used units.
func TestBlockOfZeroLiftsABlockAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := open[string](t, Config{Policy: funnel(10, 1, time.Hour), Penalty: Penalty{Refusals: 2, Within: time.Minute, For: time.Minute, Max: time.Hour}})
		assert.True(t, lift(e, "k"))
		assert.Empty(t, maps.Collect(e.AllBlocked()))
		require.True(t, e.Take("k", 7).Allowed)
		assert.True(t, lift(e, "k"), "a key that is not blocked must be lifted, too")
		require.NoError(t, e.Block("k", time.Hour))
		assert.Equal(t, map[string]time.Duration{"k": time.Hour}, maps.Collect(e.AllBlocked()))
		want := policy.Decision{Limit: 10, RetryAfter: time.Hour, ResetAfter: 7 * time.Hour}
		assert.Equal(t, map[string]policy.Decision{"k": want}, maps.Collect(e.All()))
		assert.Equal(t, want, e.Take("k", 1))
		assert.True(t, lift(e, "k"))
		assert.True(t, lift(e, "k"), "a key that is not blocked must be lifted, too")
		assert.Zero(t, e.Blocked("k"))
		assert.Equal(t, int64(3), e.Peek("k", 0).Remaining, "units used before must go on counting")
		require.True(t, e.Take("k", 3).Allowed)

		// There are two refusals each time, and the first block's length.
		for range 2 {
			assert.Equal(t, time.Hour, e.Take("k", 1).RetryAfter)
			assert.Zero(t, e.Blocked("k"))
			e.Take("k", 1)
			assert.Equal(t, time.Minute, e.Blocked("k"))
			assert.True(t, lift(e, "k"))
		}
		e.Take("k", 1)
		assert.True(t, lift(e, "k"), "a refusal that counts must be lifted")
		e.Take("k", 1)
		assert.Zero(t, e.Blocked("k"))
	})
}

func TestBlockRefusesBadTimes(t *testing.T) {
	e := open[string](t, Config{Policy: funnel(10, 1, time.Second)})
	for _, d := range []time.Duration{-1, penalty.Longest + 1, policy.Never} {
		var bad *policy.FieldError
		require.ErrorAs(t, e.Block("k", d), &bad)
		assert.Equal(t, &policy.FieldError{Of: "engine.Block", Field: "d", Value: d, Want: "0 to 35040h0m0s"}, bad)
	}
	assert.Nil(t, e.blocks.Load(), "blocks were made although no key is blocked")
	require.NoError(t, e.Block("k", penalty.Longest))
	assert.False(t, e.Choke("k"))
	of := open[any](t, Config{Policy: funnel(10, 1, time.Second)})
	require.ErrorIs(t, of.Block([]int{1}, time.Second), ErrUnavailable)
	require.NoError(t, e.Close())
	for _, key := range []string{"k", "new"} {
		require.ErrorIs(t, e.Block(key, time.Second), ErrClosed)
	}

	clock := newHandClock()
	late := open[string](t, Config{Policy: funnel(10, 1, time.Second), Clock: clock.Now})
	clock.Advance(1<<58 - 2*time.Hour)
	var bad *policy.FieldError
	require.ErrorAs(t, late.Block("k", 3*time.Hour), &bad)
	require.NoError(t, late.Block("k", time.Hour))
}

// Refusals by the block do not count. The next block is twice as long.
//
// Promise: A `Penalty`'s last refusal blocks before its call returns.
func TestPenaltyBlocksAtTheLastRefusal(t *testing.T) {
	config := Config{
		Policy:  funnel(1, 1, 10*time.Second),
		Penalty: Penalty{Refusals: 3, Within: time.Minute, For: time.Minute, Max: 3 * time.Minute},
	}
	forEachVerb(t, config, func(t *testing.T, e *Engine[string], call func(string, int64) (policy.Decision, bool)) {
		refused := func(retry time.Duration) {
			t.Helper()
			d, allowed := call("k", 1)
			require.False(t, allowed)
			if d != (policy.Decision{}) {
				require.Equal(t, []time.Duration{retry, retry}, []time.Duration{d.RetryAfter, d.ResetAfter})
			}
		}
		for i, length := range []time.Duration{time.Minute, 2 * time.Minute, 3 * time.Minute, 3 * time.Minute} {
			_, allowed := call("k", 1)
			require.True(t, allowed)
			refused(10 * time.Second)
			refused(10 * time.Second)
			require.Zero(t, e.Blocked("k"))
			for range 11 {
				refused(length)
				require.Equal(t, length, e.Blocked("k"))
			}
			s := e.Stats()
			require.EqualValues(t, []int{i + 1, 10 * (i + 1), 13 * (i + 1)}, []int{int(s.Penalties), int(s.Blocked), int(s.Refused)})
			time.Sleep(length)
		}
		// Forget has passed.
		time.Sleep(3 * time.Minute)
		for range 4 {
			call("k", 1)
		}
		require.Equal(t, time.Minute, e.Blocked("k"))
	})
}

// Not counted: refusals for ever, misfits, refusals without the key's word, and calls whose context
// ended. A turn too late counts.
func TestRefusalsThatCountTowardsAPenalty(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := open[string](t, Config{
			Policy:   funnel(2, 1, time.Minute),
			MaxKeys:  1,
			WhenFull: RefuseNew,
			Penalty:  Penalty{Refusals: 1, Within: time.Minute, For: time.Second},
		})
		require.True(t, e.Take("k", 2).Allowed)
		e.Take("k", 3)
		e.Take("k", -1)
		e.TakeWith(policy.Must(policy.FixedWindow(1, time.Second)), "k", 1)
		e.Take("k", 0)
		e.Peek("k", 0)
		assert.False(t, e.Choke("no room"))
		ended, end := context.WithCancel(context.Background())
		end()
		require.ErrorIs(t, e.Wait(ended, "k", 1), ErrCancelled)
		require.ErrorIs(t, e.Wait(context.Background(), "k", 3), ErrNever)
		soon, end := context.WithCancel(context.Background())
		time.AfterFunc(time.Second, end)
		require.ErrorIs(t, e.Wait(soon, "k", 1), ErrCancelled)
		assert.Zero(t, e.Blocked("k"))
		assert.Zero(t, e.Blocked("no room"))
		assert.Zero(t, e.Stats().Penalties)
		late, end := context.WithTimeout(context.Background(), time.Second)
		defer end()
		require.ErrorIs(t, e.Wait(late, "k", 1), ErrDeadline)
		assert.Equal(t, time.Second, e.Blocked("k"))
		time.Sleep(time.Second)
		_, err := e.Acquire(context.Background(), "k", 1, time.Second)
		require.ErrorIs(t, err, ErrDeadline)
		assert.Equal(t, time.Second, e.Blocked("k"))
	})
}

func TestNoCallPassesAfterBlock(t *testing.T) {
	wide := funnel(1<<40, 1<<20, time.Second)
	e, tiers := open[string](t, Config{Policy: wide}), openTiered[string](t, Config{Policy: wide}, wide)
	calls := []func(key string) bool{
		e.Choke, tiers.Choke,
		func(key string) bool { return e.Take(key, 2).Allowed || tiers.Take(key, 2).Allowed },
		func(key string) bool { return TakeAll(e.Claim(key, 1), e.Claim("all", 1)).Allowed },
	}
	for round := range repeated(80) {
		key := fmt.Sprint(round % 7)
		var blocked atomic.Bool
		together(1+len(calls), func(i int) {
			if i == len(calls) {
				for range 20 {
					e.Choke(key)
				}
				assert.NoError(t, e.Block(key, time.Hour))
				assert.NoError(t, tiers.Block(key, time.Hour))
				blocked.Store(true)
				return
			}
			for after := 0; after < 20; {
				was := blocked.Load()
				allowed := calls[i](key)
				if was {
					after++
					assert.False(t, allowed, "call %d", i)
				}
			}
		})
		assert.True(t, e.Reset(key) && tiers.Reset(key))
		assert.True(t, e.Choke(key) && tiers.Choke(key))
	}
}

func TestAcquireAllWaitsForTheEndOfABlock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := open[string](t, Config{Policy: funnel(2, 1, time.Second)})
		require.NoError(t, e.Block("k", time.Minute))
		began := time.Now()
		_, err := AcquireAll(t.Context(), time.Hour, e.Claim("k", 0))
		require.ErrorIs(t, err, ErrDeadline)
		_, err = AcquireAll(t.Context(), time.Minute-1, e.Claim("k", 1), e.Claim("other", 1))
		require.ErrorIs(t, err, ErrDeadline)
		assert.Equal(t, began, time.Now())
		_, err = AcquireAll(t.Context(), time.Hour, e.Claim("other", 1), e.Claim("k", 1))
		require.NoError(t, err)
		assert.Equal(t, time.Minute, time.Since(began))
	})
}

// Promise: A `Tiered` refuses a key blocked under any limit.
func TestTieredBlocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tiers := openTiered[string](t, Config{
			Policy: funnel(2, 1, time.Second), Penalty: Penalty{Refusals: 2, Within: time.Hour, For: time.Minute},
		}, funnel(3, 1, time.Hour))
		first, second := tiers.Engines()[0], tiers.Engines()[1]
		require.True(t, tiers.Take("k", 2).Allowed)
		assert.Equal(t, time.Second, tiers.Take("k", 1).RetryAfter)
		assert.False(t, tiers.Choke("k"))
		assert.Equal(t, time.Minute, first.Blocked("k"))
		assert.Equal(t, policy.Decision{Limit: 2, RetryAfter: time.Minute, ResetAfter: 2 * time.Hour}, tiers.Take("k", 1))
		time.Sleep(time.Minute)
		require.True(t, tiers.Choke("k"))
		assert.False(t, tiers.Choke("k"), "the second limit must refuse the call, as its first refusal")
		assert.Equal(t, time.Hour-time.Minute, tiers.Take("k", 1).RetryAfter)
		assert.Equal(t, time.Minute, second.Blocked("k"))
		assert.True(t, tiers.Reset("k"))
		require.NoError(t, tiers.Block("k", time.Hour))
		out := TakeAll(tiers.Claims("k", 1)...)
		assert.Equal(t, []any{time.Hour, 0}, []any{out.RetryAfter, out.Binding})
		require.NoError(t, tiers.Block("k", 0), "Block must lift the key under each limit")
		assert.True(t, tiers.Choke("k"))
		require.ErrorIs(t, (&Tiered[string]{}).Block("k", 1), ErrUnavailable)
	})
}

// In a flood, a Block without room says so.
//
// Promise: Blocked keys never make room; at most `MaxKeys` blocks are kept.
func TestBlockedKeysAreNeverGone(t *testing.T) {
	synctest.Test(t, blockedKeysAreNeverGone)
}

func blockedKeysAreNeverGone(t *testing.T) {
	const most = 64
	e := open[int](t, Config{
		Policy: funnel(1, 1, time.Hour), MaxKeys: most,
		Penalty: Penalty{Refusals: 2, Within: time.Minute, For: time.Hour},
	})
	for key := range most / 2 {
		require.NoError(t, e.Block(key, time.Hour))
	}
	for key := 1000; key < 1000+20*most; key++ {
		e.Choke(key)
		// The refusal counts, unless the key was evicted in between.
		e.Choke(key)
		require.LessOrEqual(t, e.blocks.Load().Len(), most)
	}
	for key := range most {
		require.NoError(t, e.Block(key, time.Hour), "key %d", key)
	}
	require.ErrorIs(t, e.Block(most, time.Hour), ErrFull)
	for key := 10_000; key < 10_000+20*most; key++ {
		e.Choke(key)
		e.Choke(key)
	}
	for key := range most {
		require.False(t, e.Choke(key), "key %d", key)
		require.NotZero(t, e.Blocked(key))
	}
	require.Equal(t, most, e.Stats().BlockedKeys)
	require.NotZero(t, e.Stats().Unpunished)
	require.NoError(t, e.Block(3, 2*time.Hour), "a blocked key must need no room for another block")

	require.True(t, e.Reset(7))
	for e.Block(most, time.Hour) != nil {
		require.Greater(t, e.Blocked(0), 50*time.Minute, "no room was made for another blocked key before long")
	}
	require.NotZero(t, e.Blocked(most))
	require.Zero(t, e.Blocked(7))
	require.ErrorIs(t, e.Block(7, time.Hour), ErrFull)
	require.Equal(t, most, e.Stats().BlockedKeys)
}

// Promise: Blocks, counted refusals and doublings survive a restart.
func TestBlocksSurviveARestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rule := Penalty{Refusals: 2, Within: time.Minute, For: time.Minute, Max: time.Hour}
		config := Config{Policy: funnel(1, 1, 10*time.Second), Penalty: rule}
		e := open[string](t, config)
		require.NoError(t, e.Block("blocked", time.Hour))
		require.NoError(t, e.Block("short", time.Second))
		for key, calls := range map[string]int{"counting": 2, "twice": 3} {
			for range calls {
				e.Choke(key)
			}
		}
		require.Equal(t, time.Minute, e.Blocked("twice"))
		e = restart(t, e, config, func() { time.Sleep(50 * time.Second) })
		defer func() { check(t, e) }()
		assert.Equal(t, time.Hour-50*time.Second, e.Blocked("blocked"))
		assert.Equal(t, 10*time.Second, e.Blocked("twice"))
		assert.Zero(t, e.Blocked("short"))
		assert.Equal(t, 4, e.blocks.Load().Len(), "a block that is over must stay for Forget")
		assert.Equal(t, 2, e.Stats().BlockedKeys)
		assert.True(t, e.Choke("counting"))
		assert.Equal(t, time.Minute, e.Take("counting", 1).RetryAfter, "the key's second refusal within a minute must block it")
		time.Sleep(10 * time.Second)
		for range 3 {
			e.Choke("twice")
		}
		assert.Equal(t, 2*time.Minute, e.Blocked("twice"))
		require.NoError(t, e.Block("blocked", 2*time.Hour))

		// An engine without a Penalty keeps only the blocked keys.
		var file bytes.Buffer
		require.NoError(t, e.Save(&file))
		load := func(config Config) *Engine[string] {
			loaded, err := Load[string](bytes.NewReader(file.Bytes()), config)
			require.NoError(t, err)
			t.Cleanup(func() { check(t, loaded) })
			return loaded
		}
		none := Config{Policy: config.Policy}
		other := load(none)
		assert.Equal(t, 2*time.Hour, other.Blocked("blocked"))
		assert.Equal(t, 2*time.Minute, other.Blocked("twice"))
		assert.False(t, other.Choke("blocked"))
		time.Sleep(2 * time.Minute)
		late := load(Config{Policy: config.Policy, MaxKeys: 1})
		assert.Equal(t, 2*time.Hour-2*time.Minute, late.Blocked("blocked"), "the key that is blocked longest must keep its block")
		assert.NotZero(t, late.Stats().Forgiven)
		time.Sleep(2 * time.Hour)
		assert.Nil(t, load(none).blocks.Load(), "an engine must keep no blocks that are over")
	})
}

// Every block of which Block has returned is in the file, whenever the engine is closed, and after
// a crash if a save has come since.
func TestEveryBlockIsInTheFile(t *testing.T) {
	for round := range repeated(30) {
		config := Config{
			Policy: funnel(10, 1, time.Second),
			State:  State{Path: filepath.Join(t.TempDir(), "state"), Every: time.Hour},
		}
		e, err := New[int](config)
		require.NoError(t, err)
		var blocked [4][]int
		var closing sync.WaitGroup
		together(4, func(i int) {
			for key := i; ; key += 4 {
				if i == 0 && key == 4*round {
					closing.Go(func() { assert.NoError(t, e.Close()) })
				}
				if err := e.Block(key, time.Hour); err != nil {
					assert.ErrorIs(t, err, ErrClosed)
					return
				}
				blocked[i] = append(blocked[i], key)
			}
		})
		closing.Wait()
		e, err = New[int](config)
		require.NoError(t, err)
		for i := range blocked {
			for _, key := range blocked[i] {
				require.NotZero(t, e.Blocked(key), "round %d, key %d", round, key)
				require.False(t, e.Choke(key))
			}
		}
		require.NoError(t, e.Close())
	}
}

// stepped is a scheduler for a table that reports its steps.
type stepped struct {
	// No other method of the Scheduler is called.
	seam.Scheduler
	seed maphash.Seed
	step func(point string)
}

func (s *stepped) Step(point string)  { s.step(point) }
func (s *stepped) Seed() maphash.Seed { return s.seed }

// Close overtakes a Block whose key lands after the last read of blocks.
func TestBlockThatCloseOvertakesIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		config := inFile(t, Config{Policy: funnel(10, 1, time.Second)})
		e, err := New[string](config)
		require.NoError(t, err)
		// Now there is a table of blocks.
		require.NoError(t, e.Block("before", time.Hour))
		synctest.Wait()
		var lands, drained sync.Once
		landing, goOn, blocked := make(chan struct{}), make(chan struct{}), make(chan error, 1)
		require.True(t, seam.Give(e.blocks.Load().table, &stepped{seed: e.cell.Seed(), step: func(point string) {
			switch point {
			// Block is called below.
			case "open: not in the map":
				lands.Do(func() {
					close(landing)
					<-goOn
				})
			// The nursery, where keys land, is done.
			case "drain: next shard":
				drained.Do(func() {
					close(goOn)
					err = <-blocked
				})
			}
		}}))
		go func() { blocked <- e.Block("overtaken", time.Hour) }()
		<-landing
		require.NoError(t, e.Close())
		require.ErrorIs(t, err, ErrClosed)
		e = open[string](t, config)
		require.NotZero(t, e.Blocked("before"))
		require.Zero(t, e.Blocked("overtaken"))
	})
}

// Promise: No blocked key passes during `Close`.
func TestBlocksHoldDuringClose(t *testing.T) {
	for range 30 {
		e, err := New[int](Config{Policy: funnel(1<<28, 1, time.Second), State: State{Path: filepath.Join(t.TempDir(), "state")}})
		require.NoError(t, err)
		for key := range 200 {
			require.True(t, e.Choke(key))
			require.NoError(t, e.Block(key, time.Hour))
		}
		var over atomic.Bool
		together(3, func(i int) {
			if i == 0 {
				assert.NoError(t, e.Close())
				over.Store(true)
				return
			}
			for key := 0; !over.Load(); key++ {
				assert.False(t, e.Choke(key%200))
			}
		})
	}
}

// Promise: Blocks outlive their writer, and `Health` reports its end.
func TestBlocksWithoutAWriter(t *testing.T) {
	e := open[string](t, Config{Policy: funnel(10, 1, time.Second)})
	require.NoError(t, e.Block("k", time.Hour))
	b := e.blocks.Load()
	// The engine ends as by a supervisor that gives up.
	b.stop()
	<-b.running.Done()
	require.ErrorIs(t, e.Health(), ErrUnhealthy)
	assert.ErrorContains(t, e.Health(), "of blocked keys")
	assert.False(t, e.Choke("k"))
	assert.True(t, e.Choke("new"))
	require.NoError(t, e.Block("k", 2*time.Hour))
	require.ErrorIs(t, e.Block("new", time.Hour), ErrUnavailable)
	assert.True(t, e.Reset("k"))
	assert.True(t, e.Choke("k"))
}

// Events of both supervisors come one after the other, under different names.
func TestBlocksTellTheirEvents(t *testing.T) {
	var inside atomic.Int64
	var mu sync.Mutex
	seen := map[string]int{}
	e, err := New[string](Config{
		Name: "shop", Policy: funnel(10, 1, time.Second), Penalty: Penalty{Refusals: 1, Within: 1, For: 1},
		OnEvent: func(event Event) {
			assert.EqualValues(t, 1, inside.Add(1))
			defer inside.Add(-1)
			for range 1000 {
				// Another event would come meanwhile.
				runtime.Gosched()
			}
			mu.Lock()
			defer mu.Unlock()
			seen[event.Supervisor+" "+event.Child]++
		},
	})
	require.NoError(t, err)
	for _, child := range []string{"shop writer", "shop janitor", "shop/blocks writer", "shop/blocks janitor"} {
		must.Await(t, func() bool {
			mu.Lock()
			defer mu.Unlock()
			return seen[child] > 0
		}, "an event of %s comes", child)
	}
	require.NoError(t, e.Close())
}
