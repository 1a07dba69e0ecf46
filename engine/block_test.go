package engine

import (
	"bytes"
	"context"
	"fmt"
	"hash/maphash"
	"math/rand/v2"
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
	"github.com/ral-limiter/ral/internal/testkit/await"
	"github.com/ral-limiter/ral/limits"
	"github.com/ral-limiter/ral/policy"
	"github.com/ral-limiter/ral/table"
)

// verbsOnKey are all verbs that ask for n units at once. They return the decision, if any, and the
// answer.
func verbsOnKey(e, other *Engine[string]) map[string]func(key string, n int64) (d policy.Decision, allowed bool) {
	return map[string]func(string, int64) (policy.Decision, bool){
		"Choke": func(key string, n int64) (policy.Decision, bool) {
			if n != 1 {
				d := e.Take(key, n)
				return d, d.Allowed
			}
			return policy.Decision{}, e.Choke(key)
		},
		"Allow": func(key string, n int64) (policy.Decision, bool) {
			if n != 1 {
				d := e.Take(key, n)
				return d, d.Allowed
			}
			return policy.Decision{}, e.Allow(key)
		},
		"Take": func(key string, n int64) (policy.Decision, bool) { d := e.Take(key, n); return d, d.Allowed },
		"TakeWith": func(key string, n int64) (policy.Decision, bool) {
			d := e.TakeWith(e.Limit(), key, n)
			return d, d.Allowed
		},
		"Reserve": func(key string, n int64) (policy.Decision, bool) {
			r := e.Reserve(key, n, 0)
			return r.Decision, r.Allowed
		},
		"Acquire": func(key string, n int64) (policy.Decision, bool) {
			r, err := e.Acquire(context.Background(), key, n, 0)
			return r.Decision, err == nil
		},
		"TakeAll": func(key string, n int64) (policy.Decision, bool) {
			out := TakeAll(e.Claim(key, n))
			return out.Decisions[0], out.Allowed
		},
		"AcquireAll": func(key string, n int64) (policy.Decision, bool) {
			out, err := AcquireAll(context.Background(), 0, e.Claim(key, n))
			return out.Decisions[0], err == nil
		},
		"Ask": func(key string, n int64) (policy.Decision, bool) {
			a, err := e.Ask(context.Background(), key, n)
			return a.Decision, err == nil && a.Allowed
		},
		"Hold": func(key string, n int64) (policy.Decision, bool) {
			g, err := e.Hold(context.Background(), limits.Call[string]{Key: key, N: n})
			return g.Decision, err == nil && g.Allowed
		},
		"TakeAll of two": func(key string, n int64) (policy.Decision, bool) {
			out := TakeAll(e.Claim(key, n), other.Claim("other", 1))
			return out.Decisions[0], out.Allowed
		},
	}
}

// Promise: Every verb refuses a blocked key, to the nanosecond.
func TestBlockedKeyIsRefusedByEveryVerb(t *testing.T) {
	names := verbsOnKey(nil, nil)
	for name := range names {
		for _, owing := range []bool{false, true} {
			t.Run(fmt.Sprint(name, owing), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					e := open[string](t, Config{Policy: funnel(100, 1, time.Second)})
					call := verbsOnKey(e, open[string](t, Config{Policy: funnel(1000, 1, time.Second)}))[name]
					if owing {
						require.True(t, e.Take("k", 50).Allowed)
						settled(t, e)
					}
					for _, n := range []int64{1, 100} {
						e.Reset("k")
						if owing {
							e.Take("k", 100)
						}
						require.NoError(t, e.Block("k", time.Minute))
						ends := time.Now().Add(time.Minute)
						want := time.Minute
						if owing && n == 100 {
							want = 100 * time.Second
						}
						time.Sleep(time.Second)
						want -= time.Second
						d, allowed := call("k", n)
						require.False(t, allowed)
						if d != (policy.Decision{}) {
							require.Equal(t, want, d.RetryAfter)
							require.Zero(t, d.Remaining)
							require.EqualValues(t, 100, d.Limit)
						}
						time.Sleep(time.Until(ends) - 1)
						_, allowed = call("k", n)
						require.False(t, allowed, "the last nanosecond")
						time.Sleep(time.Nanosecond)
						_, allowed = call("k", n)
						require.Equal(t, want == time.Minute-time.Second, allowed)
						if !allowed {
							time.Sleep(40*time.Second - 1)
							_, allowed = call("k", n)
							require.False(t, allowed)
							time.Sleep(time.Nanosecond)
							_, allowed = call("k", n)
							require.True(t, allowed)
						}
						require.True(t, e.Choke("another"))
						time.Sleep(5 * time.Minute) // all has drained
					}
				})
			})
		}
	}
}

// Looks are Peek, Take of nothing, All, Blocked and AllBlocked.
func TestLooksShowABlock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := open[string](t, Config{Policy: funnel(10, 1, time.Second)})
		assert.Zero(t, e.Blocked("k"))
		for range e.AllBlocked() {
			t.Error("no key is blocked")
		}
		require.True(t, e.Take("k", 4).Allowed)
		require.True(t, e.Take("free", 4).Allowed)
		require.NoError(t, e.Block("k", time.Minute))
		require.NoError(t, e.Block("unseen", time.Hour))
		want := policy.Decision{Limit: 10, RetryAfter: time.Minute, ResetAfter: time.Minute}
		assert.Equal(t, want, e.Peek("k", 0))
		assert.Equal(t, want, e.Peek("k", 2))
		assert.EqualValues(t, policy.Never, e.Peek("k", 11).RetryAfter)
		assert.Equal(t, want, e.Take("k", 0))
		all := map[string]policy.Decision{}
		for key, d := range e.All() {
			all[key] = d
		}
		assert.Equal(t, map[string]policy.Decision{"k": want, "free": {Allowed: true, Limit: 10, Remaining: 6, ResetAfter: 4 * time.Second}}, all)
		assert.Equal(t, 2, e.Len())
		assert.Equal(t, time.Minute, e.Blocked("k"))
		assert.Zero(t, e.Blocked("free"))
		blocked := map[string]time.Duration{}
		for key, left := range e.AllBlocked() {
			blocked[key] = left
		}
		assert.Equal(t, map[string]time.Duration{"k": time.Minute, "unseen": time.Hour}, blocked)
		for range e.AllBlocked() {
			break
		}
		assert.Equal(t, Stats{Admitted: 2, Keys: 2, BlockedKeys: 2, Blocks: 2}, counts(e))
		assert.False(t, e.Choke("k"))
		assert.False(t, e.Take("k", 2).Allowed)
		assert.Equal(t, Stats{Admitted: 2, Refused: 2, Blocked: 2, Keys: 2, BlockedKeys: 2, Blocks: 2}, counts(e))
		assert.EqualValues(t, policy.Never, e.Take("k", 11).RetryAfter)

		// The limit drains meanwhile.
		time.Sleep(time.Minute)
		assert.Equal(t, policy.Decision{Allowed: true, Limit: 10, Remaining: 10}, e.Peek("k", 0))
		assert.Equal(t, 1, e.Stats().BlockedKeys)
	})
}

func counts(e *Engine[string]) Stats {
	s := e.Stats()
	return Stats{
		Admitted: s.Admitted, Refused: s.Refused, Blocked: s.Blocked, Keys: s.Keys, BlockedKeys: s.BlockedKeys,
		Blocks: s.Blocks, Penalties: s.Penalties, Unpunished: s.Unpunished,
	}
}

func TestLaterEndHoldsAndResetLifts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := open[string](t, Config{Policy: funnel(10, 1, time.Second)})
		require.NoError(t, e.Block("k", time.Minute))
		require.NoError(t, e.Block("k", time.Second))
		assert.Equal(t, time.Minute, e.Blocked("k"))
		time.Sleep(30 * time.Second)
		require.NoError(t, e.Block("k", time.Minute))
		assert.Equal(t, time.Minute, e.Blocked("k"))
		assert.True(t, e.Reset("k"))
		assert.False(t, e.Reset("k"))
		assert.Zero(t, e.Blocked("k"))
		assert.True(t, e.Choke("k"))
	})
}

func lift(e *Engine[string], key string) bool { return e.Block(key, 0) == nil }

// Promise: A `Block` of 0 lifts blocks and keeps used units.
func TestBlockOfZeroLiftsABlockAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := open[string](t, Config{Policy: funnel(10, 1, time.Hour), Penalty: Penalty{Refusals: 2, Within: time.Minute, For: time.Minute, Max: time.Hour}})
		assert.True(t, lift(e, "k"))
		require.True(t, e.Take("k", 7).Allowed)
		assert.True(t, lift(e, "k"), "a key that is not blocked")
		require.NoError(t, e.Block("k", time.Hour))
		assert.Equal(t, time.Hour, e.Take("k", 1).RetryAfter)
		assert.True(t, lift(e, "k"))
		assert.True(t, lift(e, "k"), "a key that is not blocked")
		assert.Zero(t, e.Blocked("k"))
		assert.Equal(t, int64(3), e.Peek("k", 0).Remaining, "what it has used goes on counting")
		require.True(t, e.Take("k", 3).Allowed)

		for range 2 { // two refusals each time, and the first block's length
			assert.Equal(t, time.Hour, e.Take("k", 1).RetryAfter)
			assert.Zero(t, e.Blocked("k"))
			e.Take("k", 1)
			assert.Equal(t, time.Minute, e.Blocked("k"))
			assert.True(t, lift(e, "k"))
		}
		e.Take("k", 1)
		assert.True(t, lift(e, "k"), "a refusal that counts is something")
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
	assert.Nil(t, e.blocks.Load(), "nothing was started for them")
	require.NoError(t, e.Block("k", penalty.Longest))
	assert.False(t, e.Choke("k"))
	of := open[any](t, Config{Policy: funnel(10, 1, time.Second)})
	require.ErrorIs(t, of.Block([]int{1}, time.Second), ErrUnavailable)
	require.NoError(t, e.Close())
	require.ErrorIs(t, e.Block("k", time.Second), ErrClosed)
	require.ErrorIs(t, e.Block("new", time.Second), ErrClosed)
	require.ErrorIs(t, e.Block("k", 0), ErrClosed)

	clock := newHandClock()
	late := open[string](t, Config{Policy: funnel(10, 1, time.Second), Clock: clock.Now})
	clock.Advance(1<<58 - 2*time.Hour)
	var bad *policy.FieldError
	require.ErrorAs(t, late.Block("k", 3*time.Hour), &bad)
	require.NoError(t, late.Block("k", time.Hour))
}

func TestPenaltyIsChecked(t *testing.T) {
	good := Penalty{Refusals: 3, Within: time.Minute, For: time.Minute}
	config := func(change func(*Penalty)) Config {
		p := good
		change(&p)
		return Config{Policy: funnel(1, 1, time.Second), Penalty: p}
	}
	for field, bad := range map[string][]func(p *Penalty){
		"Refusals": {func(p *Penalty) { p.Refusals = 0 }, func(p *Penalty) { p.Refusals = 1025 }, func(p *Penalty) { *p = Penalty{For: 1} }},
		"Within":   {func(p *Penalty) { p.Within = 0 }, func(p *Penalty) { p.Within = -1 }, func(p *Penalty) { p.Within = penalty.Longest + 1 }},
		"For":      {func(p *Penalty) { p.For = 0 }, func(p *Penalty) { p.For = penalty.Longest + 1 }},
		"Max": {
			func(p *Penalty) { p.Max = time.Second }, func(p *Penalty) { p.Max = -1 },
			func(p *Penalty) { p.For, p.Max = time.Second, 32768*time.Second+1 }, func(p *Penalty) { p.Max = penalty.Longest + 1 },
		},
		"Forget": {func(p *Penalty) { p.Forget = time.Second }, func(p *Penalty) { p.Forget = penalty.Longest + 1 }},
	} {
		for i, change := range bad {
			_, err := New[string](config(change))
			var fault *policy.FieldError
			require.ErrorAs(t, err, &fault, "%s %d", field, i)
			assert.Equal(t, "Penalty."+field, fault.Field, "%d", i)
		}
	}
	for _, change := range []func(p *Penalty){
		func(*Penalty) {}, func(p *Penalty) { p.Refusals = 1024 }, func(p *Penalty) { p.Within = penalty.Longest },
		func(p *Penalty) { p.For, p.Max = time.Second, 32768*time.Second }, func(p *Penalty) { p.For = penalty.Longest },
	} {
		open[string](t, config(change))
	}
}

// Refusals by the block do not count. The next block is twice as long.
//
// Promise: A `Penalty`'s last refusal blocks before its call returns.
func TestPenaltyBlocksAtTheLastRefusal(t *testing.T) {
	for name := range verbsOnKey(nil, nil) {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				e := open[string](t, Config{
					Policy:  funnel(1, 1, 10*time.Second),
					Penalty: Penalty{Refusals: 3, Within: time.Minute, For: time.Minute, Max: 3 * time.Minute},
				})
				call := verbsOnKey(e, open[string](t, Config{Policy: funnel(1000, 1, time.Second)}))[name]
				for i, length := range []time.Duration{time.Minute, 2 * time.Minute, 3 * time.Minute, 3 * time.Minute} {
					_, allowed := call("k", 1)
					require.True(t, allowed)
					for range 2 {
						d, allowed := call("k", 1)
						require.False(t, allowed)
						if d != (policy.Decision{}) {
							require.Equal(t, 10*time.Second, d.RetryAfter)
						}
						require.Zero(t, e.Blocked("k"))
					}
					d, allowed := call("k", 1)
					require.False(t, allowed)
					require.Equal(t, length, e.Blocked("k"))
					if d != (policy.Decision{}) {
						require.Equal(t, length, d.RetryAfter)
						require.Equal(t, length, d.ResetAfter)
					}
					for range 10 {
						_, allowed = call("k", 1)
						require.False(t, allowed)
					}
					require.Equal(t, length, e.Blocked("k"))
					s := e.Stats()
					require.EqualValues(t, i+1, s.Penalties)
					require.EqualValues(t, 10*(i+1), s.Blocked)
					require.EqualValues(t, 13*(i+1), s.Refused)
					time.Sleep(length)
				}
				time.Sleep(3 * time.Minute) // Forget
				for range 4 {
					call("k", 1)
				}
				require.Equal(t, time.Minute, e.Blocked("k"))
			})
		})
	}
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

func TestRefusalsAreCountedExactly(t *testing.T) {
	const callers, each = 16, 50
	for round := range 20 {
		clock := newHandClock()
		e := open[string](t, Config{
			Policy:  funnel(1, 1, time.Hour),
			Clock:   clock.Now,
			Penalty: Penalty{Refusals: callers*each + 1, Within: time.Minute, For: time.Hour},
		})
		require.True(t, e.Choke("k"))
		together(callers, func(i int) {
			for range each {
				switch i % 3 {
				case 0:
					assert.False(t, e.Choke("k"))
				case 1:
					assert.False(t, e.Take("k", 1).Allowed)
				case 2:
					assert.False(t, TakeAll(e.Claim("k", 1)).Allowed)
				}
			}
		})
		require.Zero(t, e.Blocked("k"), "round %d", round)
		require.False(t, e.Choke("k"))
		require.Equal(t, time.Hour, e.Blocked("k"), "round %d", round)
		// Excess refusals make a single block.
		e.Reset("k")
		require.True(t, e.Choke("k"))
		together(callers, func(int) {
			for range 2 * each {
				assert.False(t, e.Choke("k"))
			}
		})
		require.EqualValues(t, 2, e.Stats().Penalties)
		require.Zero(t, e.Stats().Unpunished)
	}
}

func TestNoCallPassesAfterBlock(t *testing.T) {
	e := open[string](t, Config{Policy: funnel(1<<40, 1<<20, time.Second)})
	tiers, err := NewTiered[string](Config{Policy: funnel(1<<40, 1<<20, time.Second)}, funnel(1<<40, 1<<20, time.Second))
	require.NoError(t, err)
	defer func() { assert.NoError(t, tiers.Close()) }()
	for round := range repeated(80) {
		key := fmt.Sprint(round % 7)
		var blocked atomic.Bool
		together(5, func(i int) {
			if i == 0 {
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
				allowed := false
				switch i {
				case 1:
					allowed = e.Choke(key)
				case 2:
					allowed = e.Take(key, 2).Allowed
				case 3:
					allowed = TakeAll(e.Claim(key, 1), e.Claim("all", 1)).Allowed
				case 4:
					allowed = tiers.Choke(key) || tiers.Take(key, 2).Allowed
				}
				if was {
					after++
					assert.False(t, allowed, "caller %d", i)
				}
			}
		})
		assert.True(t, e.Reset(key))
		assert.True(t, e.Choke(key))
		assert.True(t, tiers.Reset(key))
		assert.True(t, tiers.Choke(key))
	}
}

// A random history of every verb is compared with an engine without blocks and a plain list of
// blocks.
func TestBlocksRandomly(t *testing.T) {
	for seed := range repeated(150) {
		synctest.Test(t, func(t *testing.T) { compareBlocks(t, rand.New(rand.NewPCG(uint64(seed), 31))) })
	}
}

// record is a key in the model, with windows on whole steps of the word's precision.
type record struct {
	until          time.Time
	row            int // blocks in a row
	opened         time.Time
	refusals       int
	noted, blocked bool // ever
}

func compareBlocks(t *testing.T, r *rand.Rand) {
	family := families[r.IntN(len(families))]
	p := family[r.IntN(len(family))]
	rule := Penalty{}
	if r.IntN(4) > 0 {
		rule = Penalty{Refusals: 1 + r.IntN(4), Within: time.Duration(1+r.IntN(3000)) * time.Millisecond, For: time.Duration(1+r.IntN(2000)) * time.Millisecond}
		rule.Max = rule.For * time.Duration(1+r.IntN(9))
	}
	clock := newHandClock()
	config := Config{Policy: p, Penalty: rule, Idle: time.Second, Clock: clock.Now}
	e := open[string](t, config)
	plain := open[string](t, Config{Policy: p, Idle: time.Hour, Clock: clock.Now})
	rule = config.withDefaults().Penalty
	start := time.Now()
	now := func() time.Time { return start.Add(time.Duration(clock.Now())) }
	advance := func(d time.Duration) {
		to := (int64(clock.Now()) + int64(d) + penalty.Step - 1) / penalty.Step * penalty.Step
		clock.now.Store(to)
		time.Sleep(d)
	}
	advance(1)
	keys := map[string]*record{}
	blockedCalls, penalties := 0, 0
	for range 150 {
		key := fmt.Sprint(r.IntN(3))
		k := keys[key]
		if k == nil {
			k = &record{until: now().Add(-time.Hour * 1e5)}
			keys[key] = k
		}
		switch r.IntN(12) {
		case 0, 1, 2:
			advance(time.Duration(r.Int64N(int64(3 * time.Second))))
			continue
		case 3:
			d := time.Duration(1+r.IntN(5000)) * time.Millisecond
			k.forget(now(), rule)
			require.NoError(t, e.Block(key, d))
			if end := now().Add(d); end.After(k.until) {
				k.until = end
			}
			k.refusals = 0
			continue
		case 4:
			if r.IntN(4) == 0 {
				e.Reset(key)
				plain.Reset(key)
				*k = record{until: now().Add(-time.Hour * 1e5)}
			}
			continue
		case 5:
			n := int64(r.IntN(3))
			require.Equal(t, plain.Refund(key, n), e.Refund(key, n))
			continue
		case 6:
			if to := k.until.Sub(now()) - time.Duration(r.IntN(2))*penalty.Step; to > 0 {
				advance(to / penalty.Step * penalty.Step)
			}
			continue
		}
		k.forget(now(), rule)
		left := max(k.until.Sub(now()), 0)
		n := int64(r.IntN(4))
		var want policy.Decision
		if left > 0 {
			// The limit's own answer.
			var held = plain.Reserve(key, n, 0)
			want = held.Decision
			held.Cancel()
			if look := plain.Peek(key, 0); want.Allowed {
				want.ResetAfter = look.ResetAfter
			}
			want = policy.Decision{Limit: want.Limit, RetryAfter: max(want.RetryAfter, left), ResetAfter: max(want.ResetAfter, left)}
			if n > 0 {
				blockedCalls++
			}
		} else {
			want = plain.Take(key, n)
			if !want.Allowed && want.RetryAfter != policy.Never && rule.Refusals > 0 {
				if k.refusals == 0 {
					k.opened = now()
				}
				if k.refusals++; k.refusals == rule.Refusals {
					length := min(rule.For<<min(k.row, 20), rule.Max)
					k.row++
					penalties++
					k.refusals, k.until = 0, now().Add(length)
					want.RetryAfter, want.ResetAfter = max(want.RetryAfter, length), max(want.ResetAfter, length)
				}
			}
		}
		var got policy.Decision
		switch r.IntN(4) {
		case 0:
			if n != 1 {
				got = e.Take(key, n)
				break
			}
			require.Equal(t, want.Allowed, e.Choke(key))
			got = want
		case 1:
			got = e.Take(key, n)
		case 2:
			got = e.Reserve(key, n, 0).Decision
		case 3:
			got = e.TakeWith(e.Limit(), key, n)
		}
		require.Equal(t, want, got, "%v %+v n=%d %+v", p, rule, n, *k)
		require.Equal(t, max(k.until.Sub(now()), 0), e.Blocked(key))
	}
	s := e.Stats()
	require.EqualValues(t, blockedCalls, s.Blocked)
	require.EqualValues(t, penalties, s.Penalties)
}

// forget forgets refusals and blocks that no longer count.
func (k *record) forget(now time.Time, rule Penalty) {
	if k.until.After(now) {
		return
	}
	last := k.until
	if k.refusals > 0 || k.opened.After(k.until) {
		last = k.opened
	}
	if !now.Before(k.opened.Add(rule.Within)) {
		k.refusals = 0
	}
	if !now.Before(last.Add(rule.Forget)) {
		k.row = 0
	}
}

// Whatever the order of calls and blocks. Reset and a Block of 0 let them go on.
//
// Promise: Queued calls await a block's end in order.
func TestCallsInLineWaitForTheEndOfABlock(t *testing.T) {
	for _, lifts := range []func(*Engine[string], string) bool{nil, (*Engine[string]).Reset, lift} {
		synctest.Test(t, func(t *testing.T) {
			e := open[string](t, Config{Policy: funnel(1, 1, time.Second)})
			began := time.Now()
			require.True(t, e.Choke("k"))
			var mu sync.Mutex
			var order []int
			var done sync.WaitGroup
			ends := began.Add(time.Minute)
			if lifts != nil {
				ends = began.Add(30 * time.Second)
			}
			wait := func(i int) {
				done.Go(func() {
					assert.NoError(t, e.Wait(t.Context(), "k", 1))
					assert.False(t, time.Now().Before(ends), "call %d came %v early", i, time.Until(ends))
					mu.Lock()
					defer mu.Unlock()
					order = append(order, i)
				})
				synctest.Wait()
			}
			for i := range 3 {
				wait(i)
			}
			require.NoError(t, e.Block("k", time.Minute))
			wait(3) // comes during the block
			time.Sleep(5 * time.Second)
			wait(4)
			mu.Lock()
			assert.Empty(t, order)
			mu.Unlock()
			time.Sleep(time.Until(ends) - 1)
			if lifts != nil {
				time.Sleep(1)
				assert.True(t, lifts(e, "k"))
			}
			done.Wait()
			assert.Equal(t, []int{0, 1, 2, 3, 4}, order)
			assert.Less(t, time.Since(ends), 6*time.Second)
		})
	}
}

// Calls in line start as their limit allows, whatever turns were promised before.
func TestNoBurstWhenABlockEnds(t *testing.T) {
	for text, n := range map[string]int64{
		"at most 10/1s": 10, "funnel 10, 10/1s": 10, "window 10/1s": 10, "queue 5, 1/1s": 1, "bursty 10/1s, 1": 10,
	} {
		for _, lift := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				e := open[string](t, Config{Policy: policy.Must(policy.Parse(text))})
				began := time.Now()
				e.Take("k", n)
				var mu sync.Mutex
				var done sync.WaitGroup
				at := map[time.Duration]int64{}
				for range 4 {
					done.Go(func() {
						assert.NoError(t, e.Wait(t.Context(), "k", n))
						mu.Lock()
						defer mu.Unlock()
						at[time.Since(began)] += n
					})
					synctest.Wait()
				}
				require.NoError(t, e.Block("k", 100*time.Second))
				if lift {
					time.Sleep(50 * time.Second)
					require.True(t, e.Reset("k"))
				}
				done.Wait()
				assert.Len(t, at, 4, "%s, lifted %v: two started together", text, lift)
			})
		}
	}
}

// Without the patience for a block a call is told at once, and gives back its units.
func TestCallsThatCannotWaitForABlock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := open[string](t, Config{Policy: funnel(2, 1, time.Second)})
		require.NoError(t, e.Block("k", time.Minute))
		began := time.Now()
		_, err := e.Acquire(t.Context(), "k", 1, time.Minute-1)
		require.ErrorIs(t, err, ErrDeadline)
		late, end := context.WithTimeout(t.Context(), time.Minute-1)
		defer end()
		err = e.Wait(late, "k", 1)
		require.ErrorIs(t, err, ErrDeadline)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorIs(t, e.Wait(t.Context(), "k", 0), ErrDeadline)
		_, err = AcquireAll(t.Context(), time.Hour, e.Claim("k", 0))
		require.ErrorIs(t, err, ErrDeadline)
		_, err = AcquireAll(t.Context(), time.Minute-1, e.Claim("k", 1), e.Claim("other", 1))
		require.ErrorIs(t, err, ErrDeadline)
		assert.Equal(t, began, time.Now())
		r, err := e.Acquire(t.Context(), "k", 2, time.Minute)
		require.NoError(t, err)
		assert.Equal(t, time.Minute, time.Since(began))
		assert.True(t, r.Allowed)

		// The block comes during the wait.
		began = time.Now()
		var done sync.WaitGroup
		done.Go(func() {
			_, err := e.Acquire(t.Context(), "k", 1, 2*time.Second)
			assert.ErrorIs(t, err, ErrDeadline)
			assert.Equal(t, 2*time.Second, time.Since(began))
		})
		synctest.Wait()
		require.NoError(t, e.Block("k", time.Minute))
		done.Wait()
		time.Sleep(time.Minute)
		assert.EqualValues(t, 2, e.Peek("k", 0).Remaining)

		require.NoError(t, e.Block("b", time.Minute))
		began = time.Now()
		_, err = AcquireAll(t.Context(), time.Hour, e.Claim("a", 1), e.Claim("b", 1))
		require.NoError(t, err)
		assert.Equal(t, time.Minute, time.Since(began))
	})
}

// A Tiered refuses a key that is blocked under any limit. Each limit counts its own refusals.
func TestTieredBlocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tiers, err := NewTiered[string](Config{
			Policy: funnel(2, 1, time.Second), Penalty: Penalty{Refusals: 2, Within: time.Hour, For: time.Minute},
		}, funnel(5, 1, time.Hour))
		require.NoError(t, err)
		defer func() { assert.NoError(t, tiers.Close()) }()
		require.True(t, tiers.Take("k", 2).Allowed)
		assert.Equal(t, time.Second, tiers.Take("k", 1).RetryAfter)
		time.Sleep(2 * time.Second)
		require.True(t, tiers.Take("k", 2).Allowed)
		assert.False(t, tiers.Choke("k"))
		assert.Equal(t, time.Minute, tiers.Engines()[0].Blocked("k"))
		d := tiers.Take("k", 1)
		assert.Equal(t, time.Minute, d.RetryAfter)
		assert.Zero(t, d.Remaining)
		time.Sleep(time.Minute)
		require.True(t, tiers.Choke("k"))
		assert.False(t, tiers.Choke("k"), "by the second limit, its first refusal")
		d = tiers.Take("k", 1)
		assert.Equal(t, time.Hour-62*time.Second, d.RetryAfter)
		assert.Equal(t, time.Minute, tiers.Engines()[1].Blocked("k"))
		assert.True(t, tiers.Reset("k"))
		assert.True(t, tiers.Choke("k"))
		require.NoError(t, tiers.Block("k", time.Hour))
		assert.Equal(t, time.Hour, tiers.Take("k", 1).RetryAfter)
		out := TakeAll(tiers.Claims("k", 1)...)
		assert.Equal(t, time.Hour, out.RetryAfter)
		assert.Zero(t, out.Binding)
		require.NoError(t, tiers.Engines()[1].Block("k", time.Hour))
		require.NoError(t, tiers.Block("k", 0), "under each limit")
		assert.True(t, tiers.Choke("k"))
		require.ErrorIs(t, (&Tiered[string]{}).Block("k", 1), ErrUnavailable)
	})
}

// In a flood, a Block without room says so.
//
// Promise: Blocked keys never make room; at most `MaxKeys` blocks are kept.
func TestBlockedKeysAreNeverGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { blockedKeysAreNeverGone(t) })
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
		e.Choke(key) // a refusal that counts, unless the key was evicted in between
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
	require.NoError(t, e.Block(3, 2*time.Hour), "one that is blocked needs no room")

	require.True(t, e.Reset(7))
	for e.Block(most, time.Hour) != nil {
		require.Greater(t, e.Blocked(0), 50*time.Minute, "no room was made")
	}
	require.NotZero(t, e.Blocked(most))
	require.Zero(t, e.Blocked(7))
	require.ErrorIs(t, e.Block(7, time.Hour), ErrFull)
	require.Equal(t, most, e.Stats().BlockedKeys)
}

// Promise: Blocks, counted refusals and doublings survive a restart.
func TestBlocksSurviveARestart(t *testing.T) {
	synctest.Test(t, restartBlocks)
}

func restartBlocks(t *testing.T) {
	rule := Penalty{Refusals: 2, Within: time.Minute, For: time.Minute, Max: time.Hour}
	config := Config{Policy: funnel(1, 1, 10*time.Second), Penalty: rule}
	e := open[string](t, config)
	require.NoError(t, e.Block("blocked", time.Hour))
	for range 2 {
		e.Choke("counting")
	}
	for range 3 {
		e.Choke("twice")
	}
	require.Equal(t, time.Minute, e.Blocked("twice"))
	require.NoError(t, e.Block("short", time.Second))
	e = restart(t, e, config, func() { time.Sleep(50 * time.Second) })
	defer func() { check(t, e) }()
	assert.Equal(t, time.Hour-50*time.Second, e.Blocked("blocked"))
	assert.Equal(t, 10*time.Second, e.Blocked("twice"))
	assert.Zero(t, e.Blocked("short"))
	blocks := e.blocks.Load()
	assert.Equal(t, 4, blocks.Len(), "what is over stays for Forget")
	assert.Equal(t, 2, e.Stats().BlockedKeys)
	assert.True(t, e.Choke("counting"))
	d := e.Take("counting", 1)
	assert.Equal(t, time.Minute, d.RetryAfter, "its second refusal within a minute")
	time.Sleep(10 * time.Second)
	for range 3 {
		e.Choke("twice")
	}
	assert.Equal(t, 2*time.Minute, e.Blocked("twice"))
	require.NoError(t, e.Block("blocked", 2*time.Hour))
	assert.Equal(t, 2*time.Hour, e.Blocked("blocked"))

	// An engine without a Penalty keeps only the blocked keys.
	none := config
	none.Penalty = Penalty{}
	var file bytes.Buffer
	require.NoError(t, e.Save(&file))
	other, err := Load[string](bytes.NewReader(file.Bytes()), none)
	require.NoError(t, err)
	defer func() { check(t, other) }()
	assert.Equal(t, 2*time.Hour, other.Blocked("blocked"))
	assert.Equal(t, 2*time.Minute, other.Blocked("twice"))
	assert.False(t, other.Choke("blocked"))
	time.Sleep(2 * time.Minute)
	for range 10 {
		other.Choke("twice")
	}
	assert.Zero(t, other.Blocked("twice"))
	late, err := Load[string](bytes.NewReader(file.Bytes()), Config{Policy: config.Policy, MaxKeys: 1})
	require.NoError(t, err)
	defer func() { check(t, late) }()
	assert.Equal(t, 2*time.Hour-2*time.Minute, late.Blocked("blocked"), "the one that is blocked longest")
	assert.NotZero(t, late.Stats().Forgiven)
	time.Sleep(2 * time.Hour)
	over, err := Load[string](bytes.NewReader(file.Bytes()), none)
	require.NoError(t, err)
	defer func() { check(t, over) }()
	assert.Nil(t, over.blocks.Load(), "there is nothing to keep")
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
	seam.Scheduler // no other method is called
	seed           maphash.Seed
	step           func(point string)
}

func (s *stepped) Step(point string)  { s.step(point) }
func (s *stepped) Seed() maphash.Seed { return s.seed }

// Close overtakes a Block whose key lands after the last read of blocks.
func TestBlockThatCloseOvertakesIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		config := inFile(t, Config{Policy: funnel(10, 1, time.Second)})
		e, err := New[string](config)
		require.NoError(t, err)
		require.NoError(t, e.Block("before", time.Hour)) // so that there is a table of blocks
		synctest.Wait()
		var lands, drained sync.Once
		landing, goOn, blocked := make(chan struct{}), make(chan struct{}), make(chan error, 1)
		require.True(t, seam.Give(e.blocks.Load().table, &stepped{seed: e.cell.Seed(), step: func(point string) {
			switch point {
			case "open: not in the map": // of Block below
				lands.Do(func() {
					close(landing)
					<-goOn
				})
			case "drain: next shard": // the nursery, where keys land, is done
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

// No blocked key passes during Close, before its last words are read or after.
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

// A blocked key is charged as ever: a block forgives nothing.
func TestBlockedKeyIsCharged(t *testing.T) {
	clock := newHandClock()
	e := open[string](t, Config{Policy: funnel(10, 1, time.Hour), Clock: clock.Now})
	require.True(t, e.Choke("a"))
	for _, key := range []string{"a", "new"} {
		require.NoError(t, e.Block(key, time.Minute))
		require.True(t, e.Refund(key, -3).Allowed, key)
		require.True(t, e.RefundWith(funnel(20, 2, time.Hour), key, -2).Allowed, key)
		require.NoError(t, e.Block(key, 0))
	}
	require.EqualValues(t, 5, e.Peek("a", 0).Remaining, "1, 3 and 2 of a limit that is twice as fast are used")
	require.EqualValues(t, 6, e.Peek("new", 0).Remaining)
}

func TestBlocksSurviveTheirWriter(t *testing.T) {
	points := append(writerPoints(), table.Points()...)
	for _, point := range points {
		var struck, armed atomic.Bool
		e := open[int](t, Config{
			Policy: funnel(1, 1, time.Hour), Restarts: 1000, MaxKeys: 256,
			Penalty: Penalty{Refusals: 2, Within: time.Minute, For: time.Hour},
			fault: func(at string) {
				if at == point && armed.Load() && struck.CompareAndSwap(false, true) {
					panic("struck at " + at)
				}
			},
		})
		armed.Store(true)
		for key := range 100 {
			require.NoError(t, e.Block(key, time.Hour))
			e.Choke(1000 + key%10)
		}
		for key := range 100 {
			require.NotZero(t, e.Blocked(key), "%s, key %d", point, key)
		}
		for key := 1000; key < 1010; key++ {
			require.NotZero(t, e.Blocked(key), "%s, key %d", point, key)
		}
		armed.Store(false)
		check(t, e.blocks.Load().Engine)
	}
}

// Health reports the end of the writer of blocks. Blocks stay.
func TestBlocksWithoutAWriter(t *testing.T) {
	e := open[string](t, Config{Policy: funnel(10, 1, time.Second)})
	require.NoError(t, e.Block("k", time.Hour))
	b := e.blocks.Load()
	b.stop() // as a supervisor that gives up
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

func TestBlocksAllocateNothing(t *testing.T) {
	e := open[string](t, Config{
		Policy: funnel(100_000, 1, time.Hour), OpenTimeout: time.Minute,
		Penalty: Penalty{Refusals: 1024, Within: time.Hour, For: 1, Forget: time.Hour},
	})
	tiers, err := NewTiered[string](Config{Policy: funnel(100_000, 1, time.Hour)}, funnel(100_000, 1, time.Hour))
	require.NoError(t, err)
	defer func() { assert.NoError(t, tiers.Close()) }()
	require.NoError(t, e.Block("blocked", time.Hour))
	require.NoError(t, tiers.Block("blocked", time.Hour))
	require.True(t, e.Take("refused", 100_000).Allowed)
	require.False(t, e.Choke("refused"))
	require.True(t, e.Choke("passing"))
	require.True(t, tiers.Choke("passing"))
	settled(t, e)
	settled(t, e.blocks.Load().Engine)
	for name, call := range map[string]func(){
		"Choke, blocked":  func() { e.Choke("blocked") },
		"Take, blocked":   func() { e.Take("blocked", 2) },
		"Peek, blocked":   func() { e.Peek("blocked", 0) },
		"Blocked":         func() { e.Blocked("blocked") },
		"Choke, admitted": func() { e.Choke("passing") },
		"Take, admitted":  func() { e.Take("passing", 2) },
		"Choke, refused":  func() { e.Choke("refused") },
		"Take, refused":   func() { e.Take("refused", 2) },
		"Tiered":          func() { tiers.Choke("passing") },
		"Tiered, blocked": func() { tiers.Choke("blocked") },
	} {
		assert.Zero(t, testing.AllocsPerRun(1000, call), name)
	}
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
				runtime.Gosched() // so that another would come meanwhile
			}
			mu.Lock()
			defer mu.Unlock()
			seen[event.Supervisor+" "+event.Child]++
		},
	})
	require.NoError(t, err)
	for _, child := range []string{"shop writer", "shop janitor", "shop/blocks writer", "shop/blocks janitor"} {
		await.True(t, func() bool {
			mu.Lock()
			defer mu.Unlock()
			return seen[child] > 0
		}, "an event of %s comes", child)
	}
	require.NoError(t, e.Close())
}
