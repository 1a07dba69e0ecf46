package single_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/engine"
	"github.com/ral-limiter/ral/internal/testkit/limitstest"
	"github.com/ral-limiter/ral/internal/testkit/must"
	"github.com/ral-limiter/ral/internal/testkit/testenv"
	"github.com/ral-limiter/ral/policy"
	"github.com/ral-limiter/ral/single"
)

// These tests compare a Limiter with an engine with one key.

// families has the families of limits by their first limit, and a limit of the caller's own.
func families() map[string][]policy.Policy {
	all := map[string][]policy.Policy{"of the caller's own": {bare{funnel(10, 10, time.Second)}}}
	for _, family := range append(limitstest.Families(), limitstest.Budgets()) {
		all[family[0].String()] = family
	}
	return all
}

// bare is a policy without optional interfaces.
type bare struct{ policy.Policy }

// verbs are the methods shared by a Limiter and one key of an engine.
type verbs interface {
	Choke() bool
	Allow() bool
	Take(n int64) policy.Decision
	Peek(n int64) policy.Decision
	TakeUpTo(n int64) (int64, policy.Decision)
	Reserve(n int64, patience time.Duration) reserved
	Acquire(ctx context.Context, n int64, patience time.Duration) (reserved, error)
	Wait(ctx context.Context, n int64) error
	Refund(n int64) policy.Decision
	Reset() bool
	SetPolicy(p policy.Policy) error
	Limit() policy.Policy
}

type reserved struct {
	policy.Decision
	waited time.Duration
	cancel func()
	keep   func(n int64)
}

type alone struct{ *single.Limiter }

func (a alone) Reserve(n int64, patience time.Duration) reserved {
	r := a.Limiter.Reserve(n, patience)
	return reserved{r.Decision, r.Waited, r.Cancel, r.Keep}
}

func (a alone) Acquire(ctx context.Context, n int64, patience time.Duration) (reserved, error) {
	r, err := a.Limiter.Acquire(ctx, n, patience)
	return reserved{r.Decision, r.Waited, r.Cancel, r.Keep}, err
}

type keyed struct{ e *engine.Engine[string] }

const key = "the only key"

func (k keyed) Choke() bool                               { return k.e.Choke(key) }
func (k keyed) Allow() bool                               { return k.e.Allow(key) }
func (k keyed) Take(n int64) policy.Decision              { return k.e.Take(key, n) }
func (k keyed) Peek(n int64) policy.Decision              { return k.e.Peek(key, n) }
func (k keyed) TakeUpTo(n int64) (int64, policy.Decision) { return k.e.TakeUpTo(key, n) }
func (k keyed) Wait(ctx context.Context, n int64) error   { return k.e.Wait(ctx, key, n) }
func (k keyed) Refund(n int64) policy.Decision            { return k.e.Refund(key, n) }
func (k keyed) Reset() bool                               { return k.e.Reset(key) }
func (k keyed) Limit() policy.Policy                      { return k.e.Limit() }
func (k keyed) Reserve(n int64, patience time.Duration) reserved {
	r := k.e.Reserve(key, n, patience)
	return reserved{r.Decision, r.Waited, r.Cancel, r.Keep}
}

func (k keyed) Acquire(ctx context.Context, n int64, patience time.Duration) (reserved, error) {
	r, err := k.e.Acquire(ctx, key, n, patience)
	return reserved{r.Decision, r.Waited, r.Cancel, r.Keep}, err
}

// SetPolicy returns when the engine's writer has reached the key: earlier reservations then have
// nothing to give back.
func (k keyed) SetPolicy(p policy.Policy) error {
	err := k.e.SetPolicy(p)
	synctest.Wait()
	return err
}

// longAfter keeps an engine from forgetting its key.
const longAfter = 50 * 365 * 24 * time.Hour

// both returns a Limiter and an engine with one known key, in a bubble. A nil clock is package
// time.
func both(t *testing.T, p policy.Policy, maxWaiting int, clock func() policy.Instant) (alone, keyed) {
	t.Helper()
	options := []single.Option{single.MaxWaiting(maxWaiting)}
	if clock != nil {
		options = append(options, single.Clock(clock))
	}
	l := must.Get(single.New(p, options...))
	e := must.Get(engine.New[string](engine.Config{Policy: p, Clock: clock, Idle: longAfter, MaxWaiting: maxWaiting}))
	t.Cleanup(func() { require.NoError(t, e.Close()) })
	return alone{l}, keyed{e}
}

type handClock struct{ now atomic.Int64 }

func (c *handClock) Now() policy.Instant { return policy.Instant(c.now.Load()) }

// Random calls of all verbs, under every policy and a clock that also goes back. Acquire has no
// patience here, and Wait an ended context or nothing to wait for.
//
// Promise: A limit without keys decides as an engine with one key.
func TestDecidesAsAnEngine(t *testing.T) {
	rounds := 40
	if testenv.Race {
		rounds = 15
	}
	for name, family := range families() {
		t.Run(name, func(t *testing.T) {
			seen := map[string]int{}
			for round := range rounds {
				synctest.Test(t, func(t *testing.T) { decidesAsAnEngine(t, uint64(round), family, seen) })
			}
			for _, what := range []string{"admitted", "refused", "refused for ever", "given back", "replaced"} {
				if what == "refused for ever" && strings.HasPrefix(name, "bursty") || name == "of the caller's own" && (what == "given back" || what == "replaced") {
					continue
				}
				require.Positive(t, seen[what], "%s, in %v", what, seen)
			}
		})
	}
}

func decidesAsAnEngine(t *testing.T, seed uint64, family []policy.Policy, seen map[string]int) {
	dice := rand.New(rand.NewPCG(seed, 18))
	clock := &handClock{}
	l, e := both(t, family[0], 3, clock.Now)
	ended, end := context.WithCancel(t.Context())
	end()
	var script []string
	var ofLimiter, ofEngine []reserved
	same := func(want, got any) {
		t.Helper()
		require.Equal(t, want, got, "seed %d, after %s", seed, strings.Join(script, ", "))
	}
	unit := 100 * time.Millisecond
	if strings.Contains(family[0].String(), "Berlin") {
		unit = 3 * time.Hour
	}
	for range 120 {
		n := (dice.Int64N(13) - 1) * max(family[0].Limit()/10, 1)
		if dice.IntN(40) == 0 {
			n = []int64{math.MinInt64, math.MaxInt64, 1 << 33, 1 << 40}[dice.IntN(4)]
		}
		patience := time.Duration(dice.Int64N(int64(10*unit))) - unit
		if dice.IntN(8) == 0 {
			patience = math.MaxInt64
		}
		op := dice.IntN(15)
		script = append(script, fmt.Sprintf("%d: %d %v", op, n, patience))
		switch op {
		case 0, 1:
			step := dice.Int64N(int64(6 * unit))
			if dice.IntN(10) == 0 {
				step = -step
			}
			clock.now.Store(max(clock.now.Load()+step, 0))
			script = append(script, fmt.Sprintf("%v", time.Duration(step)))
		case 2, 3:
			want := e.Choke()
			if want {
				seen["admitted"]++
			}
			same(want, l.Choke())
		case 4:
			same(e.Allow(), l.Allow())
			all, before := e.Peek(n), e.Peek(0)
			taken, d := e.TakeUpTo(n)
			other, d2 := l.TakeUpTo(n)
			same(taken, other)
			same(d, d2)
			switch {
			case all.Allowed:
				same(all, d)
				same(max(n, 0), taken)
			case taken > 0:
				seen["taken in part"]++
				same(before.Remaining, taken)
				same(true, d.Allowed)
			default:
				same(false, d.Allowed)
				same(int64(0), min(before.Remaining, max(n, 0)))
			}
		case 5, 6:
			want := e.Peek(n)
			same(want, l.Peek(n))
			same(want, e.Take(n))
			switch {
			case want.RetryAfter == policy.Never:
				seen["refused for ever"]++
			case !want.Allowed:
				seen["refused"]++
			}
			same(want, l.Take(n))
		case 7, 8:
			r, other := e.Reserve(n, patience), l.Reserve(n, patience)
			same(r.Decision, other.Decision)
			ofEngine, ofLimiter = append(ofEngine, r), append(ofLimiter, other)
		// The reservation is any, also an ended one.
		case 9, 10:
			if len(ofEngine) == 0 {
				continue
			}
			i := dice.IntN(len(ofEngine))
			before := l.Peek(0)
			if op == 9 {
				ofEngine[i].cancel()
				ofLimiter[i].cancel()
			} else {
				ofEngine[i].keep(n)
				ofLimiter[i].keep(n)
			}
			if l.Peek(0) != before {
				seen["given back"]++
			}
		case 11:
			same(e.Refund(n), l.Refund(n))
		case 12:
			r, err := e.Acquire(t.Context(), n, 0)
			other, err2 := l.Acquire(t.Context(), n, 0)
			same(fmt.Sprint(err), fmt.Sprint(err2))
			same(r.Decision, other.Decision)
			ofEngine, ofLimiter = append(ofEngine, r), append(ofLimiter, other)
		case 13:
			same(fmt.Sprint(e.Wait(ended, n)), fmt.Sprint(l.Wait(ended, n)))
			same(fmt.Sprint(e.Wait(t.Context(), 0)), fmt.Sprint(l.Wait(t.Context(), 0)))
			same(fmt.Sprint(e.Wait(t.Context(), -1)), fmt.Sprint(l.Wait(t.Context(), -1)))
		case 14:
			switch dice.IntN(3) {
			case 0:
				same(e.Reset(), l.Reset())
			case 1:
				p := family[dice.IntN(len(family))]
				want, err := e.SetPolicy(p), l.SetPolicy(p)
				same(fmt.Sprint(want), fmt.Sprint(err))
				if err == nil {
					seen["replaced"]++
				}
			case 2:
				var stranger policy.Policy = policy.Must(policy.FixedWindow(10, time.Second))
				if strings.HasPrefix(family[0].String(), "window") {
					stranger = funnel(10, 10, time.Second)
				}
				for _, p := range []policy.Policy{nil, stranger, bare{family[0]}} {
					want, err := e.SetPolicy(p), l.SetPolicy(p)
					same(fmt.Sprint(want), fmt.Sprint(err))
					require.Error(t, err)
				}
			}
		}
		same(e.Peek(0), l.Peek(0))
		same(e.Limit().String(), l.Limit().String())
	}
}

// arrival is a step of a script.
type arrival struct {
	at   time.Duration
	verb int
	n    int64
	// patience is the context's for a Wait, and the call's for an Acquire. A negative patience is none.
	patience time.Duration
	// used is the units of an Acquire to Keep. A negative number is all.
	used   int64
	policy policy.Policy
}

// Random waiting calls among others get the order, times and errors of an engine's one key.
//
// Promise: Calls wait first come, first served, at most `MaxWaiting`.
func TestWaitsAsAnEngine(t *testing.T) {
	rounds := 20
	if testenv.Race {
		rounds = 4
	}
	for name, family := range families() {
		if strings.Contains(name, "Berlin") {
			// Calendar windows are aligned windows, and would take too long.
			continue
		}
		t.Run(name, func(t *testing.T) {
			waited, refused := 0, 0
			for round := range rounds {
				dice := rand.New(rand.NewPCG(uint64(round), 19))
				var script []arrival
				for instant := time.Duration(0); len(script) < 60; instant += time.Duration(dice.Int64N(int64(150 * time.Millisecond))) {
					patience := time.Duration(dice.Int64N(int64(2 * time.Second)))
					if dice.IntN(2) == 0 {
						patience = -1
					}
					script = append(script, arrival{
						instant, dice.IntN(16), 1 + dice.Int64N(4), patience, dice.Int64N(5) - 1, family[dice.IntN(len(family))],
					})
				}
				var logs [2][]string
				for i := range logs {
					synctest.Test(t, func(t *testing.T) {
						l, e := both(t, family[0], 8, nil)
						logs[i] = played(t, []verbs{l, e}[i], script)
					})
				}
				for i, want := range logs[1] {
					require.Less(t, i, len(logs[0]))
					require.Equal(t, want, logs[0][i], "round %d, after %q", round, logs[0][:i])
				}
				require.Len(t, logs[0], len(logs[1]))
				for _, line := range logs[0] {
					if strings.Contains(line, "waited: <nil>") {
						waited++
					}
					if strings.Contains(line, "waited: ral:") {
						refused++
					}
				}
			}
			require.Positive(t, waited, "no call waited")
			require.Positive(t, refused, "no call gave up")
		})
	}
}

// played runs a script and returns the events in order.
func played(t *testing.T, v verbs, script []arrival) (log []string) {
	began := time.Now()
	type end struct {
		line string
		keep func()
	}
	ended := make(chan end, len(script))
	note := func(format string, more ...any) {
		log = append(log, fmt.Sprintf("%v: ", time.Since(began))+fmt.Sprintf(format, more...))
	}
	// Simultaneous ends have no order: give back in order of the calls.
	collect := func() {
		synctest.Wait()
		var ends []end
		for len(ended) > 0 {
			ends = append(ends, <-ended)
		}
		slices.SortFunc(ends, func(a, b end) int { return strings.Compare(a.line, b.line) })
		for _, e := range ends {
			log = append(log, e.line)
			e.keep()
		}
		if len(ends) > 0 {
			synctest.Wait()
		}
	}
	under := 0
	for i, a := range script {
		for time.Since(began) < a.at {
			time.Sleep(min(10*time.Millisecond, a.at-time.Since(began)))
			collect()
		}
		switch a.verb {
		case 0, 1, 2, 3, 4, 5, 6, 7, 8, 9:
			under++
			go func() {
				came := time.Since(began)
				var err error
				var what any
				keep := func() {}
				if a.verb < 5 {
					ctx := context.Background()
					if a.patience >= 0 {
						short, stop := context.WithTimeout(ctx, a.patience)
						defer stop()
						ctx = short
						if a.verb == 0 {
							cancelled, cancel := context.WithCancelCause(context.Background())
							ctx = cancelled
							defer context.AfterFunc(short, func() { cancel(errors.New("the client left")) })()
						}
					}
					err = v.Wait(ctx, a.n)
				} else {
					var r reserved
					r, err = v.Acquire(context.Background(), a.n, max(a.patience, 0))
					what = fmt.Sprint(r.Decision, r.waited)
					if a.used >= 0 {
						keep = func() { r.keep(a.used) }
					}
				}
				ended <- end{fmt.Sprintf("%v: call %02d, came %v, waited: %v %v", time.Since(began), i, came, err, what), keep}
			}()
		case 10, 11:
			note("%v", v.Choke())
		case 12:
			note("%v", v.Take(a.n))
		case 13:
			note("%v", v.Refund(a.n-2))
		case 14:
			note("%v", v.Reset())
		case 15:
			note("%v", v.SetPolicy(a.policy))
		}
		collect()
		note("%v", v.Peek(0))
	}
	time.Sleep(time.Minute)
	collect()
	note("%v", v.Peek(0))
	calls := 0
	for _, line := range log {
		if strings.Contains(line, "waited: ") {
			calls++
		}
	}
	require.Equal(t, under, calls, "a call is still waiting")
	return log
}
