package engine

import (
	"math"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/limits"
	"github.com/ral-limiter/ral/policy"
)

func openTiered[K comparable](t testing.TB, config Config, further ...policy.Policy) *Tiered[K] {
	t.Helper()
	tiers, err := NewTiered[K](config, further...)
	require.NoError(t, err)
	t.Cleanup(func() {
		for _, e := range tiers.Engines() {
			check(t, e)
		}
	})
	return tiers
}

// Three a second and five a minute: the first decides within a second, the second within a minute,
// and neither is charged for a call that the other refuses.
func TestRefusalOfATierChargesNoOther(t *testing.T) {
	clock := newHandClock()
	tiers := openTiered[string](t, Config{
		Policy: funnel(3, 3, time.Second), Clock: clock.Now, MaxKeys: 1, WhenFull: RefuseNew,
	}, funnel(5, 5, time.Minute))
	second, minute := tiers.Engines()[0], tiers.Engines()[1]

	for range 3 {
		require.True(t, tiers.Choke("key"))
	}
	d := tiers.Take("key", 1)
	third := time.Second/3 + 1
	assert.Equal(t, policy.Decision{Limit: 3, RetryAfter: third, ResetAfter: 36 * time.Second}, d)
	assert.EqualValues(t, 2, minute.Peek("key", 0).Remaining, "charged for what the other refused")

	clock.Advance(d.RetryAfter - 1)
	require.False(t, tiers.Choke("key"))
	clock.Advance(1)
	require.True(t, tiers.Choke("key"))
	clock.Advance(time.Second)
	d = tiers.Take("key", 1)
	assert.True(t, d.Allowed)
	assert.EqualValues(t, 0, d.Remaining, "what the minute leaves")

	d = tiers.Take("key", 1)
	assert.False(t, d.Allowed)
	assert.EqualValues(t, 2, second.Peek("key", 0).Remaining, "charged for what the other refused")
	clock.Advance(d.RetryAfter - 1)
	require.False(t, tiers.Choke("key"))
	clock.Advance(1)
	require.True(t, tiers.Choke("key"))

	for _, e := range []*Engine[string]{second, minute} {
		assert.EqualValues(t, []uint64{6, 2}, []uint64{e.Stats().Admitted, e.Stats().Refused})
	}
	for _, n := range []int64{4, -1, math.MaxInt64} {
		assert.Equal(t, policy.Never, tiers.Take("key", n).RetryAfter)
	}
	assert.EqualValues(t, 3, tiers.Refund("key", 4).Remaining)
	assert.False(t, tiers.Refund("another", -5).Allowed, "it cannot be recorded")
	assert.True(t, tiers.Reset("key"))
	assert.False(t, tiers.Reset("key"))
	assert.EqualValues(t, 5, minute.Peek("key", 0).Remaining)
	assert.True(t, TakeAll(tiers.Claims("key", 2)...).Allowed)
	assert.EqualValues(t, 1, tiers.Take("key", 0).Remaining)
}

// However calls race, no tier admits more than its limit, all are charged alike, and refused units
// go back.
//
// Promise: A `Tiered`'s limits hold together.
func TestTiersAreExact(t *testing.T) {
	const goroutines, each = 64, 300
	clock := newHandClock()
	tiers := openTiered[int](t, Config{Policy: funnel(700, 1, time.Hour), Clock: clock.Now},
		funnel(500, 1, time.Hour), funnel(600, 1, time.Hour))
	var admitted atomic.Int64
	together(goroutines, func(int) {
		for range each {
			if tiers.Take(1, 3).Allowed {
				admitted.Add(3)
			}
		}
	})
	require.EqualValues(t, 498, admitted.Load())
	for i, e := range tiers.Engines() {
		capacity := []int64{700, 500, 600}[i]
		require.Equal(t, capacity-498, e.Peek(1, 0).Remaining, "tier %d", i)
	}
}

func TestTiersRefuseBadConfiguration(t *testing.T) {
	var field *policy.FieldError
	_, err := NewTiered[string](Config{Policy: funnel(1, 1, time.Second)}, nil)
	require.ErrorAs(t, err, &field)
	assert.Equal(t, "further[0]", field.Field)
	_, err = NewTiered[string](Config{})
	require.ErrorAs(t, err, &field)
	assert.Equal(t, "Policy", field.Field)

	p := funnel(1, 1, time.Second)
	_, err = NewTiered[string](Config{Policy: p}, p, p, p, p, p, p, p, p)
	require.ErrorAs(t, err, &field)
	assert.Equal(t, "further", field.Field)
	assert.Len(t, openTiered[string](t, Config{Policy: p}, p, p, p, p, p, p, p).Engines(), maxTiers)
}

// A policy that panics for a key leaves nothing taken from the others.
func TestTogetherWithAPanic(t *testing.T) {
	// left is the number of Takes of three units until a panic.
	var left int
	// overtake runs in the Takes before it.
	var overtake func()
	e := open[string](t, Config{Policy: funnel(10, 1, time.Hour)})
	bad := open[string](t, Config{Policy: &hooked{Policy: funnel(10, 1, time.Hour), take: func(a *asked) {
		if a.n != 3 || left == 0 {
			return
		}
		if left--; left == 0 {
			panic("policy")
		}
		if overtake != nil {
			overtake()
		}
	}}})
	bad.Take("key", 1)
	e.Take("key", 1)
	settled(t, e)
	settled(t, bad)
	tiers := Tiered[string]{engines: []*Engine[string]{e, bad}}
	for _, c := range []struct {
		name string
		left int
		call func()
	}{
		{"the look", 1, func() { TakeAll(e.Claim("key", 3), bad.Claim("key", 3)) }},
		{"claims, overtaken", 2, func() { TakeAll(e.Claim("key", 3), bad.Claim("key", 3)) }},
		{"the look at tiers", 1, func() { tiers.Take("key", 3) }},
		{"tiers, overtaken", 2, func() { tiers.Take("key", 3) }},
	} {
		left, overtake = c.left, nil
		want := bad.Peek("key", 0).Remaining
		if c.left == 2 {
			// A look at a known key prepares its take, which decides again only if overtaken.
			overtake = func() { bad.Choke("key") }
			want--
		}
		assert.Panics(t, c.call, c.name)
		assert.EqualValues(t, 9, e.Peek("key", 0).Remaining, c.name)
		assert.EqualValues(t, want, bad.Peek("key", 0).Remaining, c.name)
	}
}

func TestTiersRefuseALimitOfTheCall(t *testing.T) {
	tiers := openTiered[string](t, Config{Policy: funnel(10, 1, time.Hour)}, funnel(20, 1, time.Hour))
	for _, patience := range []time.Duration{0, time.Minute} {
		g, err := tiers.Hold(t.Context(), limits.Call[string]{Key: "key", N: 1, Patience: patience, Limit: funnel(5, 1, time.Hour)})
		require.NoError(t, err)
		assert.False(t, g.Allowed)
		assert.Equal(t, policy.Never, g.RetryAfter)
		assert.Zero(t, g.Limit)
		assert.ErrorContains(t, g.Err(), "limits.AskAll")
	}
	assert.Equal(t, int64(10), tiers.Take("key", 0).Remaining)
}
