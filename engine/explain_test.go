package engine

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/limits"
	"github.com/ral-limiter/ral/policy"
)

func TestExplainAKey(t *testing.T) {
	clock := newHandClock()
	misfit := policy.Must(policy.FixedWindow(1, time.Hour))
	e, err := New(Config{Name: "api", Policy: funnel(10, 1, time.Second), Clock: clock.Now}, PolicyFor(func(key string) policy.Policy {
		return map[string]policy.Policy{"large": funnel(100, 1, time.Second), "misfit": misfit}[key]
	}))
	require.NoError(t, err)
	t.Cleanup(func() { check(t, e) })
	e.Take("own", 10)
	e.Take("large", 40)
	before, stats := e.Len(), e.Stats()

	x := e.Explain("own")
	assert.Equal(t, []any{"api", true, int64(10), int64(10), false, time.Second}, []any{x.Name, x.Known, x.Used, x.Of, x.Allowed, x.RetryAfter})
	require.Len(t, x.Returns, 10)
	assert.Equal(t, 10*time.Second, x.Returns[9].After)
	x = e.Explain("large")
	assert.Equal(t, []any{true, int64(40), int64(100), true}, []any{x.Known, x.Used, x.Of, x.Allowed})
	x = e.Explain("never used")
	assert.Equal(t, []any{false, int64(0), int64(10), true}, []any{x.Known, x.Used, x.Of, x.Allowed})
	assert.Empty(t, x.Returns)
	x = e.Explain("misfit")
	assert.Equal(t, []any{misfit, false, policy.Never}, []any{x.Limit, x.Allowed, x.RetryAfter})
	assert.Contains(t, x.String(), "Every call is refused.")

	require.NoError(t, e.Block("own", time.Minute))
	x = e.Explain("own")
	assert.Equal(t, []any{time.Minute, false, time.Minute, int64(0)}, []any{x.Blocked, x.Allowed, x.RetryAfter, x.Remaining})
	assert.Equal(t, []limits.Return{{After: time.Minute, Remaining: 10}}, x.Returns, "the limit goes on")
	require.NoError(t, e.Block("misfit", time.Minute))
	x = e.Explain("misfit")
	assert.Equal(t, []any{time.Minute, policy.Never}, []any{x.Blocked, x.RetryAfter})
	e.Reset("own")
	assert.True(t, e.Explain("own").Allowed)

	assert.Equal(t, before, e.Len(), "it opens no key")
	assert.Equal(t, stats.Admitted+stats.Refused, e.Stats().Admitted+e.Stats().Refused, "and counts nothing")
}

// A promise of Explain is that it agrees with the call that comes next.
func TestExplanationAgreesWithTheNextCall(t *testing.T) {
	clock := newHandClock()
	for _, limit := range []policy.Policy{funnel(5, 1, time.Second), policy.Must(policy.SlidingWindow(5, time.Second)), policy.Must(policy.Queue(2, 1, time.Second))} {
		e := open[string](t, Config{Policy: limit, Clock: clock.Now})
		for range 50 {
			x := e.Explain("a")
			d := e.Take("a", 1)
			assert.Equal(t, []any{d.Allowed, d.Wait, d.RetryAfter}, []any{x.Allowed, x.Wait, x.RetryAfter})
			clock.Advance(230 * time.Millisecond)
		}
	}
}

func TestExplainSaysHowManyCallsWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := open[string](t, Config{Policy: funnel(1, 1, time.Second)})
		require.True(t, e.Choke("a"))
		var calls sync.WaitGroup
		for range 3 {
			calls.Go(func() { assert.NoError(t, e.Wait(context.Background(), "a", 1)) })
		}
		synctest.Wait()
		assert.Equal(t, 3, e.Explain("a").Waiting)
		assert.Zero(t, e.Explain("b").Waiting)
		time.Sleep(1500 * time.Millisecond)
		synctest.Wait()
		assert.Equal(t, 2, e.Explain("a").Waiting)
		calls.Wait()
		assert.Zero(t, e.Explain("a").Waiting)
	})
}

func TestExplainSaysWhichLimitBinds(t *testing.T) {
	clock := newHandClock()
	tiered, err := NewTiered[string](Config{Policy: funnel(10, 1, time.Second), Clock: clock.Now},
		policy.Must(policy.FixedWindow(15, time.Hour)))
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, tiered.Close()) })
	x := tiered.Explain("a")
	assert.Equal(t, []any{true, false}, []any{x.Allowed, x.Known})
	require.Len(t, x.Each, 2)
	assert.Equal(t, []string{"ral", "ral.2"}, []string{x.Each[0].Name, x.Each[1].Name}, "as in metrics")
	tiered.Take("a", 8)
	x = tiered.Explain("a")
	assert.Equal(t, []any{true, 0, int64(2)}, []any{x.Allowed, x.Binding, x.Remaining}, "2 of 10 are less than 7 of 15")
	clock.Advance(8 * time.Second)
	tiered.Take("a", 7)
	x = tiered.Explain("a")
	assert.Equal(t, []any{false, 1, true}, []any{x.Allowed, x.Binding, x.Each[0].Allowed}, "the window is full")
	assert.Equal(t, x.Each[1].RetryAfter, x.RetryAfter)
	assert.Contains(t, x.String(), "Limit 2 decides.")

	d := tiered.Take("a", 1)
	assert.Equal(t, []any{d.Allowed, d.RetryAfter}, []any{x.Allowed, x.RetryAfter})
	var none Tiered[string]
	assert.True(t, none.Explain("a").Allowed, "no limit refuses nothing")
}

func TestExplainClaims(t *testing.T) {
	clock := newHandClock()
	users := open[string](t, Config{Name: "users", Policy: funnel(10, 1, time.Second), Clock: clock.Now})
	tokens := open[int](t, Config{Name: "tokens", Policy: funnel(5000, 1, time.Second), Clock: clock.Now})
	users.Take("u", 9)
	tokens.Take(7, 100)
	x := ExplainClaims(users.Claim("u", 1), tokens.Claim(7, 5000))
	assert.Equal(t, []any{false, 1, 100 * time.Second}, []any{x.Allowed, x.Binding, x.RetryAfter}, "5,000 tokens are too many")
	assert.Equal(t, []string{"users", "tokens"}, []string{x.Each[0].Name, x.Each[1].Name})
	x = ExplainClaims(users.Claim("u", 1), tokens.Claim(7, 1))
	assert.Equal(t, []any{true, 0}, []any{x.Allowed, x.Binding}, "the user has the least left")
	x = ExplainClaims(users.Claim("u", 1), Claim{})
	assert.Equal(t, []any{false, 1, policy.Never}, []any{x.Allowed, x.Binding, x.RetryAfter})
}
