package cell

import (
	"math"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// tails returns the chances that a Poisson variable is at most x and at least x. A sample's, beyond
// its mean, are no larger.
func tails(mean float64, x int) (atMost, atLeast float64) {
	chance := func(k int) float64 {
		of, _ := math.Lgamma(float64(k) + 1)
		return math.Exp(float64(k)*math.Log(mean) - mean - of)
	}
	for k := 0; k <= x; k++ {
		atMost += chance(k)
	}
	for k := x; k <= x+1000; k++ {
		atLeast += chance(k)
	}
	return atMost, atLeast
}

// A count is as good as impossible outside leastOf and mostOf, which are hardly wider than needed.
func TestBoundsOfASample(t *testing.T) {
	for _, weight := range []uint64{2, 64, mostWeight} {
		for _, samples := range []int{0, 1, 2, 5, 30, 100, 1000} {
			count := uint64(samples) * weight
			least, most := leastOf(count, weight), mostOf(count, weight)
			require.LessOrEqual(t, least, count)
			require.GreaterOrEqual(t, most, count)
			atMost, _ := tails(float64(most+1)/float64(weight), samples)
			assert.LessOrEqual(t, atMost, doubt*1.01, "%d of weight %d: %d at most", samples, weight, most)
			assert.Greater(t, atMost, doubt/1000)
			if least > uint64(samples) { // else it is certain
				_, atLeast := tails(float64(least-1)/float64(weight), samples)
				assert.LessOrEqual(t, atLeast, doubt*1.01, "%d of weight %d: %d at least", samples, weight, least)
				assert.Greater(t, atLeast, doubt/1000)
			}
			assert.GreaterOrEqual(t, least, uint64(samples), "each sample is a refusal")
		}
	}
	assert.EqualValues(t, []uint64{0, 7}, []uint64{leastOf(0, 1), leastOf(7, 1)}, "a count of all is exact")
	assert.EqualValues(t, []uint64{0, 7}, []uint64{mostOf(0, 1), mostOf(7, 1)})
	assert.Zero(t, leastOf(0, 64))
}

// Each refusal is in the sample with the chance 1 in weight, whatever came before.
func TestDrawsAreFair(t *testing.T) {
	const weight, refusals = 16, 1 << 16
	var s stripe
	s.draw(weight)
	var sampled, pairs, last int
	for i := range refusals {
		number, mayBe := s.refuse()
		if !mayBe {
			continue
		}
		require.Equal(t, s.next.Load(), number, "without other goroutines none is passed")
		sampled++
		if i == last+1 {
			pairs++
		}
		last = i
		s.draw(weight)
	}
	assert.InDelta(t, refusals/weight, sampled, 10*math.Sqrt(refusals/weight))
	assert.InDelta(t, refusals/weight/weight, pairs, 10*math.Sqrt(refusals/weight/weight), "neighbours too")
}
