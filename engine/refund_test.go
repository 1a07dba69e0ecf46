package engine

import (
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/policy"
)

// Promise: `Refund` returns only units that count, and charges beyond the limit.
func TestRefundReturnsOnlyCountedUnits(t *testing.T) {
	clock := newHandClock()
	e := open[string](t, Config{Policy: funnel(10, 1, time.Second), Clock: clock.Now})
	stands := func(d policy.Decision, remaining int64, owes time.Duration) {
		t.Helper()
		assert.Equal(t, policy.Decision{Allowed: true, Limit: 10, Remaining: remaining, ResetAfter: owes}, d)
		assert.Equal(t, d, e.Peek("key", 0))
	}
	stands(e.Refund("key", 5), 10, 0)
	stands(e.Refund("key", 0), 10, 0)
	assert.Zero(t, e.Len(), "a refund must not open a key that has nothing to get back")

	// The reservation is exact in either mode.
	r := e.Reserve("key", 8, 0)
	require.True(t, r.Allowed)
	stands(e.Refund("key", 3), 5, 5*time.Second)
	clock.Advance(2500 * time.Millisecond)
	stands(e.Refund("key", 1), 8, 1500*time.Millisecond)
	stands(e.Refund("key", math.MaxInt64), 10, 0)
	stands(e.Refund("key", 1), 10, 0)

	// More than there is: a debt.
	stands(e.Refund("key", -12), 0, 12*time.Second)
	d := e.Take("key", 1)
	assert.Equal(t, policy.Decision{Limit: 10, RetryAfter: 3 * time.Second, ResetAfter: 12 * time.Second}, d)
	stands(e.Refund("key", 3), 1, 9*time.Second)
	clock.Advance(time.Hour)
	stands(e.Refund("key", -1), 9, time.Second)

	// The most that a call may charge.
	stands(e.Refund("key", -2_678_400), 0, 31*24*time.Hour+time.Second)
	stands(e.Refund("key", math.MaxInt64), 10, 0)

	assert.EqualValues(t, 15*time.Second, e.Refund("new", -15).ResetAfter)
	assert.False(t, e.Choke("new"))
	assert.Equal(t, 2, e.Len())
	s := e.Stats()
	assert.EqualValues(t, 1, s.Admitted)
	assert.EqualValues(t, 2, s.Refused, "the refused calls must be counted, and no refund")
}

// Promise: A refund that cannot be recorded says so.
func TestRefundThatCannotBeRecorded(t *testing.T) {
	for _, when := range []WhenUnavailable{Admit, Refuse} {
		synctest.Test(t, func(t *testing.T) {
			config := Config{Policy: funnel(5, 1, time.Hour), WhenUnavailable: when}
			full := config
			full.MaxKeys, full.WhenFull = 1, AdmitNew
			crowded := open[any](t, full)
			require.True(t, crowded.Choke("only"))
			closed := open[any](t, config)
			require.NoError(t, closed.Close())
			degraded := failing(t, config, func(e *Engine[any]) { require.True(t, e.Choke("known")) })
			bare := config
			bare.Policy = unrelated{config.Policy}
			without := open[any](t, bare)
			require.True(t, without.Choke("known"))
			synctest.Wait()
			begin := time.Now()
			for _, c := range []struct {
				e    *Engine[any]
				key  any
				back bool
			}{
				{crowded, "new", true},
				{closed, "new", true},
				{degraded, "new", true},
				{open[any](t, config), []int{}, true},
				{open[any](t, config), math.NaN(), true},
				{without, "new", false},
				{without, "known", false},
			} {
				before := c.e.Stats()
				assert.Equal(t, c.back, c.e.Refund(c.key, 1).Allowed, "%v", c.key)
				d := c.e.Refund(c.key, -1)
				assert.False(t, d.Allowed, "%v", c.key)
				assert.Positive(t, d.RetryAfter)
				assert.Equal(t, before, c.e.Stats())
			}
			assert.True(t, degraded.Refund("known", -2).Allowed)
			assert.EqualValues(t, 2, degraded.Peek("known", 0).Remaining)
			assert.EqualValues(t, 4, without.Peek("known", 0).Remaining)
			assert.Equal(t, begin, time.Now())
		})
	}
}
