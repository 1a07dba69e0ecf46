package bench

import "slices"

// Spread is the median of some values, and how far they lie apart.
type Spread struct {
	Median float64 `json:"median"`
	Min    float64 `json:"min"`
	Max    float64 `json:"max"`
}

// SpreadOf returns the spread of the values; that of none is the zero Spread.
// The median of an even number is the mean of the two in the middle.
func SpreadOf(values []float64) Spread {
	if len(values) == 0 {
		return Spread{}
	}
	v := slices.Sorted(slices.Values(values))
	mid := len(v) / 2
	median := v[mid]
	if len(v)%2 == 0 {
		median = (v[mid-1] + v[mid]) / 2
	}
	return Spread{Median: median, Min: v[0], Max: v[len(v)-1]}
}

// Relative returns how far the value farthest from the median is from it, as a
// share of the median; 0 if the median is.
func (s Spread) Relative() float64 {
	if s.Median == 0 {
		return 0
	}
	return max(s.Max-s.Median, s.Median-s.Min) / s.Median
}

// Order returns the order in which n contenders take their turns in a round,
// the first round being 0: each round begins one further on.
func Order(round, n int) []int {
	order := make([]int, n)
	for i := range order {
		order[i] = (round + i) % n
	}
	return order
}
