package report

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/ral-limiter/ral/bench"
	"github.com/ral-limiter/ral/cmd/ralbench/internal/fleetbench"
	"github.com/ral-limiter/ral/cmd/ralbench/internal/format"
	"github.com/ral-limiter/ral/cmd/ralbench/internal/servebench"
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
	if g.isLeast() {
		return "at least " + g.Show(g.Goal)
	}
	return "at most " + g.Show(g.Goal)
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
func (g GoalRow) isOf(d Document) bool {
	return strings.HasPrefix(g.Workload, "fleet-") == d.Settings.Fleet && strings.HasPrefix(g.Workload, "serve-") == d.Settings.Serve
}

// goals are the goals of Ral; docs/performance.md explains the missed goals. For other limits and
// verbs they are multiples of a funnel's Choke, the row Ral of their workloads.
var goals = slices.Concat([]GoalRow{
	{"hot-pass", ral, bench.CFloorName, costs, 2.2, ""},
	{"hot-pass", ral, bestPeer, costs, 0.5, ""},
	{"hot-refused", ral, bench.CFloorName, costs, 1.9, ""},
	{"hot-refused", ral, bestPeer, costs, 0.4, ""},
	{"uniform", ral, bestPeer, costs, 0.35, ""},
	{"uniform", ral, bestPeer, tails, 0.6, ""},
	{"million", ral, bestPeer, costs, 0.65, ""},
	{"zipf", ral, bestPeer, costs, 0.5, ""},
	{"flood", ral, bestPeer, costs, 0.75, ""},
	{"flood", ral, bestPeer, tails, 0.8, ""},
	{"memory", ral, "", bytesPerKey, 85, ""},
	{bench.MemoryHalfWorkload, ral, "", bytesPerKey, 95, ""},
	{"growth", ral, bestPeer, worst, 1, ""},
	{bench.SetPolicyWorkload, "Ral SetPolicy", "", worst, float64(50 * time.Millisecond), ""},
},
	ofLimits(bench.LimitsWorkload, 1.3, 2),
	[]GoalRow{{bench.LimitsTakeWorkload, "Ral Take", ral, costs, 1.15, ""}},
	ofLimits(bench.LimitsTakeWorkload, 1.8, 1.8),
	[]GoalRow{
		{bench.VerbsWorkload, "Ral Peek", ral, costs, 1.1, ""},
		{bench.VerbsWorkload, "Ral Reserve", ral, costs, 2, ""},
		{bench.VerbsWorkload, "Ral Refund", ral, costs, 1.4, ""},
		{bench.VerbsWorkload, "Ral Wait", ral, costs, 1.6, ""},
		{bench.VerbsWorkload, "Ral PolicyFor", ral, costs, 1.4, ""},
		{bench.SeveralWorkload, "Ral Tiered", ral, costs, 1.8, ""},
		{bench.SeveralRefusedWorkload, "Ral Tiered", ral, costs, 2.2, bench.SeveralWorkload},
		{bench.SeveralWorkload, "Ral TakeAll", ral, costs, 3.5, ""},
		{bench.SeveralWorkload, "Ral TakeAll", "", roundAllocations, 1, ""}, // the Decisions of the Outcome
		{bench.InFlightWorkload, "Ral Release", ral, costs, 1.4, ""},
		{bench.InFlightKeysWorkload, "Ral Release", ral, costs, 1.5, ""},
		{bench.HTTPWorkload, "Ral two limits", "Ral one limit", costs, 1.6, ""},
		{bench.HTTPWorkload, "Ral two limits with fields", "Ral one limit with fields", costs, 1.6, ""},
	},
	inEach([]string{fleetbench.Hot, fleetbench.Keys}, GoalRow{"", fleetbench.Exact, fleetbench.RedisRate, speed, 2, ""}),
	inEach([]string{fleetbench.Hot, fleetbench.Some},
		GoalRow{"", fleetbench.Leased, fleetbench.RedisRate, speed, 100, ""},
		GoalRow{"", fleetbench.Leased, fleetbench.EngineTake, speed, 0.5, ""},
		GoalRow{"", fleetbench.Leased, fleetbench.EngineChoke, speed, 0.5, ""},
		GoalRow{"", fleetbench.Leased, fleetbench.EngineTake, costs, 2, ""}),
	[]GoalRow{
		{fleetbench.MemoryInRedis, fleetbench.Exact, fleetbench.RedisRate, usage, 0.99, ""},
		{fleetbench.MemoryInRedis, fleetbench.Exact, fleetbench.RedisRate, bytesPerKey, 0.99, ""},
	},
	inEach(fleetbench.Shares("even"), GoalRow{"", fleetbench.Leased, "", share, 0.95, ""}),
	inEach(fleetbench.Shares("skewed"), GoalRow{"", fleetbench.Leased, "", share, 0.9, ""}),
	inEach(fleetbench.Shares("shifting"), GoalRow{"", fleetbench.Leased, "", share, 0.85, ""}),
	inEach([]string{servebench.TCPPipeline, servebench.SocketLong},
		GoalRow{"", servebench.Rald, servebench.Script, speed, 3, ""},
		GoalRow{"", servebench.Rald, servebench.GoFloor, speed, 0.75, ""},
		GoalRow{"", servebench.Rald, servebench.GoFloor, costs, 1.7, ""}),
	inEach([]string{servebench.TCP, servebench.Socket},
		GoalRow{"", servebench.Rald, servebench.GoFloor, speed, 0.9, ""},
		GoalRow{"", servebench.Rald, servebench.GoFloor, costs, 1.15, ""}),
	[]GoalRow{
		{servebench.Envoy, servebench.Rald, servebench.Reference, speed, 6, ""},
		{servebench.EnvoyRate, servebench.Rald, servebench.GRPCFloor, middle, 1.3, ""},
		{servebench.EnvoyRate, servebench.Rald, "", speed, 0.98 * servebench.Rate, ""},
	},
)

// inEach returns the goals in each of the workloads.
func inEach(workloads []string, goals ...GoalRow) (all []GoalRow) {
	for _, workload := range workloads {
		for _, g := range goals {
			g.Workload = workload
			all = append(all, g)
		}
	}
	return all
}

// ofLimits returns the goals of all limits but the funnel in a workload.
func ofLimits(workload string, most, warmingUp float64) (all []GoalRow) {
	for _, name := range []string{"AtMost", "Bursty", "FixedWindow", "Queue", "SlidingWindow"} {
		all = append(all, GoalRow{workload, ral + " " + name, ral, costs, most, ""})
	}
	return append(all, GoalRow{workload, ral + " WarmingUp", ral, costs, warmingUp, ""})
}

// HasGoal reports whether a workload is needed for a goal.
func HasGoal(workload string) bool {
	return slices.ContainsFunc(goals, func(g GoalRow) bool { return g.Workload == workload || g.otherIn == workload })
}

// Goals returns the goals that the run measured. The last value of GOMAXPROCS counts.
func Goals(document Document) (all []Goal) {
	for _, row := range goals {
		workloadReport := lastOf(document, row.Workload)
		if workloadReport == nil || workloadReport.Result(row.Contender) == nil {
			continue
		}
		g := Goal{GoalRow: row, Show: row.Figure.Format}
		if g.measure(document, *workloadReport.Result(row.Contender)) {
			all = append(all, g)
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
	workloadReport := lastOf(document, cmp.Or(g.otherIn, g.Workload))
	if workloadReport == nil {
		return false
	}
	other := workloadReport.Result(g.other)
	if g.other == bestPeer {
		other = g.Figure.best(peersIn(*workloadReport))
	}
	if other == nil {
		return false
	}
	g.Of, g.Show = other.Name, format.Ratio
	g.Value, g.Unjudged, ok = g.Figure.judged(mine, other)
	if floor := workloadReport.Yardstick(bench.YardstickFloor); floor != nil {
		if x, why, known := g.Figure.judged(*floor, other); known && why == "" {
			g.Floor = format.Ratio(x.Median)
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
	return slices.DeleteFunc(slices.Clone(w.Results), func(r bench.Result) bool {
		return !r.Comparable() || KindNamed(r.Name) == KindRal
	})
}

func GoalTable(document Document) Table {
	table := Table{
		Title:   "Goals of Ral",
		About:   "The figures, beside the goals of Ral. A multiple of Ral's is one of Choke under a funnel.",
		Columns: slices.Concat(words("workload", "call", "figure"), figures("measured", "goal", "floor"), words("reached")),
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
	text := fmt.Sprintf("%d of %d reached", n-len(missed), n)
	if unjudged > 0 {
		text += fmt.Sprintf("; %s not judged, for want of %d undisturbed rounds", format.Plural(unjudged, "other"), minJudged)
	}
	left := -n - unjudged
	for _, g := range goals {
		if g.isOf(document) {
			left++
		}
	}
	if left > 0 && (document.Interrupted || len(document.LeftOut) > 0) {
		text += fmt.Sprintf("; %d others NOT MEASURED", left)
	}
	if document.Interrupted {
		text += "; the run was INTERRUPTED"
	}
	return text + "."
}

// measuredGoals counts the judged goals and the goals that cannot be judged, and tells the missed.
func measuredGoals(d Document) (n int, missed []string, unjudged int) {
	for _, goal := range Goals(d) {
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
