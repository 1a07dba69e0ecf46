package engine

import (
	"context"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/policy"
)

var background = context.Background()

// A call whose context has ended takes nothing, and learns the state of all claims.
func TestAcquireAllWhenTheContextIsOver(t *testing.T) {
	ended, cancel := context.WithCancel(background)
	cancel()
	clock := newHandClock()
	config := Config{Policy: funnel(3, 1, time.Second), Clock: clock.Now}
	a, b, c := open[string](t, config), open[string](t, config), open[string](t, config)
	require.True(t, a.Take("used", 1).Allowed)
	require.True(t, b.Take("empty", 3).Allowed)
	for _, refused := range []struct {
		n        int64
		claims   []Claim
		binding  int
		retry    time.Duration
		refusing int
	}{
		{1, []Claim{a.Claim("used", 1), b.Claim("new", 1), a.Claim("new", 1)}, 0, 1, 1},
		{0, []Claim{a.Claim("used", 1), b.Claim("empty", 1)}, 0, 1, 0},
		{1, []Claim{a.Claim("used", 1), b.Claim("empty", 1)}, 1, time.Second, 1},
		{2, []Claim{a.Claim("used", 1), b.Claim("empty", 1), a.Claim("used", 1)}, 0, policy.Never, 2},
		{-1, []Claim{a.Claim("used", 1), b.Claim("empty", 1)}, 0, policy.Never, 2},
		{1, nil, -1, 0, 0},
	} {
		before := a.Stats().Refused + b.Stats().Refused
		out, err := AcquireAll(ended, time.Hour, units(refused.n, refused.claims...)...)
		assert.ErrorIs(t, err, ErrCancelled)
		assert.Equal(t, refused.binding, out.Binding, "%+v: another claim decided", refused)
		assert.Equal(t, refused.retry, out.RetryAfter, "%+v: RetryAfter is not that of the deciding claim", refused)
		assert.False(t, out.Allowed)
		require.Len(t, out.Decisions, len(refused.claims))
		for i, claim := range refused.claims {
			d := TakeAll(units(0, claim)...).Decisions[0]
			assert.Equal(t, d.Remaining, out.Decisions[i].Remaining)
			assert.Equal(t, d.ResetAfter, out.Decisions[i].ResetAfter)
			assert.Equal(t, out.Decisions[i].Allowed, out.Decisions[i].RetryAfter == 0)
		}
		assert.EqualValues(t, refused.refusing, a.Stats().Refused+b.Stats().Refused-before, "%+v: another number of refusals was counted", refused)
		out.Keep(0)
	}
	assert.Equal(t, 2, a.Len()+b.Len())

	// A closed engine is also reported to a call for 0 units.
	require.NoError(t, c.Close())
	for _, n := range []int64{0, 1} {
		_, err := AcquireAll(background, time.Hour, a.Claim("used", n), c.Claim("key", n))
		assert.ErrorIs(t, err, ErrClosed)
	}
}

// A key that could not be recorded passed, and is refused when another limit had no room and its
// own was changed. The key's word is then known.
func TestTakeAllCountsTheFinalRefusal(t *testing.T) {
	chosen := funnel(5, 1, time.Second)
	odd := openFor(t, Config{Policy: chosen}, func(float64) policy.Policy { return chosen })
	takes := 0
	other := open[string](t, Config{Policy: &hooked{Policy: chosen, took: func(a *asked) {
		// The limit has no room from the second take on.
		if takes++; takes >= 2 {
			chosen = funnel(1, 1, time.Second)
			a.next, a.d = a.word, policy.Decision{Limit: 5, RetryAfter: time.Second}
		}
	}}})
	out := TakeAll(odd.Claim(math.NaN(), 2), other.Claim("key", 2))
	assert.False(t, out.Allowed)
	assert.Equal(t, policy.Never, out.Decisions[0].RetryAfter)
	assert.Equal(t, time.Second, out.Decisions[1].RetryAfter)
	s := odd.Stats()
	assert.EqualValues(t, []uint64{0, 1, 0}, []uint64{s.Admitted, s.Refused, s.Unavailable})
	assert.EqualValues(t, 1, other.Stats().Refused)
}

// Promise: `Outcome.Keep` returns each claim's unused units, `Cancel` all.
func TestOutcomeKeepReturnsUnusedUnits(t *testing.T) {
	clock := newHandClock()
	a := open[string](t, Config{Policy: funnel(10, 1, time.Second), Clock: clock.Now})
	b := open[int](t, Config{Policy: policy.Must(policy.FixedWindow(10, time.Minute)), Clock: clock.Now})
	remaining := func() [3]int64 {
		return [3]int64{a.Peek("x", 0).Remaining, a.Peek("y", 0).Remaining, b.Peek(1, 0).Remaining}
	}
	for _, keep := range []struct {
		used []int64
		want [3]int64
	}{
		{[]int64{1, 1, 1, 1}, [3]int64{8, 9, 9}},
		{[]int64{1, 2, 0, 3}, [3]int64{9, 7, 8}},
		// A number below 0 is 0, and one above the claim's own units is those.
		{[]int64{-1, 100, 1, math.MinInt64}, [3]int64{9, 10, 6}},
		// A claim does not give back another claim's units on its key.
		{[]int64{100, 0, 0, 0}, [3]int64{7, 10, 10}},
		// Claims without a number keep all.
		{nil, [3]int64{5, 7, 6}},
		{[]int64{0, 0}, [3]int64{8, 7, 10}},
		// Numbers beyond the claims are ignored.
		{[]int64{0, 0, 0, 0, 7, 8}, [3]int64{10, 10, 10}},
	} {
		a.Reset("x")
		a.Reset("y")
		b.Reset(1)
		out := TakeAll(a.Claim("x", 3), b.Claim(1, 4), a.Claim("x", 2), a.Claim("y", 3), b.Claim(1, 0))
		require.True(t, out.Allowed)
		require.Equal(t, [3]int64{5, 7, 6}, remaining())
		out.Keep(keep.used...)
		// Only the first Keep counts.
		out.Keep(0, 0, 0, 0)
		out.Cancel()
		assert.Equal(t, keep.want, remaining(), "%v", keep.used)
	}
	out := TakeAll(a.Claim("x", 3), b.Claim(1, 4), a.Claim("x", 2), a.Claim("y", 3))
	out.Cancel()
	out.Keep()
	assert.Equal(t, [3]int64{10, 10, 10}, remaining())

	// To the window that they were taken from, or nowhere.
	out = TakeAll(a.Claim("x", 5), b.Claim(1, 5))
	require.True(t, out.Allowed)
	clock.Advance(time.Hour)
	require.True(t, TakeAll(a.Claim("x", 6), b.Claim(1, 6)).Allowed)
	out.Cancel()
	assert.EqualValues(t, []int64{4, 4}, []int64{a.Peek("x", 0).Remaining, b.Peek(1, 0).Remaining})

	refused := TakeAll(a.Claim("x", 11))
	refused.Keep(0)
	var nothing Outcome
	nothing.Keep(0)
	assert.EqualValues(t, 4, a.Peek("x", 0).Remaining)
}

// Calls on known keys allocate at most the decisions, others also a reservation for each key and their
// slice.
func TestTakeAllAllocatesOnlyItsOutcome(t *testing.T) {
	a, b := open[string](t, Config{Policy: funnel(1_000_000, 1, time.Second)}), open[int](t, Config{Policy: funnel(1_000_000, 1, time.Second)})
	claims := []Claim{a.Claim("key", 1), b.Claim(1, 1)}
	require.True(t, TakeAll(claims...).Allowed)
	assert.Zero(t, testing.AllocsPerRun(1000, func() { claims[0], claims[1] = a.Claim("key", 1), b.Claim(1, 1) }))
	settled(t, a)
	settled(t, b)
	tooMany := units(2_000_000, claims...)
	assert.Zero(t, testing.AllocsPerRun(1000, func() { TakeAll(claims...) }))
	assert.Zero(t, testing.AllocsPerRun(1000, func() { TakeAll(tooMany...) }))
	assert.LessOrEqual(t, testing.AllocsPerRun(1000, func() { lastOutcome = TakeAll(claims...) }), 1.0)
	assert.LessOrEqual(t, testing.AllocsPerRun(1000, func() { _, _ = AcquireAll(background, time.Second, claims...) }), 4.0)
}

var lastOutcome Outcome
