package report

import (
	"fmt"
	"slices"
	"time"

	"github.com/ral-limiter/ral/bench"
	"github.com/ral-limiter/ral/cmd/ralbench/format"
)

// Column is a column of a table. Its width is the same in all workloads, so that
// the eye finds its way down.
type Column struct {
	Name  string
	Width int
	// Group says which columns belong together: if a table has to be split, it is
	// split between groups.
	Group int
	Figure
}

// baseColumn is the column of multiples of a workload's base, which is Choke.
const baseColumn = "x Choke"

// NeedsBase reports whether only workloads with a base have the column.
func (c Column) NeedsBase() bool { return c.Name == baseColumn }

// Groups of columns.
const (
	groupSpeed = iota
	groupCalls
	groupLatency
	groupMemory
)

// Columns are the columns of each workload's table, after the contender's.
var Columns = []Column{
	{"ops/s", 7, groupSpeed, Figure{Better: +1,
		Show:  func(r bench.Result) string { return format.Count(r.OpsPerSecond.Median) },
		Value: func(r bench.Result) (float64, bool) { return r.OpsPerSecond.Median, true }}},
	{"cpus", 5, groupSpeed, Figure{
		Show: func(r bench.Result) string { return fmt.Sprintf("%.1f", r.CPUs.Median) }}},
	{"ns/op", 6, groupSpeed, Figure{Better: -1,
		Show:  func(r bench.Result) string { return format.Digits(r.NsPerOp.Median) },
		Value: func(r bench.Result) (float64, bool) { return r.NsPerOp.Median, true }}},
	{"spread", 7, groupSpeed, Figure{Show: spread}},
	{"x floor", 8, groupSpeed, ratioTo(func(r bench.Result) *bench.Spread { return r.OfFloor })},
	{"x map", 7, groupSpeed, ratioTo(func(r bench.Result) *bench.Spread { return r.OfMap })},
	{baseColumn, 8, groupSpeed, ratioTo(func(r bench.Result) *bench.Spread { return r.OfBase })},
	{"allocs", 7, groupCalls, Figure{Better: -1,
		Show:  func(r bench.Result) string { return fmt.Sprintf("%.2f", r.AllocsPerOp.Median) },
		Value: func(r bench.Result) (float64, bool) { return r.AllocsPerOp.Median, true }}},
	{"B/op", 5, groupCalls, Figure{Better: -1,
		Show:  func(r bench.Result) string { return format.Digits(r.BytesPerOp.Median) },
		Value: func(r bench.Result) (float64, bool) { return r.BytesPerOp.Median, true }}},
	{"refused", 8, groupCalls, Figure{
		Show: func(r bench.Result) string { return format.Percent(r.RefusedShare) }}},
	{"p50", 7, groupLatency, latency(func(l bench.Latency) time.Duration { return l.P50 })},
	{"p99", 7, groupLatency, latency(func(l bench.Latency) time.Duration { return l.P99 })},
	{"p99.9", 7, groupLatency, latency(func(l bench.Latency) time.Duration { return l.P999 })},
	{"worst", 7, groupLatency, latency(func(l bench.Latency) time.Duration { return l.Worst })},
}

// MemoryColumns are the columns of a further table if memory was measured.
var MemoryColumns = []Column{
	{"B/key", 7, groupMemory, Figure{Better: -1,
		Show:  ofMemory(func(m bench.Memory) string { return format.Digits(m.BytesPerKey) }),
		Value: func(r bench.Result) (float64, bool) { return r.Memory.BytesPerKey, true }}},
	{"heap", 8, groupMemory, Figure{Show: ofMemory(func(m bench.Memory) string { return format.Count(float64(m.FullHeap)) + "B" })}},
	{"full GC", 8, groupMemory, Figure{Better: -1,
		Show:  ofMemory(func(m bench.Memory) string { return format.Duration(m.GC) }),
		Value: func(r bench.Result) (float64, bool) { return float64(r.Memory.GC), true }}},
	{"before", 8, groupMemory, Figure{Show: ofMemory(func(m bench.Memory) string { return format.Duration(m.GCBefore) })}},
	{"idle heap", 10, groupMemory, Figure{Better: -1,
		Show: ofMemory(func(m bench.Memory) string {
			switch {
			case m.IdleUnknown:
				return nothing
			case m.Idle == 0:
				return "keeps all"
			}
			return format.Percent(m.IdleShare())
		}),
		Value: func(r bench.Result) (float64, bool) { return r.Memory.IdleShare(), !r.Memory.IdleUnknown }}},
}

// nothing stands in a cell without a figure.
const nothing = "-"

func spread(r bench.Result) string {
	if len(r.Rounds) < 2 {
		return nothing
	}
	return fmt.Sprintf("±%.0f%%", 100*r.NsPerOp.Relative())
}

func ratioTo(of func(bench.Result) *bench.Spread) Figure {
	return Figure{Better: -1,
		Show: func(r bench.Result) string {
			if s := of(r); s != nil {
				return format.Ratio(s.Median)
			}
			return nothing
		},
		Value: func(r bench.Result) (float64, bool) {
			if s := of(r); s != nil {
				return s.Median, true
			}
			return 0, false
		},
	}
}

func latency(of func(bench.Latency) time.Duration) Figure {
	return Figure{Better: -1,
		Show: func(r bench.Result) string {
			if r.Latency == nil {
				return nothing
			}
			return format.Duration(of(*r.Latency))
		},
		Value: func(r bench.Result) (float64, bool) {
			if r.Latency == nil {
				return 0, false
			}
			return float64(of(*r.Latency)), true
		},
	}
}

func ofMemory(show func(bench.Memory) string) func(bench.Result) string {
	return func(r bench.Result) string { return show(*r.Memory) }
}

// KnownCells returns a further row of a result: the latencies of known keys, in the
// columns of latencies. It is nil if there are no such columns.
func KnownCells(r bench.Result, columns []Column) []string {
	of := bench.Result{Latency: r.Known}
	row := make([]string, len(columns))
	found := false
	for i, c := range columns {
		if c.Group == groupLatency {
			row[i], found = c.Show(of)+NoMark, true
		}
	}
	if !found {
		return nil
	}
	return row
}

// Filled returns the columns in which any result has something to show.
func Filled(columns []Column, results []bench.Result) (filled []Column) {
	for _, c := range columns {
		if slices.ContainsFunc(results, func(r bench.Result) bool { return c.Show(r) != nothing }) {
			filled = append(filled, c)
		}
	}
	return filled
}
