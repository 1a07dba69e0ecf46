package compare

import (
	"fmt"
	"math"
	"math/big"

	"github.com/aclements/go-moremath/stats"

	"github.com/ral-limiter/ral/bench"
)

// A difference is called more than noise if both halves of the rule say so. The
// rounds of one run share a process, its heap and its moment, so two runs of the very
// same program differ by more than their rounds do among themselves: the test alone
// would raise false alarms.
const (
	alpha       = 0.05 // as benchstat
	leastChange = 0.05 // of the median
	// singleChange is the change of a figure of which each run has one, from which on
	// it is called higher or lower.
	singleChange = 0.10
)

// Rule explains the rule.
var Rule = fmt.Sprintf(`A difference is called better or worse if a Mann-Whitney U test over the values of the single rounds, as benchstat does it, gives p < %v, and if the medians differ by more than %.0f%%. If both runs have the same yardstick, ratios to it within each round are compared, so that a faster or slower machine matters little; p99 and p99.9 must differ against the yardstick's p50 as well. One in %.0f comparisons of equals passes the test by chance: believe a change that comes again.`, alpha, 100*leastChange, 1/alpha)

// Verdict is the judgement of a difference.
type Verdict int

// The verdicts. Better and Worse are more than noise.
const (
	noise Verdict = iota // no more than noise
	Better
	Worse
	tooFew      // too few rounds for the test to find anything
	single      // one figure a run, about the same
	singleUp    // one figure a run, now larger
	singleDown  // one figure a run, now smaller
	otherTask   // the workload was another one
	onlyMachine // a yardstick: tells of the machine, not of a limiter
)

// String returns the verdict in words.
func (v Verdict) String() string {
	return [...]string{
		"no more than noise", "BETTER", "WORSE", "too few rounds", "about the same, one figure each",
		"higher, one figure each", "lower, one figure each", "not judged, settings differ", "of the machine",
	}[v]
}

// Class returns the verdict's class in the style sheet of the page, if it has one.
func (v Verdict) Class() string {
	switch v {
	case Better:
		return "better"
	case Worse:
		return "worse"
	case onlyMachine:
		return "floor"
	}
	return ""
}

// judge applies the rule to the values of the rounds of two runs. p is NaN if no test
// could be made.
func judge(old, new []float64, lowerIsBetter bool) (v Verdict, p float64) {
	if len(old) == 0 || len(new) == 0 || leastP(len(old), len(new)) > alpha {
		return tooFew, math.NaN()
	}
	// This is the test that benchstat uses, from the module that benchstat has it
	// from. benchstat's own package belongs to a module with a great many requirements.
	p = 1
	if u, err := stats.MannWhitneyUTest(old, new, stats.LocationDiffers); err == nil {
		p = u.P
	} // the error is that all values are equal
	change := ratio(bench.SpreadOf(old).Median, bench.SpreadOf(new).Median) - 1
	switch {
	case p >= alpha || math.IsNaN(change) || math.Abs(change) <= leastChange:
		return noise, p
	case change < 0 == lowerIsBetter:
		return Better, p
	}
	return Worse, p
}

// judgeSingle is judge for figures of which each run has one. No test is possible
// then, so the verdict does not say better or worse.
func judgeSingle(old, new float64) Verdict {
	switch change := ratio(old, new) - 1; {
	case change > singleChange:
		return singleUp
	case change < -singleChange:
		return singleDown
	}
	return single
}

// leastP returns the least p that the test can give for so many values: that of two
// sides of which all values of one are above all of the other.
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
