package engine

import (
	"maps"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/policy"
)

// The draining time is carried from limit to limit.
func TestTakeWithCarriesTheDrainingTime(t *testing.T) {
	clock := newHandClock()
	e := open[string](t, Config{Policy: funnel(10, 1, time.Second), Clock: clock.Now})
	large, small := funnel(100, 10, time.Second), funnel(2, 1, time.Second)
	assert.Equal(t, policy.Decision{Allowed: true, Limit: 100, Remaining: 50, ResetAfter: 5 * time.Second}, e.TakeWith(large, "key", 50))
	assert.Equal(t, policy.Decision{Allowed: true, Limit: 10, Remaining: 5, ResetAfter: 5 * time.Second}, e.Peek("key", 0))
	assert.Equal(t, policy.Decision{Limit: 2, RetryAfter: 4 * time.Second, ResetAfter: 5 * time.Second}, e.TakeWith(small, "key", 1))
	clock.Advance(4 * time.Second)
	assert.True(t, e.TakeWith(small, "key", 1).Allowed)
	assert.EqualValues(t, 8, e.TakeWith(nil, "key", 0).Remaining)
	assert.EqualValues(t, 80, e.TakeWith(large, "key", 0).Remaining)

	// Policies of another family, and nil.
	before := e.Peek("key", 0)
	var missing *nilPolicy
	for _, p := range []policy.Policy{pacer{1, 1}, unrelated{large}, missing} {
		for _, key := range []string{"key", "new"} {
			for n := range int64(2) {
				assert.Equal(t, policy.Decision{RetryAfter: policy.Never}, e.TakeWith(p, key, n))
			}
		}
	}
	assert.Equal(t, before, e.Peek("key", 0))
	assert.Equal(t, 1, e.Len())
	s := e.Stats()
	assert.EqualValues(t, 2, s.Admitted)
	assert.EqualValues(t, 1+6, s.Refused)

	// No policy is related to one that is not a policy.Relative.
	bare := open[string](t, Config{Policy: unrelated{large}, Clock: clock.Now})
	assert.Equal(t, policy.Never, bare.TakeWith(large, "key", 1).RetryAfter)
	assert.True(t, bare.TakeWith(nil, "key", 1).Allowed)
}

// 64 goroutines take under their own limits: as many as the largest has room for.
//
// Promise: `TakeWith` keeps each call's own limit.
func TestTakeWithIsExact(t *testing.T) {
	clock := newHandClock()
	e := open[string](t, Config{Policy: funnel(1, 1, time.Second), Clock: clock.Now})
	limits := []policy.Policy{funnel(100, 1, time.Second), funnel(500, 1, time.Second), funnel(1000, 1, time.Second)}
	var admitted atomic.Int64
	together(64, func(i int) {
		for j := range 300 {
			if e.TakeWith(limits[(i+j)%3], "key", 1).Allowed {
				admitted.Add(1)
			}
		}
	})
	for e.TakeWith(limits[2], "key", 1).Allowed {
		admitted.Add(1)
	}
	assert.EqualValues(t, 1000, admitted.Load())
	assert.EqualValues(t, 1000, e.Stats().Admitted)
}

func openFor[K comparable](t testing.TB, config Config, choose func(K) policy.Policy) *Engine[K] {
	t.Helper()
	config.uncounted = true
	e, err := New(config, PolicyFor(choose))
	require.NoError(t, err)
	t.Cleanup(func() { check(t, e) })
	return e
}

// Whichever goroutine writes the word.
//
// Promise: Each call keeps its key's chosen limit.
func TestEachCallKeepsItsChosenLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		// The choice may change at any time.
		limit := funnel(8, 2, time.Second)
		e := openFor(t, Config{Policy: funnel(2, 1, time.Second), Clock: newHandClock().Now}, func(key string) policy.Policy {
			switch key {
			case "gold":
				return limit
			case "strange":
				return pacer{1, 1}
			}
			return nil
		})
		for key, want := range map[string]int{"gold": 8, "plain": 2, "strange": 0} {
			passed := 0
			for range 20 {
				if e.Choke(key) {
					passed++
				}
				// Known keys are read from the map.
				synctest.Wait()
			}
			assert.Equal(t, want, passed, key)
			assert.EqualValues(t, want, e.Peek(key, 0).Limit, key)
		}
		assert.Equal(t, policy.Decision{RetryAfter: policy.Never}, e.Peek("strange", 0))
		assert.EqualValues(t, 2, e.TakeWith(funnel(2, 1, time.Second), "gold", 0).Limit, "what comes with the call comes first")
		assert.EqualValues(t, 3, e.Refund("gold", 3).Remaining)
		assert.Equal(t, time.Second, e.Reserve("gold", 5, time.Second).Wait)
		e.Refund("gold", 5)
		assert.Equal(t, map[string]policy.Decision{"gold": e.Peek("gold", 0), "plain": e.Peek("plain", 0)}, maps.Collect(e.All()))
		assert.True(t, TakeAll(e.Claim("gold", 3)).Allowed)
		assert.ErrorIs(t, e.Wait(t.Context(), "gold", 9), ErrNever)

		limit = funnel(4, 4, time.Second)
		assert.EqualValues(t, 4, e.Peek("gold", 0).Limit)
		noLines(t, e)
	})
}

// Promise: Each key's month begins on its own day, which may change.
func TestMonthsBeginOnTheDaysOfKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		// The bubble begins on 1 January 2000, and the clock at 1.
		begin := time.Now().UTC()
		days := map[string]int{"first": 1, "twentieth": 20, "last": 31}
		clock := newHandClock()
		config := Config{Policy: parsed(t, "window 10/month in UTC"), Clock: clock.Now, uncounted: true}
		chosen := PolicyFor(func(key string) policy.Policy {
			return policy.Must(policy.CalendarWindow(10, policy.Month, "UTC", days[key]))
		})
		e, err := New(config, chosen)
		require.NoError(t, err)
		defer func() { check(t, e) }()
		now := func() time.Time { return begin.Add(time.Duration(clock.Now() - 1)) }
		// use takes all units of a key, which come back at the beginning of a day.
		use := func(key string, want time.Time) {
			t.Helper()
			require.True(t, e.Take(key, 10).Allowed, "%s at %v: all units are there", key, now())
			require.Equal(t, want.Sub(now()), e.Take(key, 1).RetryAfter, "%s at %v: the time until units are back", key, now())
		}
		clock.Advance(9 * 24 * time.Hour)
		use("first", time.Date(2000, time.February, 1, 0, 0, 0, 0, time.UTC))
		use("twentieth", time.Date(2000, time.January, 20, 0, 0, 0, 0, time.UTC))
		use("last", time.Date(2000, time.January, 31, 0, 0, 0, 0, time.UTC))

		// A changed day holds from the end of the window on.
		days["twentieth"] = 31
		require.Equal(t, 10*24*time.Hour, e.Take("twentieth", 1).RetryAfter, "the window ends when it was to end")
		require.NoError(t, e.ChangeLimit("twentieth", parsed(t, "window 10/month from 20 in UTC"), parsed(t, "window 10/month from 31 in UTC")))
		require.Equal(t, 10*24*time.Hour, e.Take("twentieth", 1).RetryAfter, "ChangeLimit moves no window")
		clock.Advance(10 * 24 * time.Hour)
		use("twentieth", time.Date(2000, time.January, 31, 0, 0, 0, 0, time.UTC))

		// So does the day of the keys without a day of their own.
		require.Zero(t, e.Peek("last", 0).Remaining)
		clock.Advance(11 * 24 * time.Hour)
		use("last", time.Date(2000, time.February, 29, 0, 0, 0, 0, time.UTC))
	})
}

func TestBadOptionsAreRefused(t *testing.T) {
	config := Config{Policy: funnel(1, 1, time.Second)}
	_, err := New(config, PolicyFor[int](nil))
	assert.EqualError(t, err, "ral: engine.PolicyFor: choose is nil, want a function")
	_, err = New(config, Option[int](nil))
	assert.EqualError(t, err, "ral: engine.New: more is nil, want an option, such as PolicyFor returns")
}

// Promise: `RefundWith` returns units of `TakeWith`.
func TestRefundWithReturnsUnitsOfTakeWith(t *testing.T) {
	clock := newHandClock()
	e := open[string](t, Config{Policy: funnel(10, 1, time.Second), Clock: clock.Now})
	fast := funnel(100_000, 1000, time.Second)
	require.True(t, e.Take("key", 10).Allowed)
	for range 5 {
		require.True(t, e.TakeWith(fast, "key", 10).Allowed)
		assert.True(t, e.RefundWith(fast, "key", 10).Allowed)
		assert.False(t, e.Choke("key"), "ten units of 1 ms came back, not of a second")
	}
	assert.Equal(t, 10*time.Second, e.Peek("key", 0).ResetAfter)
	other := policy.Must(policy.FixedWindow(10, time.Second))
	assert.False(t, e.RefundWith(other, "key", 10).Allowed)
	assert.Equal(t, 10*time.Second, e.Peek("key", 0).ResetAfter)
}

// Units given back under another limit count as the engine's own units. A Cancel then knows that
// its units may have moved.
func TestCancelAfterARefundUnderASlowerLimit(t *testing.T) {
	clock := newHandClock()
	e := open[string](t, Config{Policy: funnel(100, 1, time.Millisecond), Clock: clock.Now})
	slow := funnel(1, 1, time.Second)
	require.True(t, e.TakeWith(slow, "key", 1).Allowed)
	first := e.Reserve("key", 100, time.Hour)
	require.Equal(t, time.Second, first.Wait)
	require.True(t, e.RefundWith(slow, "key", 1).Allowed)
	second := e.Reserve("key", 100, time.Hour)
	require.Equal(t, 100*time.Millisecond, second.Wait)
	first.Cancel()
	third := e.Reserve("key", 100, time.Hour)
	assert.Equal(t, 200*time.Millisecond, third.Wait, "with the second it would be 200 at once, of 100")
}
