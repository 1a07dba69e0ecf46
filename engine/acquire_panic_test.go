package engine

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/policy"
)

// PolicyFor panics when AcquireAll looks at the key that it has waited for.
func TestAcquireAllThatPanicsHoldsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		var healed atomic.Bool
		e, err := New(Config{Policy: funnel(1, 1, time.Second)}, PolicyFor(func(string) policy.Policy {
			if !healed.Load() && time.Since(began) >= time.Second {
				panic("choose")
			}
			return nil
		}))
		require.NoError(t, err)
		defer check(t, e)
		other := open[string](t, Config{Policy: funnel(10, 1, time.Hour)})
		require.True(t, e.Choke("key"))
		assert.PanicsWithValue(t, "choose", func() {
			_, _ = AcquireAll(context.Background(), time.Minute, other.Claim("key", 4), e.Claim("key", 1))
		})
		healed.Store(true)
		assert.EqualValues(t, time.Second, time.Since(began), "it has waited for its turn")
		assert.EqualValues(t, 1, e.Peek("key", 0).Remaining)
		assert.EqualValues(t, 10, other.Peek("key", 0).Remaining)
	})
}
