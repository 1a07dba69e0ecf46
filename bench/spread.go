package bench

import "slices"

// Spread is the median of some values, with the least and the greatest.
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

// Relative returns the distance of the value farthest from the median, as a share of
// the median. It is 0 if the median is 0.
func (s Spread) Relative() float64 {
	if s.Median == 0 {
		return 0
	}
	return max(s.Max-s.Median, s.Median-s.Min) / s.Median
}
