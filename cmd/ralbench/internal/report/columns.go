package report

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/ral-limiter/ral/bench"
	"github.com/ral-limiter/ral/cmd/ralbench/internal/format"
)

// Column is a figure of a result: for tables, charts, goals, the verdict and the format of Go
// benchmarks.
type Column struct {
	Name string
	// Unit is the figure's unit in the format of Go benchmarks, empty if it is not there.
	Unit string
	// Better is -1 if less is better, +1 if more is, 0 if neither.
	Better int
	Format func(float64) string
	// Width is the width in all workloads' tables, 0 if the figure is in none. Tables are split
	// between groups.
	Width, Group int

	// Pass returns the figure of a round, and ratios are taken within each round. Of returns the figure
	// over the rounds if that is not their spread. A figure that can be 0 has Zero set; another is
	// unknown then.
	Of   func(bench.Result) bench.Spread
	Zero bool
	Pass func(bench.Pass) float64
	// Latency, or Memory, stands in place of Of for a figure of these. Memory is negative if it is
	// unknown.
	Latency func(bench.Latency) time.Duration
	Memory  func(bench.Memory) float64

	// Chart is the chart of bars of the figure, or nil.
	Chart *Chart
}

// Chart describes a chart of bars by contender.
type Chart struct{ ID, Title, Axis, Unit string }

// Units of charts.
const (
	UnitRate  = "rate"
	UnitTime  = "time" // nanoseconds
	UnitTimes = "times"
	UnitBytes = "bytes"
	UnitShare = "share"
)

const (
	groupSpeed = iota
	groupCalls
	groupLatency
	groupMemory
)

var (
	speed = Column{Name: "ops/s", Unit: "ops/s", Better: +1, Format: format.Count, Width: 7,
		Of: func(result bench.Result) bench.Spread { return result.OpsPerSecond }, Pass: bench.Pass.OpsPerSecond,
		Chart: &Chart{"throughput", "Throughput", "calls a second, all callers together", UnitRate}}
	costs = Column{Name: "ns/op", Unit: "ns/op", Better: -1, Format: format.Digits, Width: 6,
		Of: func(result bench.Result) bench.Spread { return result.NsPerOp }, Pass: bench.Pass.NsPerOp,
		Chart: &Chart{"cost", "Processor time of a call", "processor time of a call", UnitTime}}
	share = Column{Name: "share", Better: +1, Format: format.Percent, Width: 7,
		Of:    func(result bench.Result) bench.Spread { return single(result.Share) },
		Chart: &Chart{"share", "Usable share", "admitted part of capacity + rate × time", UnitShare}}
	half   = latency("p50", "p50-ns", func(latency bench.Latency) time.Duration { return latency.P50 })
	middle = latency("p99", "p99-ns", func(latency bench.Latency) time.Duration { return latency.P99 })
	tails  = latency("p99.9", "p99.9-ns", func(latency bench.Latency) time.Duration { return latency.P999 })
	worst  = latency("worst", "", func(latency bench.Latency) time.Duration { return latency.Worst })

	bytesPerKey = Column{Name: "B/key", Unit: "B/key", Better: -1, Format: format.Digits, Width: 7, Group: groupMemory,
		Memory: func(memory bench.Memory) float64 { return memory.BytesPerKey }, Chart: &Chart{"key", "Memory a key", "bytes a key", UnitBytes}}
	usage = Column{Name: "USAGE", Better: -1, Format: format.Digits, Width: 7, Group: groupMemory,
		Memory: func(memory bench.Memory) float64 { return known(memory.Usage) }}

	// roundAllocations is for goals: on busy machines the background allocates in a few % of calls.
	roundAllocations = Column{Name: "allocs", Better: -1, Format: format.Ratio, Zero: true, Of: func(result bench.Result) bench.Spread {
		return single(math.Round(10*result.Over(allocations).Median) / 10)
	}}
)

// goalFigures are the figures that goals are about.
var goalFigures = []Column{speed, costs, share, middle, tails, worst, bytesPerKey, usage, roundAllocations}

// Columns are the columns of each workload's table, after the contender's.
var Columns = []Column{
	speed,
	{Name: "cpus", Format: func(value float64) string { return fmt.Sprintf("%.1f", value) }, Width: 5,
		Pass: func(pass bench.Pass) float64 { return float64(pass.CPU) / float64(max(pass.Elapsed, 1)) }},
	costs,
	{Name: "spread", Format: func(value float64) string { return fmt.Sprintf("±%.0f%%", 100*value) }, Width: 7, Zero: true, Of: spread},
	{Name: "x floor", Better: -1, Format: format.Ratio, Width: 8, Of: func(result bench.Result) bench.Spread { return orNone(result.OfFloor) }},
	{Name: "x map", Better: -1, Format: format.Ratio, Width: 7, Of: func(result bench.Result) bench.Spread { return orNone(result.OfMap) }},
	{Name: xBase, Better: -1, Format: format.Ratio, Width: 8, Of: func(result bench.Result) bench.Spread { return orNone(result.OfBase) }},
	{Name: "Redis ns/op", Better: -1, Format: format.Digits, Width: 12, Pass: bench.Pass.BehindNsPerOp,
		Chart: &Chart{"redis", "Redis's processor time of a call", "processor time of redis-server by call", UnitTime}},
	{Name: "with ns/op", Better: -1, Format: format.Digits, Width: 11, Pass: together},
	share,
	{Name: "allocs", Unit: "allocs/op", Better: -1, Format: format.Ratio, Width: 7, Group: groupCalls, Zero: true, Pass: allocations},
	{Name: "B/op", Unit: "B/op", Better: -1, Format: format.Digits, Width: 5, Group: groupCalls, Zero: true,
		Pass: func(pass bench.Pass) float64 { return float64(pass.Bytes) / float64(max(pass.Calls, 1)) }},
	{Name: "refused", Format: format.Percent, Width: 8, Group: groupCalls, Zero: true, Of: func(result bench.Result) bench.Spread { return single(result.RefusedShare) }},
	half,
	middle,
	tails,
	worst,
}

// MemoryColumns are the columns of a further table if memory was measured.
var MemoryColumns = []Column{
	bytesPerKey,
	usage,
	{Name: "heap", Format: format.Bytes, Width: 8, Group: groupMemory, Memory: func(memory bench.Memory) float64 { return known(float64(memory.FullHeap)) },
		Chart: &Chart{"full", "Heap with all keys", "bytes in the heap", UnitBytes}},
	{Name: "full GC", Unit: "GC-ns", Better: -1, Format: format.Nanoseconds, Width: 8, Group: groupMemory, Memory: func(memory bench.Memory) float64 { return known(float64(memory.GC)) },
		Chart: &Chart{"gc", "One garbage collection with all keys", "time of a collection", UnitTime}},
	{Name: "before", Format: format.Nanoseconds, Width: 8, Group: groupMemory, Memory: func(memory bench.Memory) float64 { return known(float64(memory.GCBefore)) }},
	{Name: "idle heap", Better: -1, Format: keptShare, Width: 10, Group: groupMemory, Memory: ifIdle(bench.Memory.IdleShare)},
	{Name: "idle", Unit: "idle-B", Format: format.Bytes, Memory: ifIdle(func(memory bench.Memory) float64 { return float64(memory.IdleHeap) }),
		Chart: &Chart{"idle", "Heap after an idle time", "bytes in the heap", UnitBytes}},
}

// Percentiles are the columns of latencies, with another for charts.
var Percentiles = []Column{half, latency("p90", "", func(latency bench.Latency) time.Duration { return latency.P90 }), middle, tails, worst}

// xBase is the name of the ratio to the base of most workloads.
const xBase = "x Choke"

// nameIn returns the column's name in the table of a workload.
func (c Column) nameIn(w bench.WorkloadReport) string {
	if c.Name == xBase && w.Base != "" && w.Base != ral {
		return "x " + w.Base
	}
	return c.Name
}

func latency(name, unit string, figure func(bench.Latency) time.Duration) Column {
	return Column{Name: name, Unit: unit, Better: -1, Format: format.Nanoseconds, Width: 7, Group: groupLatency, Latency: figure}
}

func single(value float64) bench.Spread { return bench.SpreadOf([]float64{value}) }

func orNone(spread *bench.Spread) bench.Spread {
	if spread == nil {
		return bench.Spread{}
	}
	return *spread
}

func spread(result bench.Result) bench.Spread {
	if len(result.Rounds) < 2 {
		return single(math.NaN())
	}
	return single(result.NsPerOp.Relative())
}

// together is the processor time of a call in this process and in another, 0 without the other.
func together(pass bench.Pass) float64 {
	if pass.Behind == 0 {
		return 0
	}
	return pass.BehindNsPerOp() + pass.NsPerOp()
}

func allocations(pass bench.Pass) float64 { return float64(pass.Allocs) / float64(max(pass.Calls, 1)) }

const unknown = -1

// known returns a figure of memory that is never 0 if it was measured.
func known(value float64) float64 {
	if value == 0 {
		return unknown
	}
	return value
}

func ifIdle(figure func(bench.Memory) float64) func(bench.Memory) float64 {
	return func(memory bench.Memory) float64 {
		if memory.IdleUnknown {
			return unknown
		}
		return figure(memory)
	}
}

func keptShare(value float64) string {
	if value == 1 {
		return "keeps all"
	}
	return format.Percent(value)
}

// Value returns the figure, and false if the result has none.
func (c Column) Value(result bench.Result) (bench.Spread, bool) {
	switch {
	case c.Latency != nil && result.Latency != nil:
		value := float64(c.Latency(*result.Latency))
		return single(value), value > 0
	case c.Memory != nil && result.Memory != nil:
		value := c.Memory(*result.Memory)
		return single(value), value >= 0
	case c.Of != nil || c.Pass != nil:
		figure := c.Of
		if figure == nil {
			figure = func(result bench.Result) bench.Spread { return result.Over(c.Pass) }
		}
		spread := figure(result)
		return spread, spread.Median > 0 || c.Zero && spread.Median == 0 && !result.Outside
	}
	return bench.Spread{}, false
}

// round returns the figure of a round. Memory is the first's.
func (c Column) round(result bench.Result, i int) (float64, bool) {
	switch {
	case c.Pass != nil:
		return c.Pass(result.Rounds[i]), !c.Zero || !result.Outside
	case c.Latency != nil && i < len(result.LatencyRounds):
		return float64(c.Latency(result.LatencyRounds[i])), true
	case c.Memory != nil && i == 0:
		spread, ok := c.Value(result)
		return spread.Median, ok
	}
	return 0, false
}

// nothing stands in a cell without a figure.
const nothing = "-"

func (c Column) Show(result bench.Result) string {
	if spread, ok := c.Value(result); ok {
		return c.Format(spread.Median)
	}
	return nothing
}

// best returns the best of the results, nil if none has the figure.
func (c Column) best(results []bench.Result) *bench.Result {
	have := slices.DeleteFunc(slices.Clone(results), func(result bench.Result) bool { _, ok := c.Value(result); return !ok })
	if len(have) == 0 {
		return nil
	}
	best := slices.MinFunc(have, func(a, b bench.Result) int {
		spread, _ := c.Value(a)
		y, _ := c.Value(b)
		return -c.Better * cmp.Compare(spread.Median, y.Median)
	})
	return &best
}

// marked returns the texts of the results in the column, the best comparable ones with a mark.
func (c Column) marked(results []bench.Result, texts []string) []string {
	competes := func(result bench.Result) bool {
		return c.Better != 0 && result.Comparable() && c.Show(result) != nothing
	}
	peers := slices.DeleteFunc(slices.Clone(results), func(result bench.Result) bool { return !competes(result) })
	best := c.best(peers)
	if best == nil || !slices.ContainsFunc(peers, func(result bench.Result) bool { return c.Show(result) != c.Show(*best) }) {
		return texts
	}
	for i, result := range results {
		if competes(result) && texts[i] == c.Show(*best) {
			texts[i] += Mark
		}
	}
	return texts
}

const (
	InexactSign = "~" // not exact by its own design
	BrokenSign  = "!" // admitted more than its promise
)

// Label returns a contender's name with its signs.
func Label(result bench.Result) string {
	signs := ""
	if result.IsLimiter() && !result.Exact {
		signs += InexactSign
	}
	if result.Audit != nil && !result.Audit.Clean() {
		signs += BrokenSign
	}
	return strings.TrimSpace(result.Name + " " + signs)
}
