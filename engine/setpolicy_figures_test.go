package engine

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/policy"
)

// limited returns an engine under the limit, and its clock, at an instant.
func limited(t *testing.T, limit policy.Policy, at time.Duration) (*Engine[string], *handClock) {
	t.Helper()
	clock := newHandClock()
	e := open[string](t, Config{Policy: limit, Clock: clock.Now})
	clock.Advance(at)
	return e, clock
}

func sliding(limit int64, per time.Duration) policy.Policy {
	return policy.Must(policy.SlidingWindow(limit, per))
}

// A sliding window whose period is changed and changed back keeps the turns that it
// promised, however often, and hands them out no second time. The longer period may put
// the next turn off, by less than itself.
func TestChangedPeriodKeepsPromisedTurns(t *testing.T) {
	const s = time.Second
	e, _ := limited(t, sliding(10, s), 100*s+500*time.Millisecond)
	require.True(t, e.Take("k", 10).Allowed)
	first := e.Reserve("k", 10, time.Minute)
	require.True(t, first.Allowed)
	require.Equal(t, 1499999998*time.Nanosecond, first.Wait)
	last := first.Wait
	for range 3 {
		require.NoError(t, e.SetPolicy(sliding(10, 2*s)))
		require.NoError(t, e.SetPolicy(sliding(10, s)))
		next := e.Reserve("k", 10, time.Minute)
		require.True(t, next.Allowed)
		require.GreaterOrEqual(t, next.Wait, last+s, "the next ten have their turn a window after the last ten")
		require.Less(t, next.Wait, last+3*s)
		last = next.Wait
	}
}

// Nor does a limit of the same period that is raised and lowered again.
func TestRaisedLimitKeepsPromisedTurns(t *testing.T) {
	const s = time.Second
	e, _ := limited(t, sliding(10, s), 100*s+500*time.Millisecond)
	require.True(t, e.Take("k", 10).Allowed)
	late := e.Reserve("k", 10, time.Minute)
	require.True(t, late.Allowed)
	require.NoError(t, e.SetPolicy(sliding(100, s)))
	require.NoError(t, e.SetPolicy(sliding(100, 2*s)))
	require.NoError(t, e.SetPolicy(sliding(10, s)))
	assert.GreaterOrEqual(t, e.Reserve("k", 10, time.Minute).Wait, late.Wait+s)
}

// Units above a lowered limit are no promised turns: they are counted by the next limit
// as what they are.
func TestLoweredLimitPromisedNothing(t *testing.T) {
	const s, ms = time.Second, time.Millisecond
	e, _ := limited(t, sliding(10, s), 100*s+100*ms)
	require.True(t, e.Take("k", 5).Allowed)
	require.NoError(t, e.SetPolicy(sliding(3, s)))
	assert.EqualValues(t, 0, e.Peek("k").Remaining)
	require.NoError(t, e.SetPolicy(sliding(6, 600*ms)))
	assert.EqualValues(t, 1, e.Peek("k").Remaining)
	d := e.Take("k", 2)
	require.False(t, d.Allowed)
	assert.LessOrEqual(t, d.RetryAfter, 600*ms)
}

// A sliding window that is lowered and keeps its period counts what was taken before it,
// also above the limit, so that raising it again forgives nothing. That may lock a key
// out for longer than the new limit alone, but not past the end of the window after.
func TestLoweredSlidingWindowCountsAll(t *testing.T) {
	const s = time.Second
	e, clock := limited(t, sliding(100, 10*s), 100*s-1) // of the clock's instant 1
	require.True(t, e.Take("k", 100).Allowed)
	require.NoError(t, e.SetPolicy(sliding(2, 10*s)))
	d := e.Take("k", 1)
	require.False(t, d.Allowed)
	assert.Equal(t, 19*s+900*time.Millisecond-1, d.RetryAfter)
	assert.Equal(t, 20*s-1, d.ResetAfter)
	require.NoError(t, e.SetPolicy(sliding(100, 10*s)))
	assert.EqualValues(t, 0, e.Peek("k").Remaining)
	require.NoError(t, e.SetPolicy(sliding(2, 10*s)))
	clock.Advance(d.ResetAfter)
	assert.True(t, e.Take("k", 2).Allowed)
}

// What a store lacks counts in full, also while it fills up for the first time.
func TestBurstyChangedBackForgivesNothing(t *testing.T) {
	const s = time.Second
	fast, slow := policy.Must(policy.Bursty(10, s, 3)), policy.Must(policy.Bursty(1, time.Minute, 3))
	e, _ := limited(t, fast, 96*s)
	require.True(t, e.Take("k", 3).Allowed)
	require.Equal(t, 300*time.Millisecond, e.Peek("k").ResetAfter)
	require.NoError(t, e.SetPolicy(slow))
	require.NoError(t, e.SetPolicy(fast))
	assert.Equal(t, 300*time.Millisecond, e.Peek("k").ResetAfter)
}

// A funnel hands promised turns out no second time either, though by way of a faster and
// larger one, which has room for all of them.
func TestFunnelChangedBackKeepsPromisedTurns(t *testing.T) {
	const s = time.Second
	slow := funnel(10, 10, s)
	e, _ := limited(t, slow, 100*s)
	require.True(t, e.Take("k", 10).Allowed)
	require.Equal(t, 60*s, e.Reserve("k", 10, time.Minute).Wait+59*s) // a second for ten
	for range 59 {
		require.True(t, e.Reserve("k", 10, time.Minute).Allowed)
	}
	require.NoError(t, e.SetPolicy(funnel(1_000_000, 1000, s)))
	require.NoError(t, e.SetPolicy(slow))
	assert.Equal(t, 61*s, e.Reserve("k", 10, time.Hour).Wait)
}

// If all units of a fixed window were given back and the clock goes back, the key says
// that it is reset when the window ends in which the next take is counted.
func TestEmptyFixedWindowIsResetWhenItEnds(t *testing.T) {
	const s = time.Second
	e, clock := limited(t, policy.Must(policy.FixedWindow(5, s)), 100*s)
	require.True(t, e.Take("k", 5).Allowed)
	e.Refund("k", 5)
	assert.Zero(t, e.Peek("k").ResetAfter, "at its own time it was never opened")
	clock.Advance(-50 * s)
	before := e.Peek("k")
	assert.EqualValues(t, 5, before.Remaining)
	after := e.Take("k", 1)
	require.True(t, after.Allowed)
	assert.Equal(t, 51*s, after.ResetAfter)
	assert.Equal(t, after.ResetAfter, before.ResetAfter)
}
