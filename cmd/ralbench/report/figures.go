package report

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/ral-limiter/ral/bench"
	"github.com/ral-limiter/ral/cmd/ralbench/format"
)

// Figure is a figure of a result, for tables, goals and the verdict.
type Figure struct {
	Name string
	// Better is -1 if less is better, +1 if more is, 0 if neither.
	Better int
	Format func(float64) string
	// Value returns the figure, and false if the result has none.
	Value func(bench.Result) (float64, bool)
	// ByRound, if not nil, returns the figure of a round. Ratios are then taken within each round.
	ByRound func(bench.Pass) float64
}

var (
	speed = Figure{"ops/s", +1, format.Count, ofMedian(func(r bench.Result) *bench.Spread { return &r.OpsPerSecond }), nil}
	costs = Figure{"ns/op", -1, format.Digits, ofMedian(func(r bench.Result) *bench.Spread { return &r.NsPerOp }), bench.Pass.NsPerOp}
	tails = Figure{"p99.9", -1, format.Nanoseconds, ofLatency(func(l bench.Latency) time.Duration { return l.P999 }), nil}
	worst = Figure{"worst", -1, format.Nanoseconds, ofLatency(func(l bench.Latency) time.Duration { return l.Worst }), nil}

	bytesPerKey = Figure{"B/key", -1, format.Digits, ofMemory(func(m bench.Memory) float64 { return m.BytesPerKey }), nil}

	// roundAllocations is for goals: on busy machines the background allocates in a few % of calls.
	roundAllocations = Figure{"allocs", -1, format.Ratio, func(r bench.Result) (float64, bool) {
		return math.Round(10*r.AllocsPerOp.Median) / 10, len(r.Rounds) > 0
	}, nil}
)

// ofMedian returns the median of a figure that is never 0 if it was measured.
func ofMedian(of func(bench.Result) *bench.Spread) func(bench.Result) (float64, bool) {
	return func(r bench.Result) (float64, bool) {
		s := of(r)
		return medianOf(s), medianOf(s) > 0
	}
}

func medianOf(s *bench.Spread) float64 {
	if s == nil {
		return 0
	}
	return s.Median
}

func ofLatency(of func(bench.Latency) time.Duration) func(bench.Result) (float64, bool) {
	return func(r bench.Result) (float64, bool) {
		if r.Latency == nil {
			return 0, false
		}
		return float64(of(*r.Latency)), true
	}
}

func ofMemory(of func(bench.Memory) float64) func(bench.Result) (float64, bool) {
	return func(r bench.Result) (float64, bool) {
		if r.Memory == nil {
			return 0, false
		}
		return of(*r.Memory), true
	}
}

func always(of func(bench.Result) float64) func(bench.Result) (float64, bool) {
	return func(r bench.Result) (float64, bool) { return of(r), true }
}

// nothing stands in a cell without a figure.
const nothing = "-"

func (f Figure) Show(r bench.Result) string {
	if x, ok := f.Value(r); ok {
		return f.Format(x)
	}
	return nothing
}

// best returns the best of the results, nil if none has the figure.
func (f Figure) best(results []bench.Result) *bench.Result {
	have := slices.DeleteFunc(slices.Clone(results), func(r bench.Result) bool { _, ok := f.Value(r); return !ok })
	if len(have) == 0 {
		return nil
	}
	best := slices.MinFunc(have, func(a, b bench.Result) int {
		x, _ := f.Value(a)
		y, _ := f.Value(b)
		return -f.Better * cmp.Compare(x, y)
	})
	return &best
}

// ratio returns a figure relative to another contender: the median over rounds, with ByRound.
func (f Figure) ratio(of, by bench.Result) (float64, bool) {
	if f.ByRound != nil {
		s, ok := bench.Ratios(of.Rounds, by.Rounds, f.ByRound)
		return s.Median, ok
	}
	a, ok1 := f.Value(of)
	b, ok2 := f.Value(by)
	return a / b, ok1 && ok2 && b != 0
}

func percents(x float64) string { return fmt.Sprintf("±%.0f%%", 100*x) }
