package engine

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/policy"
)

// Limit is what the next call goes by: the engine's policy, the one that took its
// place, or the one that is chosen for the key.
func TestLimit(t *testing.T) {
	first, second := funnel(10, 1, time.Second), funnel(20, 1, time.Second)
	holds := func(want policy.Policy, wantOwn bool, e *Engine[string], key string) {
		t.Helper()
		p, own := e.Limit(key)
		assert.Same(t, want, p)
		assert.Equal(t, wantOwn, own)
	}
	e := open[string](t, Config{Policy: first})
	holds(first, true, e, "key")
	require.NoError(t, e.SetPolicy(second))
	holds(second, true, e, "key")
	assert.Zero(t, e.Len(), "looking opened a key")

	chosen, err := New(Config{Policy: first}, PolicyFor(func(key string) policy.Policy {
		if key == "paid" {
			return second
		}
		return nil
	}))
	require.NoError(t, err)
	defer chosen.Close()
	holds(second, false, chosen, "paid")
	holds(first, true, chosen, "free")
}
