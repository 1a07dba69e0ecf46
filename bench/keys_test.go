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

func TestSelectNamesUnknownWorkloads(t *testing.T) {
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
