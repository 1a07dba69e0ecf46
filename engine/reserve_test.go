package engine

import (
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/internal/testkit/limitstest"
	"github.com/ral-limiter/ral/policy"
)

// Promise: `Cancel` undoes the last take without trace.
func TestCancelUndoesTheLastTake(t *testing.T) {
	clock := newHandClock()
	e := open[string](t, Config{Policy: funnel(3, 1, time.Second), Clock: clock.Now})
	first := e.Reserve("key", 2, 0)
	assert.Equal(t, policy.Decision{Allowed: true, Limit: 3, Remaining: 1, ResetAfter: 2 * time.Second}, first.Decision)
	second := e.Reserve("key", 3, 2*time.Second)
	assert.Equal(t, policy.Decision{Allowed: true, Limit: 3, Wait: 2 * time.Second, ResetAfter: 5 * time.Second}, second.Decision)
	refused := e.Reserve("key", 3, 5*time.Second-1)
	assert.Equal(t, policy.Decision{Limit: 3, RetryAfter: 1, ResetAfter: 5 * time.Second}, refused.Decision)
	assert.False(t, e.Choke("key"), "a promised turn must not be given to others")

	refused.Cancel()
	assert.Equal(t, 5*time.Second, e.Peek("key", 0).ResetAfter)
	second.Cancel()
	assert.Equal(t, 2*time.Second, e.Peek("key", 0).ResetAfter)
	second.Cancel()
	assert.Equal(t, 2*time.Second, e.Peek("key", 0).ResetAfter, "a second Cancel returned units")
	first.Cancel()
	assert.Equal(t, policy.Decision{Allowed: true, Limit: 3, Remaining: 3}, e.Peek("key", 0))

	for _, n := range []int64{0, -1, 4, math.MinInt64, math.MaxInt64} {
		r := e.Reserve("key", n, time.Hour)
		assert.Equal(t, n == 0, r.Allowed)
		assert.Equal(t, n != 0, r.RetryAfter == policy.Never)
		r.Cancel()
	}
	long, negative := e.Reserve("key", 3, math.MaxInt64), e.Reserve("key", 1, math.MinInt64)
	assert.True(t, long.Allowed)
	assert.False(t, negative.Allowed)
	long.Cancel()
	assert.EqualValues(t, 3, e.Peek("key", 0).Remaining)
	var nothing Reservation[string]
	nothing.Cancel()
	s := e.Stats()
	assert.EqualValues(t, 3, s.Admitted, "each call must be counted once, and Cancel not at all")
	assert.EqualValues(t, 1+1+4+1, s.Refused)
}

// Promise: After its turn a reservation returns only units that still count.
func TestLateCancelReturnsOnlyCountedUnits(t *testing.T) {
	clock := newHandClock()
	e := open[string](t, Config{Policy: funnel(10, 1, time.Second), Clock: clock.Now})
	r := e.Reserve("key", 5, 0)
	clock.Advance(3 * time.Second)
	require.True(t, e.Take("key", 5).Allowed)
	// 2 of the 5 units are still there.
	r.Cancel()
	assert.Equal(t, 5*time.Second, e.Peek("key", 0).ResetAfter)

	r = e.Reserve("key", 5, 0)
	clock.Advance(20 * time.Second)
	require.True(t, e.Take("key", 10).Allowed)
	r.Cancel()
	assert.Zero(t, e.Peek("key", 0).Remaining)

	// A refused call has nothing to give back, whatever others take since.
	clock.Advance(time.Hour)
	require.True(t, e.Take("key", 8).Allowed)
	r = e.Reserve("key", 3, 0)
	require.False(t, r.Allowed)
	require.True(t, e.Choke("key"))
	r.Cancel()
	assert.EqualValues(t, 1, e.Peek("key", 0).Remaining)
}

// Also under a limit that counts in windows: the units that count now are of other calls.
func TestCancelAfterResetGivesNothingBack(t *testing.T) {
	for _, p := range limitstest.Policies() {
		e := open[string](t, Config{Policy: p, Clock: newHandClock().Now})
		r := e.Reserve("key", 1, 0)
		require.True(t, r.Allowed)
		require.True(t, e.Reset("key"))
		for e.Choke("key") {
		}
		before := e.Peek("key", 0)
		r.Cancel()
		assert.Equal(t, before, e.Peek("key", 0), "%v", p)
	}
}

func TestCancelAfterEvictionReturnsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := open[string](t, Config{Policy: funnel(1, 1, time.Second), MaxKeys: 1})
		r := e.Reserve("key", 1, 0)
		synctest.Wait()
		require.True(t, e.Choke("other"))
		synctest.Wait()
		require.EqualValues(t, 1, e.Stats().Forgiven)
		require.True(t, e.Choke("key"))
		r.Cancel()
		assert.False(t, e.Choke("key"), "what was given up was given back twice")
	})
}

// Nor when the policy has come back, and the word by chance.
//
// Promise: `Cancel` returns nothing twice, nor after `SetPolicy`, `Reset` or eviction.
func TestCancelAfterSetPolicy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		clock := newHandClock()
		before, after := funnel(10, 1, time.Second), funnel(10, 2, time.Second)
		e := open[string](t, Config{Policy: before, Clock: clock.Now})
		r, s := e.Reserve("key", 6, 0), e.Reserve("other", 6, 0)
		require.NoError(t, e.SetPolicy(after))
		synctest.Wait()
		now := r
		now.Cancel()
		assert.EqualValues(t, 4, e.Peek("key", 0).Remaining)
		require.NoError(t, e.SetPolicy(before))
		synctest.Wait()
		// The same word has other units now.
		require.True(t, e.Choke("key"))
		e.Refund("key", 1)
		assert.Equal(t, 6*time.Second, e.Peek("key", 0).ResetAfter)
		r.Cancel()
		s.Cancel()
		assert.EqualValues(t, 4, e.Peek("key", 0).Remaining)
		assert.EqualValues(t, 4, e.Peek("other", 0).Remaining)
	})
}

// unrelated is a policy without further interfaces.
type unrelated struct{ policy.Policy }

func TestGivingBackGoesOnAfterAPanic(t *testing.T) {
	clock := newHandClock()
	panics := true
	e := open[string](t, Config{Clock: clock.Now, Policy: &hooked{Policy: funnel(5, 1, time.Hour), cancel: func(int64) {
		if panics {
			panic("in Cancel")
		}
	}}})
	first, second := e.Reserve("key", 1, 0), e.Reserve("key", 1, 0)
	require.True(t, e.Choke("key"))
	require.Panics(t, first.Cancel)
	panics = false
	second.Cancel()
	require.EqualValues(t, 4, e.Refund("key", 1).Remaining)
	require.True(t, e.Reset("key"))
}
