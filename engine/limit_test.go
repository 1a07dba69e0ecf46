package engine

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/policy"
)

// LimitFor is what the next call goes by: the engine's policy, the one that took its
// place, or the one that is chosen for the key. Limit is the engine's own.
func TestLimit(t *testing.T) {
	first, second := funnel(10, 1, time.Second), funnel(20, 1, time.Second)
	holds := func(want, own policy.Policy, e *Engine[string], key string) {
		t.Helper()
		assert.Same(t, want, e.LimitFor(key))
		assert.Same(t, own, e.Limit())
	}
	e := open[string](t, Config{Policy: first})
	holds(first, first, e, "key")
	require.NoError(t, e.SetPolicy(second))
	holds(second, second, e, "key")
	assert.Zero(t, e.Len(), "looking opened a key")

	chosen, err := New(Config{Policy: first}, PolicyFor(func(key string) policy.Policy {
		if key == "paid" {
			return second
		}
		return nil
	}))
	require.NoError(t, err)
	defer chosen.Close()
	holds(second, first, chosen, "paid")
	holds(first, first, chosen, "free")
}
