package engine_test

import (
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/engine"
	"github.com/ral-limiter/ral/policy"
)

// The types of the results are written out. The examples use the verbs.
//
// Promise: Every verb needs only packages engine and policy.
func TestEveryVerbNeedsOnlyEngineAndPolicy(t *testing.T) {
	ctx := t.Context()
	limit, other := policy.Must(policy.Funnel(10, 1, time.Second)), policy.Must(policy.Funnel(20, 1, time.Second))
	var option engine.Option[string] = engine.PolicyFor(func(string) policy.Policy { return nil })
	var full engine.WhenFull = engine.RefuseNew
	var unavailable engine.WhenUnavailable = engine.Refuse
	chosen, err := engine.New(engine.Config{Policy: limit, WhenFull: full, WhenUnavailable: unavailable}, option)
	require.NoError(t, err)
	defer chosen.Close()
	var e *engine.Engine[string]
	e, err = engine.New[string](engine.Config{Policy: limit, OnEvent: func(engine.Event) {}})
	require.NoError(t, err)

	var d policy.Decision = e.Take("a", 2)
	assert.EqualValues(t, 8, d.Remaining)
	var r engine.Reservation[string] = e.Reserve("a", 1, 0)
	r.Cancel()
	r, err = e.Acquire(ctx, "a", 3, 0)
	require.NoError(t, err)
	r.Keep(1)
	assert.EqualValues(t, 18, e.RefundWith(other, "a", 1).Remaining)
	assert.Same(t, limit, chosen.LimitFor("a"))
	var claims []engine.Claim = []engine.Claim{e.Claim("a", 1), chosen.Claim("a", 5)}
	var out engine.Outcome = engine.TakeAll(claims...)
	assert.True(t, out.Allowed)
	out.Keep(1, 2)
	assert.EqualValues(t, 8, chosen.Peek("a", 0).Remaining)
	var tiers *engine.Tiered[string]
	tiers, err = engine.NewTiered[string](engine.Config{Policy: limit}, other)
	require.NoError(t, err)
	require.NoError(t, tiers.Close())

	var s engine.Stats = e.Stats()
	assert.Equal(t, "ral", s.Name)
	require.NoError(t, e.Close())
	for _, known := range []error{
		engine.ErrNever, engine.ErrDeadline, engine.ErrCrowded, engine.ErrCancelled,
		engine.ErrUnavailable, engine.ErrUnhealthy, engine.ErrAbandoned,
	} {
		assert.NotErrorIs(t, e.Health(), known)
	}
	assert.ErrorIs(t, e.Health(), engine.ErrClosed)
}

// Promise: An engine's name is in its errors, events and `Stats`.
func TestNameIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limit := policy.Must(policy.Funnel(1, 1, time.Second))
		var mu sync.Mutex
		var events []engine.Event
		e, err := engine.New[string](engine.Config{Name: "api", Policy: limit, OnEvent: func(event engine.Event) {
			mu.Lock()
			defer mu.Unlock()
			events = append(events, event)
		}})
		require.NoError(t, err)
		plain, err := engine.New[string](engine.Config{Policy: limit})
		require.NoError(t, err)
		assert.Equal(t, "api", e.Stats().Name)
		assert.Equal(t, "ral", plain.Stats().Name)
		err = e.Wait(t.Context(), "key", 2)
		assert.ErrorIs(t, err, engine.ErrNever)
		assert.Equal(t, `engine "api": ral: the limit never allows this call: 2 of at most 1`, err.Error())
		assert.Equal(t, "ral: the limit never allows this call: 2 of at most 1", plain.Wait(t.Context(), "key", 2).Error())
		_, err = engine.AcquireAll(t.Context(), 0, plain.Claim("key", 1), e.Claim("key", 2))
		assert.ErrorIs(t, err, engine.ErrNever)
		assert.Contains(t, err.Error(), `engine "api"`)
		assert.ErrorContains(t, e.SetPolicy(nil), `engine "api": `)
		synctest.Wait()
		require.NoError(t, e.Close())
		require.NoError(t, plain.Close())
		assert.Equal(t, `engine "api": ral: the limiter is closed`, e.Health().Error())
		assert.Equal(t, engine.ErrClosed, plain.Health())

		mu.Lock()
		defer mu.Unlock()
		require.NotEmpty(t, events)
		for _, event := range events {
			assert.True(t, strings.HasPrefix(event.String(), "api/"), event)
		}
	})
}
