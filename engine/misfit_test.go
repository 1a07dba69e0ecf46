package engine

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/policy"
)

// A limit of another family refuses every call by every verb. Each of them is counted
// once, the decision has no limit, and the first is reported, once.
func TestMisfitsAreCountedAndReported(t *testing.T) {
	fixed := policy.Must(policy.FixedWindow(5, time.Minute))
	var reported []policy.Policy
	config := Config{Policy: funnel(10, 1, time.Second), OnMisfit: func(p policy.Policy) { reported = append(reported, p) }}
	e, err := New(config, PolicyFor(func(key string) policy.Policy {
		if key == "misfit" {
			return fixed
		}
		return nil
	}))
	require.NoError(t, err)
	t.Cleanup(func() { check(t, e) })
	require.True(t, e.Choke("good"))
	require.True(t, e.TakeWith(funnel(3, 1, time.Second), "good", 1).Allowed)
	assert.Empty(t, reported)

	never := policy.Decision{RetryAfter: policy.Never}
	ctx := context.Background()
	for i, call := range []func() policy.Decision{
		func() policy.Decision { return policy.Decision{Allowed: e.Choke("misfit"), RetryAfter: policy.Never} },
		func() policy.Decision { return e.Take("misfit", 1) },
		func() policy.Decision { return e.TakeWith(fixed, "good", 1) },
		func() policy.Decision { return e.Reserve("misfit", 1, time.Hour).Decision },
		func() policy.Decision {
			assert.ErrorIs(t, e.Wait(ctx, "misfit", 1), ErrNever)
			return never
		},
		func() policy.Decision {
			r, err := e.Acquire(ctx, "misfit", 1, time.Hour)
			assert.ErrorIs(t, err, ErrNever)
			return r.Decision
		},
		func() policy.Decision { return TakeAll(e.Claim("misfit", 1)).Decisions[0] },
		func() policy.Decision {
			o, err := AcquireAll(ctx, time.Hour, e.Claim("misfit", 1))
			assert.ErrorIs(t, err, ErrNever)
			return o.Decisions[0]
		},
	} {
		assert.Equal(t, never, call(), "call %d", i)
		s := e.Stats()
		assert.EqualValues(t, i+1, s.Misfits, "call %d", i)
		assert.EqualValues(t, i+1, s.Refused, "call %d", i)
	}
	assert.Equal(t, never, e.Peek("misfit"))
	assert.EqualValues(t, 8, e.Stats().Misfits, "a look is not counted")
	assert.Equal(t, []policy.Policy{fixed}, reported)

	// More than the limit is another refusal for good.
	d := e.Take("good", 11)
	assert.Equal(t, policy.Never, d.RetryAfter)
	assert.EqualValues(t, 10, d.Limit)
	assert.EqualValues(t, 8, e.Stats().Misfits)
	assert.False(t, errors.Is(e.Health(), ErrUnhealthy))
}
