package report

import (
	"fmt"
	"strings"

	"github.com/ral-limiter/ral/bench"
	"github.com/ral-limiter/ral/cmd/ralbench/internal/format"
)

// Verdict is a line of a run's summary.
type Verdict struct {
	Title, Text string
	// Bad marks a broken promise, Good a confirmed promise.
	Bad, Good bool
}

// VerdictOf sums up a run: Ral beside the best peers, how far to trust that, promises, and
// how many goals were reached.
func VerdictOf(document Document) (lines []Verdict) {
	if len(document.Workloads) == 0 {
		return nil
	}
	return append(FirstScreen(document), Outcome(document)...)
}

// Outcome says which promises were kept, and how many goals were reached.
func Outcome(document Document) (lines []Verdict) {
	lines = promises(document)
	if n, missed, unjudged := measuredGoals(document); n+unjudged > 0 {
		lines = append(lines, Verdict{Title: "Goals", Good: n > 0 && len(missed)+unjudged == 0 && !document.Interrupted, Text: GoalSummary(document)})
	}
	return lines
}

// FirstScreen says how Ral compares with the best peers, and how far to trust that.
func FirstScreen(document Document) (lines []Verdict) {
	if _, sentence := Beside(document); sentence != "" {
		lines = append(lines, Verdict{Title: ral, Text: sentence})
	}
	return append(lines, Verdict{Title: "Trust", Text: say("trust", document)})
}

// Shortfalls lists missed goals, and where another limiter is clearly better than Ral.
func Shortfalls(document Document) (lines []Verdict) {
	_, missed, _ := measuredGoals(document)
	if n := len(missed) - maxMissed; n > 0 {
		missed = append(missed[:maxMissed], fmt.Sprintf("and %d more, which -goals lists", n))
	}
	for i, texts := range [][]string{missed, losses(document)} {
		if len(texts) > 0 {
			lines = append(lines, Verdict{Title: []string{"Missed goals", "Where Ral loses"}[i], Text: strings.Join(texts, "; ") + "."})
		}
	}
	return lines
}

const maxMissed = 8

// promises says which limiters exact by design kept their promises, if any was audited.
func promises(document Document) []Verdict {
	audits := Audits(document)
	if !audits.Any() {
		return nil
	}
	isKept := len(audits.Broken) == 0
	return []Verdict{{Title: "Promises", Text: say("promises", audits), Bad: !isKept, Good: isKept && audits.Clean > 0}}
}

// clearly is the factor behind from which Ral is said to lose.
const clearly = 1.05

// losses lists where another comparable limiter, or a peer's call of the same kind, is clearly
// better than Ral.
func losses(document Document) (parts []string) {
	for _, workloadReport := range document.Workloads {
		var lost []string
		compare := func(column Column, mine, other *bench.Result) {
			if mine == nil || other == nil {
				return
			}
			times, why, ok := column.judged(*mine, other)
			if column.Better > 0 {
				times = bench.Spread{Median: 1 / times.Median, Min: 1 / times.Max, Max: 1 / times.Min}
			}
			if ok && why == "" && times.Median > clearly {
				name := strings.TrimPrefix(mine.Name+" ", ral+" ")
				spread, _, _ := column.judged(*mine, nil)
				y, _, _ := column.judged(*other, nil)
				lost = append(lost, fmt.Sprintf("%s%s %s, %s %s, %s times", name, column.Name, column.Format(spread.Median), other.Name, column.Format(y.Median), format.Range(times)))
			}
		}
		for i, result := range workloadReport.Results {
			if result.Like != "" && result.KeptPromise() {
				compare(costs, workloadReport.Result(result.Like), &workloadReport.Results[i])
			}
		}
		if mine := workloadReport.Result(ral); mine != nil && !mine.Apart {
			for _, column := range []Column{costs, speed, tails, worst, bytesPerKey} {
				// One figure of the speed is enough. Worst calls show the machine, except in growth.
				if column.Name == speed.Name && len(lost) > 0 || column.Name == worst.Name && workloadReport.Name != "growth" {
					continue
				}
				compare(column, mine, column.best(peersIn(workloadReport)))
			}
		}
		if len(lost) > 0 {
			parts = append(parts, taskName(document, workloadReport.Name, workloadReport.CPU)+" ("+strings.Join(lost, "; ")+")")
		}
	}
	return parts
}

// RoundsText says over how many rounds the medians are, and if some have fewer.
func RoundsText(document Document) string { return say("rounds", document) }
