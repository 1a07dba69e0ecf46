package report

import (
	"fmt"

	"github.com/ral-limiter/ral/bench"
	"github.com/ral-limiter/ral/cmd/ralbench/internal/format"
)

// minJudged is the least number of undisturbed rounds that a goal, a loss or a comparison is judged by.
const minJudged = 3

// notJudged begins the reason for which a figure is not judged.
const notJudged = "not judged: "

// judged returns the spread of a figure over the undisturbed rounds, as a multiple of another
// result's in the same rounds unless result is nil. It reports false without a figure. why is empty, or
// says that there are too few rounds. Figures of other kinds than speeds and latencies have one
// value, which other load does not change.
func (c Column) judged(mine bench.Result, result *bench.Result) (spread bench.Spread, why string, ok bool) {
	if c.Pass == nil && c.Latency == nil {
		spread, ok = c.Value(mine)
		if result != nil {
			other, known := c.Value(*result)
			spread, ok = single(spread.Median/other.Median), ok && known && other.Median != 0
		}
		return spread, "", ok
	}
	var values []float64
	rounds := 0
	for i := range mine.Rounds {
		value, disturbed, known := c.pass(mine, i)
		if result != nil && known {
			divisor, alsoDisturbed, also := c.pass(*result, i)
			value, disturbed, known = value/divisor, disturbed || alsoDisturbed, also && divisor > 0
		}
		if !known {
			continue
		}
		if rounds++; !disturbed {
			values = append(values, value)
		}
	}
	switch {
	case len(values) >= minJudged:
	case len(values) == rounds:
		why = notJudged + format.Plural(rounds, "round")
	default:
		why = fmt.Sprintf("%s%d of %s undisturbed", notJudged, len(values), format.Plural(rounds, "round"))
	}
	return bench.SpreadOf(values), why, rounds > 0
}

// pass is round, false also if there is no such round, and whether other load disturbed it.
func (c Column) pass(result bench.Result, round int) (value float64, disturbed, known bool) {
	if round >= len(result.Rounds) {
		return 0, false, false
	}
	value, known = c.round(result, round)
	disturbed = result.Rounds[round].Disturbed
	if c.Latency != nil && known {
		disturbed = result.LatencyRounds[round].Disturbed
	}
	return value, disturbed, known
}
