package bench

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestSpreadIsMedianMinAndMax(t *testing.T) {
	assert.Equal(t, Spread{}, SpreadOf(nil))
	assert.Equal(t, Spread{Median: 4, Min: 4, Max: 4}, SpreadOf([]float64{4}))
	odd := []float64{9, 1, 5}
	assert.Equal(t, Spread{Median: 5, Min: 1, Max: 9}, SpreadOf(odd))
	assert.Equal(t, []float64{9, 1, 5}, odd, "the values stay as they were")
	assert.Equal(t, Spread{Median: 3, Min: 1, Max: 9}, SpreadOf([]float64{9, 1, 4, 2}))

	assert.InDelta(t, 0.8, Spread{Median: 5, Min: 1, Max: 7}.Relative(), 1e-9)
	assert.InDelta(t, 0.6, Spread{Median: 5, Min: 4, Max: 8}.Relative(), 1e-9)
	assert.Zero(t, Spread{}.Relative())
}
