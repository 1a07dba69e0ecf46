package main

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/ral-limiter/ral/bench"
)

// comparison is an earlier run beside a later one.
type comparison struct {
	Old, New document
	OldName  string   // the file
	Notes    []string // what makes the two differ from the beginning
	Tasks    []task
}

// task is a workload at a number of processors that both runs have.
type task struct {
	Name  string
	CPU   int
	Notes []string // how its settings differ
	Rows  []row
}

// row is one measure of one contender.
type row struct {
	Contender string
	Measure   string
	Lower     bool // is better
	// Old and New are as they were measured, the medians over the rounds; Ratio
	// is New as a multiple of Old.
	Old, New, Ratio float64
	// OfFloor is the ratio of the medians of the ratios to the floor, NaN if one
	// of the runs has no floor. Where there is one, the verdict goes by it.
	OfFloor float64
	P       float64 // NaN if there was no test
	Verdict verdict

	format func(float64) string
}

// measure is something that runs are compared by.
type measure struct {
	name   string
	lower  bool // is better
	format func(float64) string
	// rounds returns its values, round by round.
	rounds func(bench.Result) []float64
	// base, if not nil, is what else of the floor the values are set against:
	// they count as changed only if they are against both.
	base func(bench.Result) []float64
	// figure returns its only value, for what is measured once; nil for others.
	figure func(bench.Result) (float64, bool)
}

var typical = overLatencies(func(l bench.Latency) time.Duration { return l.P50 })

var measures = []measure{
	{name: "ops/s", format: count, rounds: overPasses(bench.Pass.OpsPerSecond)},
	{name: "ns/op", lower: true, format: digits, rounds: overPasses(bench.Pass.NsPerOp)},
	{name: "p50", lower: true, format: nanoseconds, rounds: typical},
	// The floor's tail tells how often the machine was taken away and the caches
	// emptied, its p50 how fast it is. Either alone is a poor measure for the tail
	// of others: the one is fickle, the other misses who else was at work.
	{name: "p99", lower: true, format: nanoseconds, rounds: overLatencies(func(l bench.Latency) time.Duration { return l.P99 }), base: typical},
	{name: "p99.9", lower: true, format: nanoseconds, rounds: overLatencies(func(l bench.Latency) time.Duration { return l.P999 }), base: typical},
	{name: "B/key", lower: true, format: digits, figure: memoryFigure(func(m bench.Memory) float64 { return m.BytesPerKey })},
	{name: "GC", lower: true, format: nanoseconds, figure: memoryFigure(func(m bench.Memory) float64 { return float64(m.GC) })},
	{name: "idle heap", lower: true, format: size, figure: memoryFigure(func(m bench.Memory) float64 { return float64(m.IdleHeap) })},
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

// compare compares what both runs have.
func compare(oldName string, old, new document) comparison {
	c := comparison{Old: old, New: new, OldName: oldName, Notes: differences(old, new)}
	for _, now := range new.Workloads {
		i := slices.IndexFunc(old.Workloads, func(w bench.WorkloadReport) bool { return w.Name == now.Name && w.CPU == now.CPU })
		if i < 0 {
			continue
		}
		before := old.Workloads[i]
		t := task{Name: now.Name, CPU: now.CPU, Notes: taskDifferences(before, now)}
		oldFloor, newFloor := floorOf(before), floorOf(now)
		for _, n := range now.Results {
			if o := resultOf(before, n.Contender); o != nil {
				for _, m := range measures {
					if r, ok := m.compare(*o, n, oldFloor, newFloor); ok {
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

// compare returns false if one of the results has nothing of it.
func (m measure) compare(old, new bench.Result, oldFloor, newFloor *bench.Result) (row, bool) {
	r := row{Contender: new.Contender, Measure: m.name, Lower: m.lower, OfFloor: math.NaN(), P: math.NaN(), format: m.format}
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
	if new.IsFloor {
		_, r.P = judge(before, now, m.lower)
		r.Verdict = onlyMachine
		return r, true
	}
	r.Verdict, r.P = judge(before, now, m.lower)
	if oldFloor == nil || newFloor == nil {
		return r, true
	}
	if a, b := inEachRound(before, m.rounds(*oldFloor)), inEachRound(now, m.rounds(*newFloor)); a != nil && b != nil {
		r.OfFloor = ratio(bench.SpreadOf(a).Median, bench.SpreadOf(b).Median)
		r.Verdict, r.P = judge(a, b, m.lower)
		if m.base == nil {
			return r, true
		}
		if a, b = inEachRound(before, m.base(*oldFloor)), inEachRound(now, m.base(*newFloor)); a != nil && b != nil {
			if v, p := judge(a, b, m.lower); v != r.Verdict {
				r.Verdict, r.P = noise, max(p, r.P)
			}
		}
	}
	return r, true
}

// inEachRound returns the values as multiples of the floor's in the same round,
// nil if they do not belong together.
func inEachRound(values, floor []float64) []float64 {
	if len(values) != len(floor) {
		return nil
	}
	ratios := make([]float64, len(values))
	for i := range values {
		if floor[i] <= 0 {
			return nil
		}
		ratios[i] = values[i] / floor[i]
	}
	return ratios
}

func floorOf(w bench.WorkloadReport) *bench.Result {
	for i := range w.Results {
		if w.Results[i].IsFloor {
			return &w.Results[i]
		}
	}
	return nil
}

func resultOf(w bench.WorkloadReport, contender string) *bench.Result {
	for i := range w.Results {
		if w.Results[i].Contender == contender {
			return &w.Results[i]
		}
	}
	return nil
}

// tally counts verdicts.
type tally struct{ Better, Worse, Noise, Unjudged int }

// String returns the tally in words.
func (t tally) String() string {
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

func tallyOf(tasks []task) (t tally) {
	for _, task := range tasks {
		for _, r := range task.Rows {
			switch r.Verdict {
			case better:
				t.Better++
			case worse:
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

func nanoseconds(x float64) string { return duration(time.Duration(x)) }

// size writes a size with its unit.
func size(x float64) string {
	for _, u := range []struct {
		unit float64
		name string
	}{{1 << 30, "GiB"}, {1 << 20, "MiB"}, {1 << 10, "KiB"}} {
		if math.Abs(x) >= u.unit {
			return digits(x/u.unit) + " " + u.name
		}
	}
	return digits(x) + " B"
}
