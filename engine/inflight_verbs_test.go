package engine_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ral-limiter/ral/engine"
	"github.com/ral-limiter/ral/limits"
	"github.com/ral-limiter/ral/policy"
	"github.com/ral-limiter/ral/supervisor"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// toldOf runs a test on an engine of two units in use for a minute, and returns its events about misuse.
func toldOf(t *testing.T, test func(t *testing.T, e *engine.Engine[string])) (events []string) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		e, err := engine.New[string](engine.Config{Policy: inFlight(2, time.Minute), Name: "jobs", OnEvent: func(e engine.Event) {
			if e.Kind == supervisor.Misuse {
				events = append(events, e.String())
			}
		}})
		require.NoError(t, err)
		test(t, e)
		require.NoError(t, e.Close())
	})
	for _, line := range events {
		assert.NotContains(t, line, "secret")
	}
	return events
}

// Promise: A unit in use that is released after its end is an event without the key itself, at most one in ten seconds.
func TestOverstayIsAnEvent(t *testing.T) {
	events := toldOf(t, func(t *testing.T, e *engine.Engine[string]) {
		for range 3 {
			late, later := e.Reserve("secret", 1, 0), e.Reserve("secret", 1, 0)
			require.True(t, late.Allowed && later.Allowed)
			time.Sleep(2 * time.Minute)
			in := e.Reserve("secret", 2, 0)
			require.True(t, in.Allowed, "a call must pass once the units have ended")
			late.Release()
			assert.False(t, later.Extend())
			in.Release()
		}
		assert.EqualValues(t, 6, e.Stats().Overstayed)
	})
	require.Len(t, events, 3)
	assert.Regexp(t, `^jobs: misuse: key [0-9a-f]{16}: .* as did 0 others`, events[0])
	assert.Contains(t, events[2], "as did 1 others")
}

// Promise: Units in use of verbs that return nothing to release are counted, and told once.
func TestUnheldUnitsAreToldOnce(t *testing.T) {
	events := toldOf(t, func(t *testing.T, e *engine.Engine[string]) {
		for count, verb := range []func() bool{
			func() bool { return e.Choke("secret") },
			func() bool { return e.Allow("secret") },
			func() bool { return e.Take("secret", 1).Allowed },
			func() bool { return e.TakeWith(inFlight(1, time.Minute), "secret", 1).Allowed },
			func() bool { taken, _ := e.TakeUpTo("secret", 3); return taken == 2 },
			func() bool { return e.Wait(t.Context(), "secret", 1) == nil },
			func() bool { a, err := e.Admit(t.Context(), "secret", 1); return err == nil && a.Allowed },
		} {
			require.True(t, verb(), "verb %d", count)
			assert.EqualValues(t, count+1, e.Stats().Unheld)
			e.Reset("secret")
		}
		r := e.Reserve("secret", 2, 0)
		assert.False(t, e.Choke("secret"))
		assert.True(t, e.Take("secret", 0).Allowed)
		r.Release()
		held, err := e.Acquire(t.Context(), "secret", 1, 0)
		require.NoError(t, err)
		held.Release()
		assert.EqualValues(t, 7, e.Stats().Unheld)
	})
	require.Len(t, events, 1)
	assert.Regexp(t, `^jobs: misuse: key [0-9a-f]{16}: a call took units in use and returned nothing to release`, events[0])
}

// Promise: `Explain` tells how many units are in use, and for how long the oldest has been.
func TestExplainTellsUnitsInUse(t *testing.T) {
	e, clock := newInFlight(t, engine.Config{Policy: inFlight(10, 40*time.Second)}) // parts of 10 s
	says := func(what string) {
		t.Helper()
		x := e.Explain("a")
		assert.Contains(t, x.String(), what)
		assert.LessOrEqual(t, x.OldestMin, x.OldestMax)
	}
	says(" 0 of 10 in use.")
	first := e.Reserve("a", 1, 0)
	clock.pass(35 * time.Second)
	rest := e.Reserve("a", 9, 0)
	require.True(t, rest.Allowed)
	clock.pass(4 * time.Second)
	says(" 10 of 10 in use, the oldest for 29s to 39s.")
	first.Release()
	says(" 9 of 10 in use, the oldest for 0s to 9s.")
	require.NoError(t, e.SetPolicy(inFlight(4, 40*time.Second)))
	says(" 9 of 4 in use, the oldest")
	rate, err := engine.New[string](engine.Config{Policy: policy.Must(policy.FixedWindow(3, time.Hour))})
	require.NoError(t, err)
	defer func() { assert.NoError(t, rate.Close()) }()
	assert.Contains(t, rate.Explain("a").String(), " 0 of 3 used.")
}

// Promise: Units in use follow limits of calls, plans, blocks, penalties and trials as other units do, and a limit of another longest time is a misfit.
func TestInFlightBesideEverything(t *testing.T) {
	e, _ := newInFlight(t, engine.Config{Policy: inFlight(2, time.Minute), Penalty: engine.Penalty{Refusals: 3, Within: time.Hour, For: time.Hour}})
	require.True(t, e.TakeWith(inFlight(1, time.Minute), "a", 1).Allowed)
	require.False(t, e.TakeWith(inFlight(1, time.Minute), "a", 1).Allowed)
	require.True(t, e.TakeWith(inFlight(2, time.Minute), "a", 1).Allowed)
	for _, other := range []policy.Policy{inFlight(9, time.Hour), policy.Must(policy.FixedWindow(9, time.Minute))} {
		d := e.TakeWith(other, "b", 1)
		assert.False(t, d.Allowed)
		assert.EqualValues(t, policy.Never, d.RetryAfter)
		assert.False(t, e.RefundWith(other, "a", 1).Allowed)
	}
	assert.False(t, e.RefundWith(inFlight(2, time.Minute), "a", 1).Allowed)
	assert.Zero(t, e.Peek("a", 0).Remaining)
	assert.Error(t, e.ChangeLimit("a", nil, inFlight(9, time.Hour)))
	assert.Error(t, e.SetPolicy(policy.Must(policy.FixedWindow(9, time.Minute))))

	r := e.Reserve("held", 1, 0)
	require.NoError(t, e.Block("held", time.Hour))
	assert.False(t, e.Reserve("held", 1, 0).Allowed)
	r.Release()
	assert.True(t, e.Reset("held"))
	assert.EqualValues(t, 2, e.Peek("held", 0).Remaining, "a release during a block must count")
	for range 2 {
		assert.False(t, e.Choke("a"))
	}
	assert.NotZero(t, e.Blocked("a"), "three refusals must block the key")
	require.Error(t, func() error { _, err := e.Acquire(t.Context(), "a", 1, 0); return err }())

	plans, err := engine.New(engine.Config{Policy: inFlight(5, time.Minute)}, engine.PolicyFor(func(key string) policy.Policy {
		return map[string]policy.Policy{"free": inFlight(1, time.Minute), "odd": inFlight(1, time.Hour)}[key]
	}))
	require.NoError(t, err)
	defer func() { assert.NoError(t, plans.Close()) }()
	free := plans.Reserve("free", 1, 0)
	assert.True(t, free.Allowed)
	assert.False(t, plans.Reserve("free", 1, 0).Allowed)
	free.Release()
	assert.EqualValues(t, 1, plans.Peek("free", 0).Remaining)
	assert.False(t, plans.Choke("odd"))
	assert.Positive(t, plans.Stats().Misfits)
	paid := plans.Reserve("paid", 5, 0)
	assert.True(t, paid.Allowed)
	paid.Release()

	live, candidate := plans, e
	trial, err := limits.NewTrial(limits.TrialConfig[string]{Live: live, Candidate: candidate})
	require.NoError(t, err)
	g, err := trial.Hold(t.Context(), limits.Call[string]{Key: "t", N: 2})
	require.NoError(t, err)
	assert.EqualValues(t, 3, live.Peek("t", 0).Remaining)
	assert.Zero(t, candidate.Peek("t", 0).Remaining)
	assert.NoError(t, g.Release(context.Background()))
	assert.EqualValues(t, 5, live.Peek("t", 0).Remaining)
	assert.EqualValues(t, 2, candidate.Peek("t", 0).Remaining)

	out, err := limits.AskAll(t.Context(), 0, limits.NewClaim[string](live, limits.Call[string]{Key: "all", N: 5}), limits.NewClaim[string](candidate, limits.Call[string]{Key: "all", N: 2}))
	require.NoError(t, err)
	require.True(t, out.Allowed)
	refused, err := limits.AskAll(t.Context(), 0, limits.NewClaim[string](live, limits.Call[string]{Key: "other", N: 1}), limits.NewClaim[string](candidate, limits.Call[string]{Key: "all", N: 1}))
	require.NoError(t, err)
	assert.False(t, refused.Allowed)
	assert.EqualValues(t, 5, live.Peek("other", 0).Remaining, "a refused call holds nothing")
	assert.NoError(t, out.Release(t.Context()))
	assert.EqualValues(t, 2, candidate.Peek("all", 0).Remaining)
	assert.True(t, strings.HasPrefix(live.Limit().String(), "in flight"))
}
