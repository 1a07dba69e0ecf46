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

// Promise: Explaining a key changes and counts nothing.
func TestExplainChangesAndCountsNothing(t *testing.T) {
	clock := newHandClock()
	misfit := policy.Must(policy.FixedWindow(1, time.Hour))
	e := openFor(t, Config{Name: "api", Policy: funnel(10, 1, time.Second), Clock: clock.Now}, func(key string) policy.Policy {
		return map[string]policy.Policy{"large": funnel(100, 1, time.Second), "misfit": misfit}[key]
	})
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
	assert.Equal(t, []limits.Return{{After: time.Minute, Remaining: 10}}, x.Returns, "the returns must be those of the limit")
	require.NoError(t, e.Block("misfit", time.Minute))
	x = e.Explain("misfit")
	assert.Equal(t, []any{time.Minute, policy.Never}, []any{x.Blocked, x.RetryAfter})
	e.Reset("own")
	assert.True(t, e.Explain("own").Allowed)

	assert.Equal(t, before, e.Len(), "an explanation opened a key")
	assert.Equal(t, stats.Admitted+stats.Refused, e.Stats().Admitted+e.Stats().Refused, "an explanation was counted as a call")
}

// Promise: Explanations agree with the next call.
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

// Promise: A call's own limit is explained as `TakeWith` decides by it.
func TestExplainWithAgreesWithTakeWith(t *testing.T) {
	clock := newHandClock()
	e := open[string](t, Config{Policy: funnel(5, 1, time.Second), Clock: clock.Now})
	large := funnel(50, 1, time.Second)
	e.TakeWith(large, "a", 40)
	x := e.ExplainWith(large, "a")
	assert.Equal(t, []any{large, int64(40), int64(50), int64(10), true}, []any{x.Limit, x.Used, x.Of, x.Remaining, x.Allowed})
	assert.Equal(t, e.Explain("a"), e.ExplainWith(nil, "a"))
	for range 100 {
		for _, limit := range []policy.Policy{large, nil, funnel(7, 2, time.Second)} {
			x := e.ExplainWith(limit, "a")
			d := e.TakeWith(limit, "a", 1)
			require.Equal(t, []any{d.Allowed, d.Wait, d.RetryAfter}, []any{x.Allowed, x.Wait, x.RetryAfter}, "%v", limit)
		}
		clock.Advance(630 * time.Millisecond)
	}
	misfit := policy.Must(policy.FixedWindow(1, time.Hour))
	x = e.ExplainWith(misfit, "a")
	assert.Equal(t, []any{misfit, false, policy.Never}, []any{x.Limit, x.Allowed, x.RetryAfter})
}

// Explain says how long a call that comes now waits behind the others.
func TestExplainCountsTheCallsThatWait(t *testing.T) {
	for _, limit := range []policy.Policy{funnel(2, 1, time.Second), policy.Must(policy.SlidingWindow(2, time.Second)), policy.Must(policy.FixedWindow(2, time.Second))} {
		synctest.Test(t, func(t *testing.T) {
			e := open[string](t, Config{Policy: limit})
			for e.Take("a", 1).Allowed {
			}
			var calls sync.WaitGroup
			defer calls.Wait()
			for range 4 {
				calls.Go(func() { assert.NoError(t, e.Wait(context.Background(), "a", 1)) })
				synctest.Wait()
			}
			x := e.Explain("a")
			assert.Equal(t, []int{4, 0}, []int{x.Waiting, e.Explain("b").Waiting})
			assert.Equal(t, x.RetryAfter, ExplainClaims(e.Claim("a", 1), e.Claim("b", 1)).RetryAfter)
			r, err := e.Acquire(t.Context(), "a", 1, time.Hour)
			assert.NoError(t, err)
			assert.Equal(t, r.Waited, x.RetryAfter, "under %v", limit)
		})
	}
}

func TestExplainClaimsNamesTheBindingKey(t *testing.T) {
	clock := newHandClock()
	users := open[string](t, Config{Name: "users", Policy: funnel(10, 1, time.Second), Clock: clock.Now})
	tokens := open[int](t, Config{Name: "tokens", Policy: funnel(5000, 1, time.Second), Clock: clock.Now})
	users.Take("u", 9)
	tokens.Take(7, 100)
	x := ExplainClaims(users.Claim("u", 1), tokens.Claim(7, 5000))
	assert.Equal(t, []any{false, 1, 100 * time.Second}, []any{x.Allowed, x.Binding, x.RetryAfter}, "5,000 tokens must be refused as too many")
	assert.Equal(t, []string{"users", "tokens"}, []string{x.Each[0].Name, x.Each[1].Name})
	x = ExplainClaims(users.Claim("u", 1), tokens.Claim(7, 1))
	assert.Equal(t, []any{true, 0}, []any{x.Allowed, x.Binding}, "the user's limit must decide, as it has the least left")
	x = ExplainClaims(users.Claim("u", 1), Claim{})
	assert.Equal(t, []any{false, 1, policy.Never}, []any{x.Allowed, x.Binding, x.RetryAfter})
}

// Limits that delay calls refuse them here.
func TestExplanationOfSeveralLimitsAgreesWithTheNextCall(t *testing.T) {
	queue, short := policy.Must(policy.Queue(10, 1, time.Second)), policy.Must(policy.Queue(1, 1, time.Second))
	for name, all := range map[string][]policy.Policy{
		"a queue alone":        {queue},
		"a short queue alone":  {short},
		"a queue and a funnel": {queue, funnel(10, 1, time.Second)},
		"a funnel and queues":  {funnel(3, 1, time.Second), short, queue},
	} {
		t.Run(name, func(t *testing.T) {
			clock := newHandClock()
			tiered := openTiered[string](t, Config{Policy: all[0], Clock: clock.Now}, all[1:]...)
			if len(all) == 2 {
				x := tiered.Explain("never used")
				assert.Equal(t, []any{true, false, "ral", "ral.2"}, []any{x.Allowed, x.Known, x.Each[0].Name, x.Each[1].Name})
			}
			claims := make([]Claim, len(all))
			for i, e := range tiered.Engines() {
				claims[i] = e.Claim("claimed", 1)
			}
			refused := 0
			for i := range 60 {
				// The queue of one engine alone delays such calls.
				if i%4 == 0 {
					for range i % 5 {
						tiered.Engines()[0].Take("a", 1)
						tiered.Engines()[0].Take("claimed", 1)
					}
				}
				x, y := tiered.Explain("a"), ExplainClaims(claims...)
				d, out := tiered.Take("a", 1), TakeAll(claims...)
				assert.Equal(t, []any{d.Allowed, d.Wait, d.RetryAfter, d.Remaining}, []any{x.Allowed, x.Wait, x.RetryAfter, d.Remaining}, "call %d", i)
				assert.Equal(t, []any{out.Allowed, out.RetryAfter}, []any{y.Allowed, y.RetryAfter}, "claims %d", i)
				if !out.Allowed {
					refused++
					assert.Equal(t, out.Binding, y.Binding, "claims %d", i)
				}
				clock.Advance(230 * time.Millisecond)
			}
			assert.Positive(t, refused)
			var none Tiered[string]
			assert.True(t, none.Explain("a").Allowed, "an engine without limits must refuse nothing")
		})
	}
}
