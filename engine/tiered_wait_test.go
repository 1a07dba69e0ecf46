package engine

import (
	"context"
	"math"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/policy"
)

// Promise: A failed wait of a `Tiered` takes nothing from any limit.
func TestFailedWaitOfTiersTakesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tiers := openTiered[string](t, Config{Policy: funnel(9, 1, time.Second)}, policy.Must(policy.FixedWindow(5, time.Minute)))
		assert.ErrorIs(t, tiers.Wait(background, "key", 6), ErrNever, "more than the second limit allows at once")
		assert.NoError(t, tiers.Wait(background, "key", 0))

		out, err := tiers.Acquire(background, "key", 5, 0)
		require.NoError(t, err)
		require.Len(t, out.Decisions, 2)
		assert.EqualValues(t, []int64{4, 0}, []int64{out.Decisions[0].Remaining, out.Decisions[1].Remaining})
		out.Keep(4, 4)
		out, err = tiers.Acquire(background, "key", 2, 59*time.Second)
		assert.ErrorIs(t, err, ErrDeadline)
		assert.Equal(t, 1, out.Binding)
		gone, leave := context.WithTimeout(background, time.Second)
		defer leave()
		assert.ErrorIs(t, tiers.Wait(gone, "key", 2), ErrDeadline)
		assert.EqualValues(t, []int64{5, 1}, []int64{tiers.Engines()[0].Peek("key", 0).Remaining, tiers.Take("key", 0).Remaining})

		require.NoError(t, tiers.Health())
		var waits sync.WaitGroup
		waits.Go(func() { assert.ErrorIs(t, tiers.Wait(background, "key", 2), ErrClosed) })
		synctest.Wait()
		require.NoError(t, tiers.Close())
		waits.Wait()
		require.ErrorIs(t, tiers.Health(), ErrClosed)
		require.NoError(t, tiers.Close())
	})
}

func TestTieredOfNothingLetsPass(t *testing.T) {
	var tiers Tiered[string]
	assert.True(t, tiers.Choke("key"))
	assert.True(t, tiers.Take("key", math.MaxInt64).Allowed)
	assert.True(t, tiers.Take("key", 0).Allowed)
	assert.True(t, tiers.Refund("key", 1).Allowed)
	assert.False(t, tiers.Reset("key"))
	assert.NoError(t, tiers.Wait(background, "key", 1))
	assert.NoError(t, tiers.Health())
	assert.NoError(t, tiers.Close())
}
