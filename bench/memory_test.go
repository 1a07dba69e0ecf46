package bench

import (
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Promise: A flood's memory is returned.
func TestRalForgetsIdleKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		workloads, err := Select(Standard(0.02), []string{"memory"})
		require.NoError(t, err)
		results := ran(t, quick(), workloads, XsyncMap(), Ral()).Workloads[0].Results
		yardstick, ral := results[0].Memory, results[1].Memory
		assert.Zero(t, yardstick.Idle, "a yardstick forgets nothing")
		assert.Equal(t, minIdle, ral.Idle)
		assert.Positive(t, ral.BytesPerKey)
		assert.Less(t, ral.IdleShare(), 0.5)
	})
}
