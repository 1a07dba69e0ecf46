package page

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/ral-limiter/ral/bench"
	"github.com/ral-limiter/ral/cmd/ralbench/format"
)

// chart is a picture drawn by charts.js. Its content is decided here, testable without a browser.
type chart struct {
	ID    string `json:"id"`
	Kind  string `json:"kind"`
	Title string `json:"title"`
	Axis  string `json:"axis"`
	// Better says whether higher or lower is better.
	Better string `json:"better"`
	Unit   string `json:"unit"`
	Log    bool   `json:"log"`
	// Lines are drawn for comparison with the points.
	Lines  []line  `json:"lines,omitempty"`
	Points []point `json:"points"`
}

// line is drawn across a chart at a value.
type line struct {
	Name  string  `json:"name"`
	Value float64 `json:"value"`
	Text  string  `json:"text"` // the figure in words, may be empty
}

const (
	kindBars    = "bars"    // a bar for each contender
	kindDots    = "dots"    // a dot for each contender in each group
	kindCurves  = "curves"  // lines over percentiles
	kindScaling = "scaling" // lines over processors
)

const (
	unitRate  = "rate"
	unitTime  = "time" // nanoseconds
	unitTimes = "times"
	unitBytes = "bytes"
	unitShare = "share"
)

const (
	higherIsBetter = "higher is better"
	lowerIsBetter  = "lower is better"
)

// point is a figure in a chart. Min and Max are nil if it was measured once.
type point struct {
	Contender string   `json:"contender"`
	Group     string   `json:"group,omitempty"` // workload, or percentile
	X         int      `json:"x,omitempty"`     // processors
	Value     float64  `json:"value"`
	Min       *float64 `json:"min,omitempty"`
	Max       *float64 `json:"max,omitempty"`
	Text      string   `json:"text"` // the figure in words
}

func spreadPoint(r bench.Result, s bench.Spread, format func(float64) string) point {
	p := point{Contender: r.Contender, Value: s.Median, Text: format(s.Median)}
	if len(r.Rounds) > 1 {
		p.Min, p.Max = &s.Min, &s.Max
		p.Text += fmt.Sprintf(" (%s to %s)", format(s.Min), format(s.Max))
	}
	return p
}

// byName holds the reports of a workload, by GOMAXPROCS.
type byName struct {
	name string
	cpus []bench.WorkloadReport
}

// grouped groups the reports by workload, in the order of their first appearance.
func grouped(workloads []bench.WorkloadReport) (groups []byName) {
	for _, w := range workloads {
		i := slices.IndexFunc(groups, func(g byName) bool { return g.name == w.Name })
		if i < 0 {
			i = len(groups)
			groups = append(groups, byName{name: w.Name})
		}
		groups[i].cpus = append(groups[i].cpus, w)
	}
	return groups
}

// main returns the report with the most processors that the machine has.
func (g byName) main(cores int) bench.WorkloadReport {
	best := g.cpus[0]
	for _, w := range g.cpus[1:] {
		if fits := w.CPU <= cores; fits && (w.CPU > best.CPU || best.CPU > cores) {
			best = w
		}
	}
	return best
}

// overview shows the cost of a call in all workloads, relative to the xsync map, which takes part
// in more of them than the floor.
func overview(groups []byName, cores int) chart {
	c := chart{
		ID: "overview", Kind: kindDots, Title: "Cost of a call in all workloads", Axis: "processor time of a call, as a multiple of the xsync map's",
		Better: lowerIsBetter, Unit: unitTimes, Log: true, Lines: []line{{"xsync map", 1, ""}},
	}
	for _, g := range groups {
		for _, r := range g.main(cores).Results {
			if r.Yardstick != bench.YardstickMap && r.OfMap != nil && r.OfMap.Median > 0 {
				p := spreadPoint(r, *r.OfMap, func(x float64) string { return format.Digits(x) + " x" })
				p.Group = g.name
				c.Points = append(c.Points, p)
			}
		}
	}
	return c
}

// charts returns the charts of a workload that have points.
func (g byName) charts(cores int) (charts []chart) {
	w := g.main(cores)
	at := " with " + format.Plural(w.CPU, "CPU")
	add := func(c chart) {
		if len(c.Points) > 0 {
			c.ID = g.name + "-" + c.ID
			charts = append(charts, c)
		}
	}
	add(bars(w, chart{
		ID: "throughput", Title: "Throughput" + at, Axis: "calls a second, all callers together", Better: higherIsBetter, Unit: unitRate,
	}, func(r bench.Result) (bench.Spread, bool) { return r.OpsPerSecond, len(r.Rounds) > 0 }))
	add(bars(w, chart{
		ID: "cost", Title: "Processor time of a call" + at, Axis: "processor time of a call", Better: lowerIsBetter, Unit: unitTime,
	}, func(r bench.Result) (bench.Spread, bool) { return r.NsPerOp, len(r.Rounds) > 0 }))
	add(curves(w, "latency", "Latency of single calls"+at, func(r bench.Result) *bench.Latency { return r.Latency }))
	add(curves(w, "known", "Latency on known keys meanwhile"+at, func(r bench.Result) *bench.Latency { return r.Known }))
	if len(g.cpus) > 1 {
		add(g.scaling())
	}
	for _, m := range memoryCharts {
		add(bars(w, m.chart, func(r bench.Result) (bench.Spread, bool) {
			if r.Memory == nil {
				return bench.Spread{}, false
			}
			x, ok := m.figure(*r.Memory)
			return bench.SpreadOf([]float64{x}), ok
		}))
	}
	return charts
}

var memoryCharts = []struct {
	chart  chart
	figure func(bench.Memory) (float64, bool)
}{
	{chart{ID: "key", Title: "Memory a key", Axis: "bytes a key", Better: lowerIsBetter, Unit: unitBytes},
		func(m bench.Memory) (float64, bool) { return m.BytesPerKey, true }},
	{chart{ID: "gc", Title: "One garbage collection with all keys", Axis: "time of a collection", Better: lowerIsBetter, Unit: unitTime},
		func(m bench.Memory) (float64, bool) { return float64(m.GC), true }},
	{chart{ID: "full", Title: "Heap with all keys", Axis: "bytes in the heap", Better: lowerIsBetter, Unit: unitBytes},
		func(m bench.Memory) (float64, bool) { return float64(m.FullHeap), true }},
	{chart{ID: "idle", Title: "Heap after an idle time", Axis: "bytes in the heap", Better: lowerIsBetter, Unit: unitBytes},
		func(m bench.Memory) (float64, bool) { return float64(m.IdleHeap), !m.IdleUnknown }},
}

// bars adds a bar for each contender with the figure. Yardsticks are lines.
func bars(w bench.WorkloadReport, c chart, figure func(bench.Result) (bench.Spread, bool)) chart {
	c.Kind = kindBars
	for _, r := range w.Results {
		s, ok := figure(r)
		switch {
		case !ok:
		case !r.IsLimiter():
			c.Lines = append(c.Lines, line{r.Contender, s.Median, formatOf(c.Unit)(s.Median)})
		default:
			c.Points = append(c.Points, spreadPoint(r, s, formatOf(c.Unit)))
		}
	}
	return c
}

func curves(w bench.WorkloadReport, id, title string, of func(bench.Result) *bench.Latency) chart {
	c := chart{ID: id, Kind: kindCurves, Title: title, Axis: "latency", Better: lowerIsBetter, Unit: unitTime, Log: true}
	for _, r := range w.Results {
		l := of(r)
		if l == nil {
			continue
		}
		for _, p := range []struct {
			name string
			d    time.Duration
		}{{"p50", l.P50}, {"p90", l.P90}, {"p99", l.P99}, {"p99.9", l.P999}, {"worst", l.Worst}} {
			if p.d > 0 { // a logarithm has no zero; older reports have no p90
				c.Points = append(c.Points, point{Contender: r.Contender, Group: p.name, Value: float64(p.d), Text: format.Duration(p.d)})
			}
		}
	}
	return c
}

func (g byName) scaling() chart {
	c := chart{
		ID: "scaling", Kind: kindScaling, Title: "Throughput over processors", Axis: "calls a second",
		Better: higherIsBetter, Unit: unitRate,
	}
	for _, w := range g.cpus {
		for _, r := range w.Results {
			if len(r.Rounds) > 0 {
				p := spreadPoint(r, r.OpsPerSecond, format.Count)
				p.X = w.CPU
				c.Points = append(c.Points, p)
			}
		}
	}
	return c
}

// Summary returns the chart in words, for screen readers.
func (c chart) Summary() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %s, %s.", c.Title, c.Axis, c.Better)
	if c.Kind == kindBars {
		for _, l := range c.Lines {
			fmt.Fprintf(&b, " %s: %s.", format.Sentence(l.Name)[:len(l.Name)], l.Text)
		}
	}
	last := ""
	for _, p := range c.Points {
		name := p.Contender
		if c.Kind == kindDots {
			name = p.Group + ", " + name
		}
		if name == last {
			b.WriteString(",")
		} else {
			fmt.Fprintf(&b, " %s:", name)
		}
		last = name
		switch c.Kind {
		case kindCurves:
			fmt.Fprintf(&b, " %s", p.Group)
		case kindScaling:
			fmt.Fprintf(&b, " %s", format.Plural(p.X, "CPU"))
		}
		fmt.Fprintf(&b, " %s", p.Text)
	}
	return b.String() + "."
}

func formatOf(unit string) func(float64) string {
	switch unit {
	case unitRate:
		return format.Count
	case unitTime:
		return format.Nanoseconds
	case unitBytes:
		return format.Size
	case unitShare:
		return format.Percent
	}
	return format.Digits
}
