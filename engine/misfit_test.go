package engine

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/policy"
)

// Every verb refuses it, with a decision without a limit.
//
// Promise: Calls under another family's limit are refused for good, counted and reported once.
func TestMisfitsAreCountedAndReported(t *testing.T) {
	fixed := policy.Must(policy.FixedWindow(5, time.Minute))
	var reported []policy.Policy
	config := Config{Policy: funnel(10, 1, time.Second), OnMisfit: func(p policy.Policy) { reported = append(reported, p) }}
	e := openFor(t, config, func(key string) policy.Policy {
		return map[string]policy.Policy{"misfit": fixed}[key]
	})
	require.True(t, e.Choke("good"))
	require.True(t, e.TakeWith(funnel(3, 1, time.Second), "good", 1).Allowed)
	assert.Empty(t, reported)

	never := policy.Decision{RetryAfter: policy.Never}
	calls := verbsOnKey(e, open[string](t, config))
	calls["TakeWith"] = func(_ string, n int64) (policy.Decision, bool) { return e.TakeWith(fixed, "good", n), false }
	calls["Wait"] = func(key string, n int64) (policy.Decision, bool) {
		err := e.Wait(t.Context(), key, n)
		assert.ErrorIs(t, err, ErrNever)
		assert.ErrorContains(t, err, "another family")
		return never, false
	}
	counted := 0
	for name, call := range calls {
		d, allowed := call("misfit", 1)
		assert.False(t, allowed, name)
		if name != "Choke" && name != "Allow" {
			assert.Equal(t, never, d, name)
		}
		counted++
		s := e.Stats()
		assert.EqualValues(t, []int{counted, counted}, []int{int(s.Misfits), int(s.Refused)}, name)
	}
	assert.Equal(t, never, e.Peek("misfit", 0))
	assert.EqualValues(t, counted, e.Stats().Misfits, "a look must not be counted")
	assert.Equal(t, []policy.Policy{fixed}, reported)

	// More than the limit is another refusal for good.
	d := e.Take("good", 11)
	assert.Equal(t, policy.Never, d.RetryAfter)
	assert.EqualValues(t, 10, d.Limit)
	assert.EqualValues(t, counted, e.Stats().Misfits)
	assert.False(t, errors.Is(e.Health(), ErrUnhealthy))
}

// Limits above a million are families of their own by their steps, also beside smaller ones.
//
// Promise: Budgets of millions of units are exact by each verb, and over a restart and a change.
func TestBudgetsOfMillionsAreExact(t *testing.T) {
	hand := newHandClock()
	config := Config{Policy: parsed(t, "window 500M/30d"), Clock: hand.Now, uncounted: true}
	chosen := PolicyFor(func(key string) policy.Policy {
		return map[string]policy.Policy{"plan": parsed(t, "window 3000M/30d"), "misfit": parsed(t, "window 2M/30d")}[key]
	})
	e, err := New(config, chosen)
	require.NoError(t, err)
	assert.EqualValues(t, 1, e.Take("key", 499_999_999).Remaining)
	assert.True(t, e.Choke("key"))
	assert.False(t, e.Choke("key"))
	r := e.Reserve("plan", 2_999_999_999, 0)
	assert.EqualValues(t, 1, r.Remaining)
	r.Keep(2_000_000_000)
	assert.EqualValues(t, 1_000_000_000, e.Peek("plan", 0).Remaining)
	assert.EqualValues(t, 1_000_000_000, e.TakeWith(parsed(t, "window 4000M/30d"), "plan", 1_000_000_000).Remaining)
	assert.EqualValues(t, 20_000_000, e.Refund("key", 20_000_000).Remaining)

	never := policy.Decision{RetryAfter: policy.Never}
	for _, text := range []string{"window 1000/30d", "window 2M/30d", "window 200M/30d", "window 500M/29d"} {
		assert.Equal(t, never, e.TakeWith(parsed(t, text), "key", 1), text)
	}
	assert.Equal(t, never, e.Take("misfit", 1))
	assert.False(t, e.Choke("misfit"))
	assert.EqualValues(t, 6, e.Stats().Misfits)

	e = restart(t, e, config, func() {}, chosen)
	defer func() { check(t, e) }()
	assert.EqualValues(t, 20_000_000, e.Peek("key", 0).Remaining)
	assert.Zero(t, e.Peek("plan", 0).Remaining)
	assert.EqualValues(t, 1_000_000_000, e.TakeWith(parsed(t, "window 4000M/30d"), "plan", 0).Remaining)

	plain := open[string](t, Config{Policy: config.Policy, Clock: hand.Now})
	plain.Take("key", 480_000_000)
	require.NoError(t, plain.SetPolicy(parsed(t, "window 4000M/30d")))
	assert.Equal(t, int64(3_520_000_000), plain.Peek("key", 0).Remaining)
	require.NoError(t, plain.SetPolicy(parsed(t, "window 2M/30d")))
	assert.Zero(t, plain.Peek("key", 0).Remaining, "the key must be as full as its word can tell")
	assert.True(t, plain.Take("another", 2_000_000).Allowed)
	assert.Equal(t, never, plain.TakeWith(config.Policy, "key", 1), "a policy that fitted before must be a misfit now")
}

// ever is a limit outside of package policy: so many units for ever, which cannot be given back.
type ever int64

func (l ever) Take(word uint64, _ policy.Instant, n int64, _ time.Duration) (uint64, policy.Decision) {
	left := int64(l) - int64(word)
	if n < 0 || n > left {
		return word, policy.Decision{Limit: int64(l), Remaining: left, RetryAfter: policy.Never}
	}
	return word + uint64(n), policy.Decision{Allowed: true, Limit: int64(l), Remaining: left - n}
}

func (ever) FreshAt(word uint64) policy.Instant { return policy.Instant(min(word, 1)) << 62 }
func (l ever) Limit() int64                     { return int64(l) }
func (ever) Delays() bool                       { return false }
func (ever) String() string                     { return "for ever" }

func TestOwnLimitIsNoMisfit(t *testing.T) {
	for _, limit := range []ever{0, 5} {
		config := Config{Policy: limit, OnMisfit: func(p policy.Policy) { t.Errorf("limit %d: the hook was told of %v", limit, p) }}
		e := open[string](t, config)
		e.Choke("key")
		d := e.Refund("key", -1)
		assert.Equal(t, policy.Decision{Limit: int64(limit), RetryAfter: policy.Never}, d, "a charge under a misfit must be refused")
		assert.Equal(t, d, e.Refund("key", 1))
		assert.False(t, e.Take("key", 6).Allowed)
		assert.False(t, TakeAll(e.Claim("key", 6)).Allowed)
		err := e.Wait(context.Background(), "key", 6)
		require.ErrorIs(t, err, ErrNever)
		assert.NotContains(t, err.Error(), "family")
		assert.Zero(t, e.Stats().Misfits)
	}
}

// Promise: A wait without an error was allowed, also for 0 units.
func TestRefusedLookIsAnError(t *testing.T) {
	ctx := context.Background()
	fixed := policy.Must(policy.FixedWindow(5, time.Minute))
	e := openFor(t, Config{Policy: funnel(10, 1, time.Second)}, func(string) policy.Policy { return fixed })
	good := open[string](t, Config{Policy: funnel(10, 1, time.Second)})

	require.ErrorIs(t, e.Wait(ctx, "key", 0), ErrNever)
	r, err := e.Acquire(ctx, "key", 0, time.Second)
	require.ErrorIs(t, err, ErrNever)
	assert.False(t, r.Allowed)
	for _, claim := range []Claim{e.Claim("key", 0), {}} {
		for _, n := range []int64{0, 1} {
			o, err := AcquireAll(ctx, time.Second, good.Claim("key", n), claim)
			require.ErrorIs(t, err, ErrNever)
			assert.False(t, o.Allowed)
			assert.Equal(t, 1, o.Binding)
			assert.Equal(t, claim.engine == nil, strings.Contains(err.Error(), "zero Claim"), "%v", err)
			assert.Equal(t, claim.engine != nil, strings.Contains(err.Error(), "another family"), "%v", err)
		}
	}
	assert.Zero(t, e.Stats().Misfits, "looks must not be counted")
	assert.EqualValues(t, 10, good.Peek("key", 0).Remaining)
}

func TestChokeUnderALimitOfAnotherFamily(t *testing.T) {
	own, other := policy.Must(policy.FixedWindow(5, 24*time.Hour)), funnel(5, 1, time.Hour)
	chosen := own
	e := openFor(t, Config{Policy: policy.Must(policy.FixedWindow(1, 24*time.Hour))}, func(string) policy.Policy { return chosen })
	require.True(t, e.Choke("key"))
	settled(t, e)
	require.True(t, e.Choke("key"))
	chosen = other
	for range 3 {
		assert.False(t, e.Choke("key"))
	}
	assert.EqualValues(t, 3, e.Stats().Misfits)
	chosen = own
	assert.EqualValues(t, 3, e.Peek("key", 0).Remaining, "the calls in between must take nothing")
	assert.Zero(t, testing.AllocsPerRun(100, func() { e.Choke("key") }))
}
