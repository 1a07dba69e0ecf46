package report

import (
	"fmt"
	"slices"
	"strings"

	"github.com/ral-limiter/ral/bench"
	"github.com/ral-limiter/ral/cmd/ralbench/internal/format"
	"github.com/ral-limiter/ral/cmd/ralbench/internal/servebench"
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
	return append(lines, trust(document))
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
func promises(d Document) []Verdict {
	auditSummary := Audits(d)
	if !auditSummary.Any() {
		return nil
	}
	verdict := Verdict{Title: "Promises", Bad: len(auditSummary.Broken) > 0, Good: len(auditSummary.Broken) == 0 && auditSummary.Clean > 0}
	switch {
	case verdict.Bad:
		verdict.Text = "BROKEN by Ral: " + Breaches(auditSummary.Broken) + "."
	case len(auditSummary.Peers) > 0:
		verdict.Text = "Ral kept its own in all of its audits."
	case verdict.Good:
		verdict.Text = fmt.Sprintf("each limiter that is exact by its own design kept its promise, in all %s that could find a breach.", format.Plural(auditSummary.Clean, "audit"))
	default:
		verdict.Text = "no audit could find anything: no key was asked beyond its limit."
	}
	if len(auditSummary.Peers) > 0 {
		verdict.Text += " Exact by design, " + Breaches(auditSummary.Peers) + "."
	}
	if len(auditSummary.Inexact) > 0 {
		var names []string
		for _, row := range auditSummary.Inexact {
			if !slices.Contains(names, row.Contender) {
				names = append(names, row.Contender)
			}
		}
		verdict.Text += fmt.Sprintf(" Inexact by design, and above their limits: %s.", format.And(names))
	}
	return []Verdict{verdict}
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
				x, _, _ := column.judged(*mine, nil)
				y, _, _ := column.judged(*other, nil)
				lost = append(lost, fmt.Sprintf("%s%s %s, %s %s, %s times", name, column.Name, column.Format(x.Median), other.Name, column.Format(y.Median), format.Range(times)))
			}
		}
		for i, r := range workloadReport.Results {
			if r.Like != "" && r.KeptPromise() {
				compare(costs, workloadReport.Result(r.Like), &workloadReport.Results[i])
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

func trust(document Document) Verdict {
	passes, disturbed, rounds := 0, 0, 0
	for _, w := range document.Workloads {
		for _, result := range w.Results {
			rounds = max(rounds, len(result.Rounds))
			if !result.Outside {
				passes += len(result.Rounds)
				disturbed += result.Disturbed
			}
		}
	}
	verdict := Verdict{Title: "Trust"}
	load := fmt.Sprintf("other load disturbed %d of %s", disturbed, format.Plural(passes, "pass"))
	switch {
	case !document.Watched || passes == 0:
		verdict.Text = "other load was not watched: believe only what repeats."
	case disturbed > passes/10:
		verdict.Text = "the machine was TOO BUSY for these figures: " + load + ". Close other programs and run again."
	default:
		verdict.Text = "the machine was quiet enough for these figures: " + load + "."
	}
	if rounds == 1 {
		verdict.Text += " There is one round only, and so no spread."
	}
	verdict.Text += cuts(document)
	if document.Settings.Scale != 1 {
		verdict.Text += fmt.Sprintf(" SCALED: workloads of many keys had %v times as many as they should.", document.Settings.Scale)
	}
	return verdict
}

// RoundsText says over how many rounds the medians are, and if some have fewer.
func RoundsText(document Document) string {
	if len(cutShort(document)) > 0 {
		return "medians of up to " + format.Plural(document.Settings.Rounds, "round")
	}
	return format.Medians(document.Settings.Rounds)
}

// cutShort names the workloads with fewer rounds than planned.
func cutShort(document Document) (short []string) {
	for _, w := range document.Workloads {
		if Rounds(w) < w.Rounds {
			short = append(short, taskName(document, w.Name, w.CPU))
		}
	}
	return short
}

// cuts tells the rounds and contenders cut by the budget.
func cuts(document Document) (text string) {
	if short := cutShort(document); len(short) > 0 && document.Settings.Budget > 0 && !document.Interrupted {
		where := format.And(short)
		if len(short) > 3 {
			where = fmt.Sprintf("%d of %s", len(short), format.Plural(len(document.Workloads), "workload"))
		}
		text = fmt.Sprintf(" The budget of %v CUT ROUNDS in %s: -budget 0, or -full, measures them all.", document.Settings.Budget, where)
	}
	for _, leftOut := range document.LeftOut {
		text += fmt.Sprintf(" NO TIME was left in %s for %s.", taskName(document, leftOut.Workload, leftOut.CPU), format.And(leftOut.Contenders))
	}
	return text
}

// taskName returns a workload's name, with GOMAXPROCS if there are several values.
func taskName(d Document, workload string, cpu int) string {
	if len(d.Settings.CPUs) > 1 {
		return format.Task(workload, cpu)
	}
	return workload
}

// KindNamed is KindOf for a limiter's name.
func KindNamed(contender string) string {
	if contender == ral || contender == servebench.Rald || strings.HasPrefix(contender, ral+" ") {
		return KindRal
	}
	return KindPeer
}
