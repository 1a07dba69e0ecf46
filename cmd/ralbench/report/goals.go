package report

import (
	"cmp"
	"slices"
	"time"

	"github.com/ral-limiter/ral/bench"
	"github.com/ral-limiter/ral/cmd/ralbench/format"
)

// ral is the name of the contender that goals and verdict are about.
const ral = "Ral"

// Goal is a goal of Ral, beside what was measured. Less is better in all of them.
type Goal struct {
	Workload string
	Figure   string
	Of       string // the contender of which the value is a multiple, or empty
	Value    float64
	Most     float64
	Show     func(float64) string
}

// Reached reports whether the goal was reached.
func (g Goal) Reached() bool { return g.Value <= g.Most }

// Text says what was measured: "ns/op 0.45 of go-limiter's".
func (g Goal) Text() string {
	if g.Of == "" {
		return g.Figure + " " + g.Show(g.Value)
	}
	return g.Figure + " " + g.Show(g.Value) + " of " + g.Of + "'s"
}

// bestPeer stands for the best comparable limiter other than Ral.
const bestPeer = "the best exact peer"

// goals are the goals of Ral. docs/performance.md says what stands in the way of
// those that are missed.
var goals = []struct {
	workload, of string
	measure      measure
	most         float64
}{
	{"hot-pass", "x/time+sync.Map", costs, 0.5},
	{"hot-pass", "xsync map", costs, 1.25},
	{"hot-refused", "go-limiter", costs, 0.5},
	{"uniform", "x/time+xsync", costs, 0.55},
	{"uniform", "xsync map", costs, 1.1},
	{"uniform", bestPeer, tails, 0.55},
	{"zipf", "x/time+xsync", costs, 0.55},
	{"flood", "x/time+sync.Map", costs, 1},
	{"memory", "", bytesPerKey, 100},
	{"growth", "", worst, float64(5 * time.Millisecond)},
}

// measure is a figure that goals and verdict compare.
type measure struct {
	name   string
	better int // as Figure.Better
	show   func(float64) string
	value  func(bench.Result) (float64, bool)
	// rounds, if not nil, returns the values by round, which are then compared
	// within each round.
	rounds func(bench.Pass) float64
}

var (
	speed = measure{"ops/s", +1, format.Count, func(r bench.Result) (float64, bool) { return r.OpsPerSecond.Median, len(r.Rounds) > 0 }, nil}
	costs = measure{"ns/op", -1, format.Digits, func(r bench.Result) (float64, bool) { return r.NsPerOp.Median, len(r.Rounds) > 0 }, bench.Pass.NsPerOp}
	tails = measure{"p99.9", -1, format.Nanoseconds, latencyOf(func(l bench.Latency) time.Duration { return l.P999 }), nil}
	worst = measure{"worst", -1, format.Nanoseconds, latencyOf(func(l bench.Latency) time.Duration { return l.Worst }), nil}

	bytesPerKey = measure{"B/key", -1, format.Digits, func(r bench.Result) (float64, bool) {
		if r.Memory == nil {
			return 0, false
		}
		return r.Memory.BytesPerKey, true
	}, nil}
)

func latencyOf(of func(bench.Latency) time.Duration) func(bench.Result) (float64, bool) {
	return func(r bench.Result) (float64, bool) {
		if r.Latency == nil {
			return 0, false
		}
		return float64(of(*r.Latency)), true
	}
}

// Goals returns the goals that the run can tell of, with what was measured. Of
// several values of GOMAXPROCS the last one counts.
func Goals(d Document) (all []Goal) {
	for _, g := range goals {
		w := lastOf(d, g.workload)
		if w == nil {
			continue
		}
		mine := ResultOf(*w, ral)
		if mine == nil {
			continue
		}
		goal := Goal{Workload: w.Name, Figure: g.measure.name, Most: g.most, Show: format.Ratio}
		value, ok := g.measure.value(*mine)
		if g.of == "" {
			goal.Value, goal.Show = value, g.measure.show
		} else if ok {
			other := ResultOf(*w, g.of)
			if g.of == bestPeer {
				other = g.measure.best(peersIn(*w))
			}
			if ok = other != nil; ok {
				goal.Of = other.Contender
				goal.Value, ok = g.measure.ratio(*mine, *other)
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

// peersIn returns the comparable limiters other than Ral.
func peersIn(w bench.WorkloadReport) (peers []bench.Result) {
	for _, r := range w.Results {
		if r.Comparable() && r.Contender != ral {
			peers = append(peers, r)
		}
	}
	return peers
}

// best returns the best of the results, nil if none has the figure.
func (m measure) best(results []bench.Result) *bench.Result {
	var have []bench.Result
	for _, r := range results {
		if _, ok := m.value(r); ok {
			have = append(have, r)
		}
	}
	if len(have) == 0 {
		return nil
	}
	best := slices.MinFunc(have, func(a, b bench.Result) int {
		x, _ := m.value(a)
		y, _ := m.value(b)
		return -m.better * cmp.Compare(x, y)
	})
	return &best
}

// ratio returns a figure as a multiple of another contender's: the median of the
// ratios within each round, if it is measured by round.
func (m measure) ratio(of, by bench.Result) (float64, bool) {
	if m.rounds != nil {
		var ratios []float64
		for i := range min(len(of.Rounds), len(by.Rounds)) {
			if x := m.rounds(by.Rounds[i]); x > 0 {
				ratios = append(ratios, m.rounds(of.Rounds[i])/x)
			}
		}
		return bench.SpreadOf(ratios).Median, len(ratios) > 0
	}
	a, ok1 := m.value(of)
	b, ok2 := m.value(by)
	if !ok1 || !ok2 || b == 0 {
		return 0, false
	}
	return a / b, true
}

// GoalTable returns the goals as a table.
func GoalTable(d Document) Table {
	t := Table{
		ID: "ral-goals", Title: "Goals of Ral", About: "What was measured, beside what Ral is to reach.",
		Columns: []string{"workload", "figure", "measured", "goal", "reached"}, Left: 2,
	}
	for _, g := range Goals(d) {
		figure := g.Figure
		if g.Of != "" {
			figure += ", times " + g.Of + "'s"
		}
		t.Rows = append(t.Rows, Row{KindPeer, []string{g.Workload, figure, g.Show(g.Value), "at most " + g.Show(g.Most), yes(g.Reached())}})
	}
	return t
}

func yes(ok bool) string {
	if ok {
		return "yes"
	}
	return "NO"
}
