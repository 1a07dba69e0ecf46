package report

import (
	"fmt"
	"slices"
	"time"

	"github.com/ral-limiter/ral/bench"
	"github.com/ral-limiter/ral/cmd/ralbench/format"
)

// ral is the name of the contender that goals and verdict are about.
const ral = "Ral"

// Goal is a goal of Ral with the measured value. Less is better.
type Goal struct {
	Workload  string
	Contender string // Ral, or one of its calls
	Figure    string
	Of        string // the contender whose multiple the value is, or empty
	Value     float64
	Most      float64
	Show      func(float64) string
}

func (g Goal) Reached() bool { return g.Value <= g.Most }

// Text tells the value: "ns/op 0.45 of go-limiter's".
func (g Goal) Text() string {
	text := g.Figure + " " + g.Show(g.Value)
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

// goalSpec is a goal: a figure of a contender, alone or as a multiple of another's.
type goalSpec struct {
	workload, contender, of string
	figure                  Figure
	most                    float64
	ofIn                    string // the workload that measures the other, if not the same
}

// goals are the goals of Ral; docs/performance.md explains the missed goals. For other limits and
// verbs they are multiples of a funnel's Choke, the row Ral of their workloads.
var goals = slices.Concat([]goalSpec{
	{"hot-pass", ral, "x/time+sync.Map", costs, 0.5, ""},
	{"hot-pass", ral, "xsync map", costs, 1.25, ""},
	{"hot-refused", ral, "go-limiter", costs, 0.5, ""},
	{"uniform", ral, "x/time+xsync", costs, 0.55, ""},
	{"uniform", ral, "xsync map", costs, 1.1, ""},
	{"uniform", ral, bestPeer, tails, 0.6, ""},
	{"zipf", ral, "x/time+xsync", costs, 0.55, ""},
	{"flood", ral, "x/time+sync.Map", costs, 1, ""},
	{"memory", ral, "", bytesPerKey, 100, ""},
	{"growth", ral, "", worst, float64(5 * time.Millisecond), ""},
	{bench.SetPolicyWorkload, "Ral SetPolicy", "", worst, float64(50 * time.Millisecond), ""},
},
	ofLimits(bench.LimitsWorkload, 1.3, 2),
	[]goalSpec{{bench.LimitsTakeWorkload, "Ral Take", ral, costs, 1.4, ""}},
	ofLimits(bench.LimitsTakeWorkload, 1.8, 1.8),
	[]goalSpec{
		{bench.VerbsWorkload, "Ral Peek", ral, costs, 1.2, ""},
		{bench.VerbsWorkload, "Ral Reserve", ral, costs, 2.5, ""},
		{bench.VerbsWorkload, "Ral Refund", ral, costs, 1.5, ""},
		{bench.VerbsWorkload, "Ral Wait", ral, costs, 1.6, ""},
		{bench.VerbsWorkload, "Ral PolicyFor", ral, costs, 1.4, ""},
		{bench.SeveralWorkload, "Ral Tiered", ral, costs, 2.5, ""},
		{bench.SeveralRefusedWorkload, "Ral Tiered", ral, costs, 2.5, bench.SeveralWorkload},
		{bench.SeveralWorkload, "Ral TakeAll", ral, costs, 3.5, ""},
		{bench.SeveralWorkload, "Ral TakeAll", "", roundAllocations, 2, ""}, // the two slices of the Outcome
	},
)

// ofLimits returns the goals of all limits but the funnel in a workload.
func ofLimits(workload string, most, warmingUp float64) (all []goalSpec) {
	for _, name := range []string{"AtMost", "Bursty", "FixedWindow", "Queue", "SlidingWindow"} {
		all = append(all, goalSpec{workload, ral + " " + name, ral, costs, most, ""})
	}
	return append(all, goalSpec{workload, ral + " WarmingUp", ral, costs, warmingUp, ""})
}

// HasGoal reports whether a workload is needed for a goal.
func HasGoal(workload string) bool {
	return slices.ContainsFunc(goals, func(g goalSpec) bool { return g.workload == workload || g.ofIn == workload })
}

// Goals returns the goals that the run measured. The last value of GOMAXPROCS counts.
func Goals(d Document) (all []Goal) {
	for _, g := range goals {
		w := lastOf(d, g.workload)
		if w == nil {
			continue
		}
		mine := w.Result(g.contender)
		if mine == nil {
			continue
		}
		if g.ofIn != "" {
			if w = lastOf(d, g.ofIn); w == nil {
				continue
			}
		}
		goal := Goal{
			Workload: g.workload, Contender: g.contender, Figure: g.figure.Name, Most: g.most, Show: format.Ratio,
		}
		value, ok := g.figure.Value(*mine)
		if g.of == "" {
			goal.Value, goal.Show = value, g.figure.Format
		} else if ok {
			other := w.Result(g.of)
			if g.of == bestPeer {
				other = g.figure.best(peersIn(*w))
			}
			if ok = other != nil; ok {
				goal.Of = other.Contender
				goal.Value, ok = g.figure.ratio(*mine, *other)
			}
		}
		if ok {
			all = append(all, goal)
		}
	}
	return all
}

// lastOf returns the last report of a workload, nil if there is none.
func lastOf(d Document, workload string) *bench.WorkloadReport {
	for i := len(d.Workloads) - 1; i >= 0; i-- {
		if d.Workloads[i].Name == workload {
			return &d.Workloads[i]
		}
	}
	return nil
}

// peersIn returns the comparable limiters other than Ral by any clock.
func peersIn(w bench.WorkloadReport) []bench.Result {
	return slices.DeleteFunc(slices.Clone(w.Results), func(r bench.Result) bool {
		return !r.Comparable() || KindNamed(r.Contender) == KindRal
	})
}

func GoalTable(d Document) Table {
	t := Table{
		ID: "ral-goals", Title: "Goals of Ral",
		About:   "The figures, beside the goals of Ral. A multiple of Ral's is one of Choke under a funnel.",
		Columns: []string{"workload", "call", "figure", "measured", "goal", "reached"}, Left: 3, Right: 1,
	}
	for _, g := range Goals(d) {
		figure := g.Figure
		if g.Of != "" {
			figure += ", times " + g.Of + "'s"
		}
		t.Rows = append(t.Rows, Row{KindPeer, []string{
			g.Workload, g.Contender, figure, g.Show(g.Value), "at most " + g.Show(g.Most), yes(g.Reached()),
		}})
	}
	return t
}

// GoalSummary says how many goals were reached.
func GoalSummary(d Document) string {
	reached, all := 0, Goals(d)
	for _, g := range all {
		if g.Reached() {
			reached++
		}
	}
	return fmt.Sprintf("%d of %d reached.", reached, len(all))
}

func yes(ok bool) string {
	if ok {
		return "yes"
	}
	return "NO"
}
