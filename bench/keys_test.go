package bench

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestZipfIsSkewedByItsLaw(t *testing.T) {
	const keys, draws = 100_000, 200_000
	times := make([]float64, keys)
	for _, i := range drawZipf(draws, keys, rand.New(rand.NewPCG(1, 2))) {
		require.Less(t, i, uint32(keys))
		times[i]++
	}
	assert.InEpsilon(t, 10, times[0]/times[9], 0.15, "the first key is drawn ten times as often as the tenth")
	assert.InEpsilon(t, 100, times[0]/times[99], 0.3, "and a hundred times as often as the hundredth")

	first := 0.0
	for _, n := range times[:100] {
		first += n
	}
	assert.InDelta(t, 0.44, first/draws, 0.03, "the share of the first hundred")
}

func TestLimitRefusingRefusesItsShare(t *testing.T) {
	const keys, speed = 100_000, 10e6
	streams := drawStreams(Workload{Keys: keys, Draw: DrawZipf}, 2)
	limit := limitRefusing(streams, keys, 0.5, speed, 0)

	times := make([]float64, keys)
	calls := 0.0
	for _, s := range streams {
		for _, i := range s.order {
			times[i]++
			calls++
		}
	}
	refusedAt := func(speed float64) (share float64) {
		for _, n := range times {
			share += max(n/calls*speed-float64(limit.Count), 0) / speed
		}
		return share
	}
	assert.InDelta(t, 0.5, refusedAt(speed), 0.01)
	assert.Greater(t, refusedAt(speed/3), 0.39, "a third of the speed")
	assert.Less(t, refusedAt(speed*3), 0.61, "three times the speed")
}

func TestSelect(t *testing.T) {
	all := Standard(1)
	some, err := Select(all, []string{"zipf", "hot-pass", "zipf"})
	require.NoError(t, err)
	assert.Equal(t, []string{"hot-pass", "zipf"}, Names(some))

	_, err = Select(all, []string{"hot-pass", "zipff"})
	require.ErrorContains(t, err, `"zipff"`)
	for _, name := range Names(all) {
		assert.ErrorContains(t, err, name)
	}
}
