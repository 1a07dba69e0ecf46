// Package compare compares two runs of ralbench and tells which differences are more
// than noise. It draws nothing.
//
// Start reading at [Runs], then [Rule].
package compare

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/ral-limiter/ral/bench"
	"github.com/ral-limiter/ral/cmd/ralbench/format"
	"github.com/ral-limiter/ral/cmd/ralbench/report"
)

// Comparison is an earlier run beside a later one.
type Comparison struct {
	Old, New report.Document
	OldName  string   // the file
	Notes    []string // differences of machine and settings
	Tasks    []Task
}

// Task is a workload at a number of processors that both runs have.
type Task struct {
	Name  string
	CPU   int
	Notes []string // differences of its settings
	Rows  []Row
}

// Row is one measure of one contender.
type Row struct {
	Contender string
	Measure   string
	Lower     bool // lower is better
	// Old and New are the medians over the rounds, as measured; Ratio is New as a
	// multiple of Old.
	Old, New, Ratio float64
	// OfBase is the ratio of the medians of the ratios to the baseline. It is NaN if
	// one of the runs has no baseline. Otherwise the verdict goes by it.
	OfBase  float64
	P       float64 // NaN if there was no test
	Verdict Verdict

	format func(float64) string
}

// measure is something that runs are compared by.
type measure struct {
	name   string
	lower  bool // lower is better
	format func(float64) string
	// rounds returns its values, round by round.
	rounds func(bench.Result) []float64
	// base, if not nil, returns a second figure of the baseline. The values count as
	// changed only if they are changed against both.
	base func(bench.Result) []float64
	// figure returns its only value, for what is measured once; nil for others.
	figure func(bench.Result) (float64, bool)
}

var typical = overLatencies(func(l bench.Latency) time.Duration { return l.P50 })

var measures = []measure{
	{name: "ops/s", format: format.Count, rounds: overPasses(bench.Pass.OpsPerSecond)},
	{name: "ns/op", lower: true, format: format.Digits, rounds: overPasses(bench.Pass.NsPerOp)},
	{name: "p50", lower: true, format: format.Nanoseconds, rounds: typical},
	// The baseline's tail tells how often the machine was taken away and the caches
	// emptied; its p50 tells how fast the machine is. Either alone is a poor measure
	// for the tail of others: the tail varies too much; the p50 does not show other
	// load.
	{name: "p99", lower: true, format: format.Nanoseconds, rounds: overLatencies(func(l bench.Latency) time.Duration { return l.P99 }), base: typical},
	{name: "p99.9", lower: true, format: format.Nanoseconds, rounds: overLatencies(func(l bench.Latency) time.Duration { return l.P999 }), base: typical},
	{name: "B/key", lower: true, format: format.Digits, figure: memoryFigure(func(m bench.Memory) float64 { return m.BytesPerKey })},
	{name: "GC", lower: true, format: format.Nanoseconds, figure: memoryFigure(func(m bench.Memory) float64 { return float64(m.GC) })},
	{name: "idle heap", lower: true, format: format.Size, figure: idleHeap},
}

func overPasses(f func(bench.Pass) float64) func(bench.Result) []float64 {
	return func(r bench.Result) (values []float64) {
		for _, p := range r.Rounds {
			if p.Calls > 0 {
				values = append(values, f(p))
			}
		}
		return values
	}
}

func overLatencies(f func(bench.Latency) time.Duration) func(bench.Result) []float64 {
	return func(r bench.Result) (values []float64) {
		for _, l := range r.LatencyRounds {
			values = append(values, float64(f(l)))
		}
		return values
	}
}

func memoryFigure(f func(bench.Memory) float64) func(bench.Result) (float64, bool) {
	return func(r bench.Result) (float64, bool) {
		if r.Memory == nil {
			return 0, false
		}
		return f(*r.Memory), true
	}
}

func idleHeap(r bench.Result) (float64, bool) {
	if r.Memory == nil || r.Memory.IdleUnknown {
		return 0, false
	}
	return float64(r.Memory.IdleHeap), true
}

// Runs compares what both runs have.
func Runs(oldName string, old, new report.Document) Comparison {
	c := Comparison{Old: old, New: new, OldName: oldName, Notes: differences(old, new)}
	for _, now := range new.Workloads {
		i := slices.IndexFunc(old.Workloads, func(w bench.WorkloadReport) bool { return w.Name == now.Name && w.CPU == now.CPU })
		if i < 0 {
			continue
		}
		before := old.Workloads[i]
		t := Task{Name: now.Name, CPU: now.CPU, Notes: taskDifferences(before, now)}
		oldBase, newBase := baselines(before, now)
		for _, n := range now.Results {
			if o := report.ResultOf(before, n.Contender); o != nil {
				for _, m := range measures {
					if r, ok := m.compare(*o, n, oldBase, newBase); ok {
						if len(t.Notes) > 0 {
							r.Verdict = otherTask
						}
						t.Rows = append(t.Rows, r)
					}
				}
			}
		}
		if len(t.Rows) > 0 {
			c.Tasks = append(c.Tasks, t)
		}
	}
	return c
}

// baselines returns the yardstick that both have, the xsync map if possible; nil for
// both if there is none.
func baselines(old, new bench.WorkloadReport) (a, b *bench.Result) {
	for _, y := range []bench.Yardstick{bench.YardstickMap, bench.YardstickFloor} {
		if a, b = old.Yardstick(y), new.Yardstick(y); a != nil && b != nil {
			return a, b
		}
	}
	return nil, nil
}

// compare returns false if one of the results has nothing of it.
func (m measure) compare(old, new bench.Result, oldBase, newBase *bench.Result) (Row, bool) {
	r := Row{Contender: new.Contender, Measure: m.name, Lower: m.lower, OfBase: math.NaN(), P: math.NaN(), format: m.format}
	if m.figure != nil {
		before, ok1 := m.figure(old)
		now, ok2 := m.figure(new)
		r.Old, r.New, r.Ratio = before, now, ratio(before, now)
		r.Verdict = judgeSingle(before, now)
		return r, ok1 && ok2
	}
	before, now := m.rounds(old), m.rounds(new)
	if len(before) == 0 || len(now) == 0 {
		return r, false
	}
	r.Old, r.New = bench.SpreadOf(before).Median, bench.SpreadOf(now).Median
	r.Ratio = ratio(r.Old, r.New)
	r.Verdict, r.P = judge(before, now, m.lower)
	if !new.IsLimiter() {
		r.Verdict = onlyMachine
		return r, true
	}
	if oldBase == nil {
		return r, true
	}
	if a, b := inEachRound(before, m.rounds(*oldBase)), inEachRound(now, m.rounds(*newBase)); a != nil && b != nil {
		r.OfBase = ratio(bench.SpreadOf(a).Median, bench.SpreadOf(b).Median)
		r.Verdict, r.P = judge(a, b, m.lower)
		if m.base == nil {
			return r, true
		}
		if a, b = inEachRound(before, m.base(*oldBase)), inEachRound(now, m.base(*newBase)); a != nil && b != nil {
			if v, p := judge(a, b, m.lower); v != r.Verdict {
				r.Verdict, r.P = noise, max(p, r.P)
			}
		}
	}
	return r, true
}

// inEachRound returns the values as multiples of the baseline's in the same round,
// nil if they are not of the same rounds.
func inEachRound(values, base []float64) []float64 {
	if len(values) != len(base) {
		return nil
	}
	ratios := make([]float64, len(values))
	for i := range values {
		if base[i] <= 0 {
			return nil
		}
		ratios[i] = values[i] / base[i]
	}
	return ratios
}

// Columns are the columns of the comparison, on the terminal and on the page.
var Columns = []string{"contender", "measure", "old", "new", "ratio", "by map", "p", "verdict"}

// Legend explains the columns.
const Legend = "ratio: new as a multiple of old. by map: the same of the ratios to the xsync map."

// Cells returns the texts of a row.
func (r Row) Cells() []string {
	p := "-"
	if !math.IsNaN(r.P) {
		p = fmt.Sprintf("%.3f", r.P)
	}
	return []string{r.Contender, r.Measure, r.format(r.Old), r.format(r.New), format.Ratio(r.Ratio), format.Ratio(r.OfBase), p, r.Verdict.String()}
}

// change says in words how the measure changed.
func (r Row) change() string {
	s := fmt.Sprintf("%s %s, was %s", r.Measure, r.format(r.New), r.format(r.Old))
	by := r.Ratio
	if !math.IsNaN(r.OfBase) {
		by = r.OfBase
		s += "; beside the xsync map"
	}
	return fmt.Sprintf("%s %+.0f%%, p %.3f", s, 100*(by-1), r.P)
}

// Change is a difference that is more than noise.
type Change struct {
	Verdict Verdict
	Text    string
}

// Changes lists the differences that are more than noise, the worse ones first.
func (c Comparison) Changes() (all []Change) {
	for _, v := range []Verdict{Worse, Better} {
		for _, t := range c.Tasks {
			for _, r := range t.Rows {
				if r.Verdict == v {
					all = append(all, Change{v, fmt.Sprintf("%s, %s: %s", format.Task(t.Name, t.CPU), r.Contender, r.change())})
				}
			}
		}
	}
	return all
}

// Summary counts the verdicts in a sentence.
func (c Comparison) Summary() string {
	t := TallyOf(c.Tasks...)
	s := t.String()
	if chance := alpha * float64(t.Better+t.Worse+t.Noise); chance >= 1 {
		s += fmt.Sprintf("; if nothing had changed, up to %.0f would look better or worse by chance", chance)
	}
	return s + "."
}

// Tally counts verdicts.
type Tally struct{ Better, Worse, Noise, Unjudged int }

// String returns the tally in words.
func (t Tally) String() string {
	var words []string
	for _, part := range []struct {
		n    int
		what string
	}{{t.Better, "better"}, {t.Worse, "worse"}, {t.Noise, "no more than noise"}, {t.Unjudged, "not judged"}} {
		if part.n > 0 {
			words = append(words, fmt.Sprintf("%d %s", part.n, part.what))
		}
	}
	return strings.Join(words, ", ")
}

// TallyOf counts the verdicts of tasks. Those about a yardstick do not count.
func TallyOf(tasks ...Task) (t Tally) {
	for _, task := range tasks {
		for _, r := range task.Rows {
			switch r.Verdict {
			case Better:
				t.Better++
			case Worse:
				t.Worse++
			case noise:
				t.Noise++
			case onlyMachine:
			default:
				t.Unjudged++
			}
		}
	}
	return t
}
