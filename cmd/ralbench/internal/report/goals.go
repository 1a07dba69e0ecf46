package report

import (
	"cmp"
	_ "embed"
	"encoding/csv"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/ral-limiter/ral/bench"
	"github.com/ral-limiter/ral/cmd/ralbench/internal/format"
)

// ral is the name of the contender that goals and verdict are about.
const ral = "Ral"

// Goal is a goal of Ral with the measured value.
type Goal struct {
	GoalRow
	// Of is the contender whose multiple the value is, or empty.
	Of string
	// Value is the median over the undisturbed rounds.
	Value bench.Spread
	Show  func(float64) string
	// Unjudged says why the goal is not judged, or is empty.
	Unjudged string
	// Floor is the value of the floor in the same run, or empty.
	Floor string
}

// IsReached reports whether a goal that is judged was reached.
func (g Goal) IsReached() bool {
	return g.Value.Median == g.Goal || g.isLeast() == (g.Value.Median > g.Goal)
}

// Bound tells the goal: "at most 0.45".
func (g Goal) Bound() string {
	bound := "at most "
	if g.isLeast() {
		bound = "at least "
	}
	return bound + g.Show(g.Goal)
}

// Text tells the value: "ns/op 0.45 of go-limiter's".
func (g Goal) Text() string {
	text := g.Figure.Name + " " + g.Show(g.Value.Median)
	if g.Contender != ral {
		text = g.Contender + ", " + text
	}
	if g.Of == "" {
		return text
	}
	return text + " of " + g.Of + "'s"
}

// bestPeer stands for the best comparable limiter other than Ral.
const bestPeer = "the best exact peer"

// GoalRow is a goal: a figure of a contender, alone or as a multiple of another's.
type GoalRow struct {
	Workload  string
	Contender string // Ral, or one of its calls
	other     string
	Figure    Column
	Goal      float64
	otherIn   string // the workload that measures the other, if not the same
}

// isLeast reports whether the goal is the least; otherwise it is the most.
func (g GoalRow) isLeast() bool { return g.Figure.Better > 0 }

// isOf reports whether the goal is about runs of the document's mode.
func (g GoalRow) isOf(document Document) bool {
	return strings.HasPrefix(g.Workload, "fleet-") == document.Settings.Fleet && strings.HasPrefix(g.Workload, "serve-") == document.Settings.Serve
}

// goalText has the goals of Ral; docs/performance.md explains the missed goals. For other limits and
// verbs they are multiples of a funnel's Choke, the row Ral of their workloads. The last column is
// the workload that measures the other, if not the same.
//
//go:embed goals.csv
var goalText string

var goals = readGoals(goalText)

// readGoals returns the rows of a table of goals. It panics if the table is no table of goals.
func readGoals(text string) (all []GoalRow) {
	rows, err := csv.NewReader(strings.NewReader(text)).ReadAll()
	if err != nil {
		panic(err)
	}
	for _, row := range rows[1:] {
		goal, err := strconv.ParseFloat(row[4], 64)
		i := slices.IndexFunc(goalFigures, func(column Column) bool { return column.Name == row[3] })
		if err != nil || i < 0 {
			panic(fmt.Sprintf("goals.csv: %q: %v", row, err))
		}
		all = append(all, GoalRow{row[0], row[1], row[2], goalFigures[i], goal, row[5]})
	}
	return all
}

// HasGoal reports whether a workload is needed for a goal.
func HasGoal(workload string) bool {
	return slices.ContainsFunc(goals, func(goalRow GoalRow) bool { return goalRow.Workload == workload || goalRow.otherIn == workload })
}

// Goals returns the goals that the run measured. The last value of GOMAXPROCS counts.
func Goals(document Document) (all []Goal) {
	for _, row := range goals {
		workloadReport := lastOf(document, row.Workload)
		if workloadReport == nil || workloadReport.Result(row.Contender) == nil {
			continue
		}
		goal := Goal{GoalRow: row, Show: row.Figure.Format}
		if goal.measure(document, *workloadReport.Result(row.Contender)) {
			all = append(all, goal)
		}
	}
	return all
}

// measure sets the value. It reports whether the run has it.
func (g *Goal) measure(document Document, mine bench.Result) (ok bool) {
	if g.other == "" {
		g.Value, g.Unjudged, ok = g.Figure.judged(mine, nil)
		return ok
	}
	in := lastOf(document, cmp.Or(g.otherIn, g.Workload))
	if in == nil {
		return false
	}
	other := in.Result(g.other)
	if g.other == bestPeer {
		other = g.Figure.best(peersIn(*in))
	}
	if other == nil {
		return false
	}
	g.Of, g.Show = other.Name, format.Ratio
	g.Value, g.Unjudged, ok = g.Figure.judged(mine, other)
	if floor := in.Yardstick(bench.YardstickFloor); floor != nil {
		if spread, why, known := g.Figure.judged(*floor, other); known && why == "" {
			g.Floor = format.Ratio(spread.Median)
		}
	}
	return ok
}

// lastOf returns the last report of a workload, nil if there is none.
func lastOf(document Document, workload string) *bench.WorkloadReport {
	for i := len(document.Workloads) - 1; i >= 0; i-- {
		if document.Workloads[i].Name == workload {
			return &document.Workloads[i]
		}
	}
	return nil
}

// peersIn returns the comparable limiters other than Ral by any clock.
func peersIn(w bench.WorkloadReport) []bench.Result {
	return slices.DeleteFunc(slices.Clone(w.Results), func(result bench.Result) bool {
		return !result.Comparable() || KindNamed(result.Name) == KindRal
	})
}

func GoalTable(document Document) Table {
	table := Table{
		Title:   "Goals of Ral",
		About:   "The figures, beside the goals of Ral. A multiple of Ral's is one of Choke under a funnel.",
		Columns: slices.Concat(heads(true, "workload", "call", "figure"), heads(false, "measured", "goal", "floor"), heads(true, "reached")),
	}
	for _, goal := range Goals(document) {
		figure := goal.Figure.Name
		if goal.Of != "" {
			figure += ", times " + goal.Of + "'s"
		}
		value, reached := format.Spread(goal.Value, goal.Show), "NO"
		switch {
		case goal.Unjudged != "":
			value, reached = nothing, goal.Unjudged
		case goal.IsReached():
			reached = "yes"
		}
		table.Rows = append(table.Rows, Row{KindNamed(goal.Contender), []string{
			goal.Workload, goal.Contender, figure, value, goal.Bound(), cmp.Or(goal.Floor, nothing), reached,
		}})
	}
	return table
}

// GoalSummary says how many goals were reached, and how many a run that ended early left out.
func GoalSummary(document Document) string {
	n, missed, unjudged := measuredGoals(document)
	left := 0
	if document.Interrupted || len(document.LeftOut) > 0 {
		left = -n - unjudged
		for _, goalRow := range goals {
			if goalRow.isOf(document) {
				left++
			}
		}
	}
	return say("goals", map[string]any{
		"Reached": n - len(missed), "Judged": n, "Unjudged": unjudged, "MinJudged": minJudged, "Left": left, "Interrupted": document.Interrupted,
	})
}

// measuredGoals counts the judged goals and the goals that cannot be judged, and tells the missed.
func measuredGoals(document Document) (n int, missed []string, unjudged int) {
	for _, goal := range Goals(document) {
		switch {
		case goal.Unjudged != "":
			unjudged++
			continue
		case !goal.IsReached():
			missed = append(missed, fmt.Sprintf("%s, %s (goal %s)", goal.Workload, goal.Text(), goal.Show(goal.Goal)))
		}
		n++
	}
	return n, missed, unjudged
}
