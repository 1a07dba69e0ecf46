package report

import (
	"fmt"
	"slices"
	"time"

	"github.com/ral-limiter/ral/bench"
	"github.com/ral-limiter/ral/cmd/ralbench/format"
)

// Column is a column of a table, with the same width in all workloads.
type Column struct {
	Figure
	Width int
	// Group says which columns belong together: tables are split between groups.
	Group int
}

const (
	groupSpeed = iota
	groupCalls
	groupLatency
	groupMemory
)

// Columns are the columns of each workload's table, after the contender's.
var Columns = []Column{
	{speed, 7, groupSpeed},
	{Figure{"cpus", 0, func(x float64) string { return fmt.Sprintf("%.1f", x) }, always(func(r bench.Result) float64 { return r.CPUs.Median }), nil}, 5, groupSpeed},
	{costs, 6, groupSpeed},
	{Figure{"spread", 0, percents, func(r bench.Result) (float64, bool) { return r.NsPerOp.Relative(), len(r.Rounds) > 1 }, nil}, 7, groupSpeed},
	{Figure{"x floor", -1, format.Ratio, ofMedian(func(r bench.Result) *bench.Spread { return r.OfFloor }), nil}, 8, groupSpeed},
	{Figure{"x map", -1, format.Ratio, ofMedian(func(r bench.Result) *bench.Spread { return r.OfMap }), nil}, 7, groupSpeed},
	{Figure{"x Choke", -1, format.Ratio, ofMedian(func(r bench.Result) *bench.Spread { return r.OfBase }), nil}, 8, groupSpeed},
	{Figure{"allocs", -1, format.Ratio, always(func(r bench.Result) float64 { return r.AllocsPerOp.Median }), nil}, 7, groupCalls},
	{Figure{"B/op", -1, format.Digits, always(func(r bench.Result) float64 { return r.BytesPerOp.Median }), nil}, 5, groupCalls},
	{Figure{"refused", 0, format.Percent, always(func(r bench.Result) float64 { return r.RefusedShare }), nil}, 8, groupCalls},
	{Figure{"p50", -1, format.Nanoseconds, ofLatency(func(l bench.Latency) time.Duration { return l.P50 }), nil}, 7, groupLatency},
	{Figure{"p99", -1, format.Nanoseconds, ofLatency(func(l bench.Latency) time.Duration { return l.P99 }), nil}, 7, groupLatency},
	{tails, 7, groupLatency},
	{worst, 7, groupLatency},
}

// MemoryColumns are the columns of a further table if memory was measured.
var MemoryColumns = []Column{
	{bytesPerKey, 7, groupMemory},
	{Figure{"heap", 0, format.Bytes, ofMemory(func(m bench.Memory) float64 { return float64(m.FullHeap) }), nil}, 8, groupMemory},
	{Figure{"full GC", -1, format.Nanoseconds, ofMemory(func(m bench.Memory) float64 { return float64(m.GC) }), nil}, 8, groupMemory},
	{Figure{"before", 0, format.Nanoseconds, ofMemory(func(m bench.Memory) float64 { return float64(m.GCBefore) }), nil}, 8, groupMemory},
	{Figure{"idle heap", -1, keptShare, func(r bench.Result) (float64, bool) {
		if r.Memory == nil {
			return 0, false
		}
		return r.Memory.IdleShare(), !r.Memory.IdleUnknown
	}, nil}, 10, groupMemory},
}

// WithMemory returns the results with memory, and a note for readers.
func WithMemory(w bench.WorkloadReport) (results []bench.Result, about string) {
	var idle time.Duration
	for _, r := range w.Results {
		if r.Memory != nil {
			results = append(results, r)
			idle = max(idle, r.Memory.Idle)
		}
	}
	if len(results) == 0 {
		return nil, ""
	}
	m := results[0].Memory
	return results, fmt.Sprintf("heap of %s keys without the %s bytes of their names, and what is left of it after %s of idling:",
		format.Thousands(int64(m.Keys)), format.Thousands(m.KeyBytes), format.Short(idle))
}

func keptShare(x float64) string {
	if x == 1 {
		return "keeps all"
	}
	return format.Percent(x)
}

// Mark ends a cell that is the best of its column, NoMark any other cell.
const (
	Mark   = "*"
	NoMark = " "
)

// Cells returns a row of cells for each result. The best comparable results of a column are marked,
// unless all look the same or there is a single result.
func Cells(columns []Column, results []bench.Result) [][]string {
	rows := make([][]string, len(results))
	for _, c := range columns {
		competes := func(r bench.Result) bool { return c.Better != 0 && r.Comparable() && c.Show(r) != nothing }
		peers := slices.DeleteFunc(slices.Clone(results), func(r bench.Result) bool { return !competes(r) })
		best := ""
		if r := c.best(peers); r != nil {
			best = c.Show(*r)
		}
		all := !slices.ContainsFunc(peers, func(r bench.Result) bool { return c.Show(r) != best })
		for i, r := range results {
			text, end := c.Show(r), NoMark
			if !all && competes(r) && text == best {
				end = Mark
			}
			rows[i] = append(rows[i], text+end)
		}
	}
	return rows
}

// KnownCells returns a further row with the latencies of known keys, nil if there are none.
func KnownCells(r bench.Result, columns []Column) []string {
	if r.Known == nil || !slices.ContainsFunc(columns, func(c Column) bool { return c.Group == groupLatency }) {
		return nil
	}
	of := bench.Result{Latency: r.Known}
	row := make([]string, len(columns))
	for i, c := range columns {
		if c.Group == groupLatency {
			row[i] = c.Show(of) + NoMark
		}
	}
	return row
}

// Filled returns the columns with something to show in any result.
func Filled(columns []Column, results []bench.Result) []Column {
	return slices.DeleteFunc(slices.Clone(columns), func(c Column) bool {
		return !slices.ContainsFunc(results, func(r bench.Result) bool { return c.Show(r) != nothing })
	})
}

const (
	InexactSign = "~" // not exact by its own design
	BrokenSign  = "!" // admitted more than its promise
)

// Label returns a contender's name with its signs.
func Label(r bench.Result) string {
	signs := ""
	if r.IsLimiter() && !r.Exact {
		signs += InexactSign
	}
	if r.Audit != nil && !r.Audit.Clean() {
		signs += BrokenSign
	}
	if signs == "" {
		return r.Contender
	}
	return r.Contender + " " + signs
}
