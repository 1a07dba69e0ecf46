package main

import (
	"fmt"
	"math"
	"math/big"

	"github.com/aclements/go-moremath/stats"

	"github.com/ral-limiter/ral/bench"
)

// The rule by which a difference is called more than noise. Both halves are
// needed. The rounds of one run share a process, its heap and its moment, so two
// runs of the very same program differ by more than their rounds do among
// themselves: the test alone would cry wolf.
const (
	alpha       = 0.05 // as benchstat
	leastChange = 0.05 // of the median
	// onlyFigure is what a figure of which a run has just one may change by.
	onlyFigure = 0.10
)

// rule says so to people.
var rule = fmt.Sprintf(`A difference is called better or worse if a Mann-Whitney U test over the values of the single rounds,
as benchstat does it, gives p < %v, and if the medians differ by more than %.0f%%. Where both runs have a floor,
ratios to the floor of the same round are compared, so that a machine that has become faster or slower matters
little; p99 and p99.9 must differ against the floor's p50 as well. One in %.0f comparisons of equals passes the
test by chance: believe a change that comes again.`, alpha, 100*leastChange, 1/alpha)

// verdict is what can be said of a difference.
type verdict int

const (
	noise       verdict = iota // no more than noise
	better                     // more than noise
	worse                      // more than noise
	tooFew                     // too few rounds for the test to find anything
	single                     // one figure a run, about the same
	singleUp                   // one figure a run, now larger
	singleDown                 // one figure a run, now smaller
	otherTask                  // the workload was another one
	onlyMachine                // the floor: tells of the machine, not of a limiter
)

// String returns the verdict in words.
func (v verdict) String() string {
	return [...]string{
		"no more than noise", "BETTER", "WORSE", "too few rounds to tell", "about the same, one figure each",
		"higher, one figure each", "lower, one figure each", "not judged, settings differ", "tells of the machine",
	}[v]
}

// judge applies the rule to the values of the rounds of two runs. p is NaN where
// no test could be made.
func judge(old, new []float64, lowerIsBetter bool) (v verdict, p float64) {
	if len(old) == 0 || len(new) == 0 || leastP(len(old), len(new)) > alpha {
		return tooFew, math.NaN()
	}
	// This is the test that benchstat uses, from where it has it. The package that
	// benchstat wraps it in belongs to a module that requires half a cloud.
	p = 1
	if u, err := stats.MannWhitneyUTest(old, new, stats.LocationDiffers); err == nil {
		p = u.P
	} // the error is that all values are equal
	change := ratio(bench.SpreadOf(old).Median, bench.SpreadOf(new).Median) - 1
	switch {
	case p >= alpha || math.IsNaN(change) || math.Abs(change) <= leastChange:
		return noise, p
	case change < 0 == lowerIsBetter:
		return better, p
	}
	return worse, p
}

// judgeSingle is judge for figures of which each run has one: no test is possible
// then, so the verdict does not say better or worse.
func judgeSingle(old, new float64) verdict {
	switch change := ratio(old, new) - 1; {
	case change > onlyFigure:
		return singleUp
	case change < -onlyFigure:
		return singleDown
	}
	return single
}

// leastP is the least p that the test can give for so many values, which is when
// all of one side are above all of the other.
func leastP(m, n int) float64 {
	orders, _ := new(big.Float).SetInt(new(big.Int).Binomial(int64(m+n), int64(n))).Float64()
	return min(2/orders, 1)
}

// ratio returns new as a multiple of old, NaN if it has none.
func ratio(old, new float64) float64 {
	if old == 0 {
		return math.NaN()
	}
	return new / old
}
