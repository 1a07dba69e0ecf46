package limits_test

import (
	"context"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/engine"
	"github.com/ral-limiter/ral/limits"
	"github.com/ral-limiter/ral/policy"
	"github.com/ral-limiter/ral/single"
)

// giver is a limiter with one key, on a clock that a test sets.
type giver struct {
	now    policy.Instant
	choke  func() bool
	remain func() int64
	// take has a way to take units that may be given back for each name. settle ends it: fewer
	// units give back, more are charged. settle is nil if the take was refused.
	take map[string]func(n int64, patience time.Duration) (settle func(used int64))
}

// remaining returns what remains now and at many later instants.
func (g *giver) remaining() (all []int64) {
	now := g.now
	defer func() { g.now = now }()
	for later := time.Duration(0); later < 4*time.Second; later += 37 * time.Millisecond {
		g.now = now + policy.Instant(later)
		all = append(all, g.remain())
	}
	return all
}

func settled(g limits.Grant, err error) func(used int64) {
	if err != nil || !g.Allowed {
		return nil
	}
	return func(used int64) { _ = g.Settle(context.Background(), used) }
}

// givers returns a limiter of each kind under a limit.
func givers(t *testing.T, limit policy.Policy) map[string]*giver {
	t.Helper()
	ctx := context.Background()
	config := func(g *giver) engine.Config {
		return engine.Config{Policy: limit, Clock: func() policy.Instant { return g.now }, Idle: 1000 * time.Hour}
	}
	one, several, alone := new(giver), new(giver), new(giver)

	e, err := engine.New[string](config(one))
	require.NoError(t, err)
	t.Cleanup(func() { _ = e.Close() })
	wide := config(one)
	wide.Policy = policy.Must(policy.Funnel(1_000_000, 1_000_000, time.Second))
	other, err := engine.New[string](wide)
	require.NoError(t, err)
	t.Cleanup(func() { _ = other.Close() })
	one.choke = func() bool { return e.Choke("key") }
	one.remain = func() int64 { return e.Peek("key", 0).Remaining }
	one.take = map[string]func(int64, time.Duration) func(int64){
		"Reserve": func(n int64, patience time.Duration) func(int64) {
			r := e.Reserve("key", n, patience)
			if !r.Allowed {
				return nil
			}
			return func(used int64) {
				if r.Keep(used); used > n {
					e.Refund("key", n-used)
				}
			}
		},
		"Hold": func(n int64, patience time.Duration) func(int64) {
			return settled(e.Hold(ctx, limits.Call[string]{Key: "key", N: n, Patience: patience, NoWait: true}))
		},
		"TakeAll": func(n int64, _ time.Duration) func(int64) {
			out := engine.TakeAll(e.Claim("key", n), other.Claim("o", n))
			if !out.Allowed {
				return nil
			}
			return func(used int64) {
				if out.Keep(used, used); used > n {
					e.Refund("key", n-used)
				}
			}
		},
	}

	tiered, err := engine.NewTiered[string](config(several), wide.Policy)
	require.NoError(t, err)
	t.Cleanup(func() { _ = tiered.Close() })
	first := tiered.Engines()[0]
	several.choke = func() bool { return first.Choke("key") }
	several.remain = func() int64 { return first.Peek("key", 0).Remaining }
	several.take = map[string]func(int64, time.Duration) func(int64){
		"Tiered.Hold": func(n int64, _ time.Duration) func(int64) {
			return settled(tiered.Hold(ctx, limits.Call[string]{Key: "key", N: n}))
		},
	}

	l, err := single.New(limit, single.Clock(func() policy.Instant { return alone.now }))
	require.NoError(t, err)
	alone.choke, alone.remain = l.Choke, func() int64 { return l.Peek(0).Remaining }
	alone.take = map[string]func(int64, time.Duration) func(int64){
		"Reserve": func(n int64, patience time.Duration) func(int64) {
			r := l.Reserve(n, patience)
			if !r.Allowed {
				return nil
			}
			return func(used int64) {
				if r.Keep(used); used > n {
					l.Refund(n - used)
				}
			}
		},
		"Hold": func(n int64, patience time.Duration) func(int64) {
			return settled(l.Hold(ctx, limits.Call[struct{}]{N: n, Patience: patience, NoWait: true}))
		},
	}
	return map[string]*giver{"engine": one, "Tiered": several, "single": alone}
}

type grant struct {
	n      int64
	settle func(used int64)
}

func pick[V any](r *rand.Rand, all map[string]V, names ...string) V {
	if len(names) == 0 {
		for _, name := range []string{"Hold", "Reserve", "TakeAll", "Tiered.Hold"} {
			if _, ok := all[name]; ok {
				names = append(names, name)
			}
		}
	}
	return all[names[r.IntN(len(names))]]
}

// In random histories of calls that take, wait, charge and give back, in any order.
//
// Promise: A give-back never refuses a call: at no instant, now or later, does less remain than without it.
func TestGiveBackRefusesNobody(t *testing.T) { synctest.Test(t, giveBackRefusesNobody) }

func giveBackRefusesNobody(t *testing.T) {
	for _, text := range []string{
		"funnel 10, 10/s", "queue 10, 10/s", "bursty 10/s, 10", "warming up 10/s over 2s, cold 3",
		"window 10/s", "sliding 10/s", "window 10/s aligned", "window 10/day in UTC", "at most 10/s",
	} {
		limit, gave, more := policy.Must(policy.Parse(text)), 0, 0
		for seed := range uint64(60) {
			for name, g := range givers(t, limit) {
				// In a calm run all takes are remembered.
				r, calm := rand.New(rand.NewPCG(seed, 1)), seed%2 == 0
				g.now = policy.Instant(time.Minute)
				var grants []grant
				for range 40 {
					g.now += policy.Instant(r.Int64N(int64(300 * time.Millisecond)))
					if i := r.IntN(20); i < 2 && !calm {
						g.choke()
						continue
					} else if i < 12 || len(grants) == 0 {
						n := 1 + r.Int64N(3)
						var patience time.Duration
						if r.IntN(3) == 0 && !calm {
							patience = time.Second
						}
						if settle := pick(r, g.take)(n, patience); settle != nil {
							grants = append(grants, grant{n, settle})
						}
						continue
					}
					i := r.IntN(len(grants))
					used := r.Int64N(grants[i].n+2) * int64(r.IntN(2))
					before := g.remaining()
					if grants[i].settle(used); used < grants[i].n {
						gave++
						for at, after := range g.remaining() {
							require.GreaterOrEqual(t, after, before[at], "%s, %s, seed %d: at %v, %d of %d units used, instant %d", name, text, seed, g.now, used, grants[i].n, at)
							if after > before[at] {
								more++
							}
						}
					}
					grants = append(grants[:i], grants[i+1:]...)
				}
			}
		}
		assert.Greater(t, gave, 500, text)
		assert.Greater(t, more, gave/4, "%s: hardly anything came back", text)
	}
}

// All limiters of a bubble place aligned windows alike. In random histories of grants that are used in part, in whole or not at all, or cost more than
// they took, in any order. What remains is as if each had asked for what it used. A fixed window
// stays where it opened: here it stays open. A WarmingUp stays as warm, which another test checks.
//
// Promise: A grant settled with 0 leaves the key as if it had never been, by `Reserve`, `Hold`, `TakeAll` and `Tiered.Hold`.
func TestSettledGrantsLeaveNoTrace(t *testing.T) { synctest.Test(t, settledGrantsLeaveNoTrace) }

func settledGrantsLeaveNoTrace(t *testing.T) {
	for _, text := range []string{
		"funnel 90, 30/s", "bursty 30/s, 90", "window 90/h", "sliding 90/s", "window 90/s aligned", "window 90/day in UTC", "at most 90/s",
	} {
		limit := policy.Must(policy.Parse(text))
		for seed := range uint64(60) {
			with, without := givers(t, limit), givers(t, limit)
			for name, g := range with {
				r, twin := rand.New(rand.NewPCG(seed, 2)), without[name]
				g.now = policy.Instant(time.Minute)
				twin.now = g.now
				// The call opens the window in both.
				require.True(t, g.choke() && twin.choke())
				type planned struct {
					grant
					at   policy.Instant
					used int64
				}
				var plan, all []planned
				for range 40 {
					g.now += policy.Instant(r.Int64N(int64(30 * time.Millisecond)))
					if i := len(plan); i < 8 && r.IntN(2) == 0 {
						n := 1 + r.Int64N(3)
						settle := pick(r, g.take)(n, 0)
						require.NotNil(t, settle, "%s, %s", name, text)
						p := planned{grant{n, settle}, g.now, r.Int64N(n+1) * int64(r.IntN(2))}
						plan, all = append(plan, p), append(all, p)
					} else if i > 0 {
						i = r.IntN(i)
						plan[i].settle(plan[i].used)
						plan = append(plan[:i], plan[i+1:]...)
					}
				}
				for _, p := range plan {
					p.settle(p.used)
				}
				for _, p := range all {
					if twin.now = p.at; p.used > 0 {
						require.NotNil(t, pick(r, twin.take)(p.used, 0))
					}
				}
				twin.now = g.now
				require.Equal(t, twin.remaining(), g.remaining(), "%s, %s, seed %d", name, text, seed)
			}
		}
	}
}

// Under a limit that no call exceeds, each call is given back at once, in every way.
//
// Promise: A fixed window stays where it opened, also if all its units come back, and a `WarmingUp` stays as warm as it was.
func TestWhatAGiveBackLeaves(t *testing.T) { synctest.Test(t, whatAGiveBackLeaves) }

func whatAGiveBackLeaves(t *testing.T) {
	for _, text := range []string{"window 10/s", "warming up 10/s over 2s, cold 3", "queue 10, 10/s"} {
		for name, g := range givers(t, policy.Must(policy.Parse(text))) {
			for how, take := range g.take {
				g.now += policy.Instant(time.Minute)
				before := g.remaining()
				take(4, 0)(0)
				require.Equal(t, before, g.remaining(), "%s, %s of %s", text, how, name)
				if !strings.HasPrefix(text, "window") {
					continue
				}
				// The window is over a second after it opened. Otherwise the window would end
				// later.
				g.now += policy.Instant(900 * time.Millisecond)
				require.NotNil(t, take(10, 0))
				require.Nil(t, take(1, 0))
				g.now += policy.Instant(101 * time.Millisecond)
				require.NotNil(t, take(10, 0), "%s, %s of %s: the window moved", text, how, name)
			}
		}
	}
}
