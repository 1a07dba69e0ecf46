package page

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/ral-limiter/ral/bench"
	"github.com/ral-limiter/ral/cmd/ralbench/internal/fleetbench"
	"github.com/ral-limiter/ral/cmd/ralbench/internal/format"
	"github.com/ral-limiter/ral/cmd/ralbench/internal/report"
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

// better says which figures of a column are better.
func better(c report.Column) string {
	if c.Better > 0 {
		return "higher is better"
	}
	return "lower is better"
}

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
	p := point{Contender: r.Name, Value: s.Median, Text: format(s.Median)}
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
// in more of them than the floor. Fleet mode has throughputs relative to redis_rate's.
func overview(d report.Document, groups []byName) chart {
	c := chart{
		ID: "overview", Kind: kindDots, Title: "Cost of a call in all workloads", Axis: "processor time of a call, as a multiple of the xsync map's",
		Better: "lower is better", Unit: report.UnitTimes, Log: true, Lines: []line{{"xsync map", 1, ""}},
	}
	figure := bench.Pass.NsPerOp
	if d.Settings.Fleet {
		c.Title, c.Axis, c.Better = "Throughput beside redis_rate", "calls a second, as a multiple of redis_rate's", "higher is better"
		c.Lines[0].Name, figure = fleetbench.RedisRate, bench.Pass.OpsPerSecond
	}
	for _, g := range groups {
		w := g.main(d.Machine.Cores)
		base := w.Result(c.Lines[0].Name)
		for _, r := range w.Results {
			if base == nil || r.Name == base.Name {
				continue
			}
			if s, ok := bench.Ratios(r.Rounds, base.Rounds, figure); ok && s.Min > 0 {
				p := spreadPoint(r, s, func(x float64) string { return format.Digits(x) + " x" })
				p.Group = g.name
				c.Points = append(c.Points, p)
			}
		}
	}
	return c
}

// charts returns the charts of a workload that have points.
func (g byName) charts(d report.Document) (charts []chart) {
	w := g.main(d.Machine.Cores)
	with := " with " + format.Plural(w.CPU, "CPU")
	add := func(c chart) {
		if len(c.Points) > 0 {
			c.ID = g.name + "-" + c.ID
			c.Title += with
			charts = append(charts, c)
		}
	}
	for _, column := range report.Columns {
		add(bars(d, w, column))
	}
	add(curves(w, "latency", "Latency of single calls", func(r bench.Result) *bench.Latency { return r.Latency }))
	add(curves(w, "known", "Latency on known keys meanwhile", func(r bench.Result) *bench.Latency { return r.Known }))
	if len(g.cpus) > 1 {
		with = ""
		add(g.scaling(d))
	}
	for _, column := range report.MemoryColumns {
		add(bars(d, w, column))
	}
	return charts
}

// bars has a bar for each contender with the column's figure. Yardsticks and goals are lines.
func bars(d report.Document, w bench.WorkloadReport, column report.Column) (c chart) {
	if column.Chart == nil {
		return c
	}
	source := column.Chart
	c = chart{ID: source.ID, Kind: kindBars, Title: source.Title, Axis: source.Axis, Better: better(column), Unit: source.Unit}
	for _, r := range w.Results {
		s, ok := column.Value(r)
		switch {
		case !ok:
		case !r.IsLimiter():
			c.Lines = append(c.Lines, line{r.Name, s.Median, formats[c.Unit](s.Median)})
		default:
			c.Points = append(c.Points, spreadPoint(r, s, formats[c.Unit]))
		}
	}
	for _, g := range report.Goals(d) {
		if g.Workload == w.Name && g.Figure.Name == column.Name && g.Of == "" {
			c.Lines = append(c.Lines, line{"goal of " + g.Contender, g.Goal, formats[c.Unit](g.Goal)})
		}
	}
	return c
}

func curves(w bench.WorkloadReport, id, title string, source func(bench.Result) *bench.Latency) chart {
	c := chart{ID: id, Kind: kindCurves, Title: title, Axis: "latency", Better: "lower is better", Unit: report.UnitTime, Log: true}
	for _, r := range w.Results {
		l := source(r)
		if l == nil {
			continue
		}
		for _, p := range []struct {
			name string
			d    time.Duration
		}{{"p50", l.P50}, {"p90", l.P90}, {"p99", l.P99}, {"p99.9", l.P999}, {"worst", l.Worst}} {
			if p.d > 0 { // a logarithm has no zero; older reports have no p90
				c.Points = append(c.Points, point{Contender: r.Name, Group: p.name, Value: float64(p.d), Text: format.Duration(p.d)})
			}
		}
	}
	return c
}

// scaling has the speeds by processors, and the speed of Ral by the model in a run with -cores.
func (g byName) scaling(d report.Document) chart {
	c := chart{
		ID: "scaling", Kind: kindScaling, Title: "Throughput over processors", Axis: "calls a second",
		Better: "higher is better", Unit: report.UnitRate,
	}
	for _, w := range g.cpus {
		for _, r := range w.Results {
			if len(r.Rounds) > 0 {
				p := spreadPoint(r, r.OpsPerSecond, format.Count)
				p.X = w.CPU
				c.Points = append(c.Points, p)
			}
		}
		if ns, ok := d.Model(g.name, report.Transfer{Cores: w.CPU, Time: d.Transfer}); ok {
			speed := 1e9 * float64(w.CPU) / ns
			c.Points = append(c.Points, point{Contender: "Ral by the model", X: w.CPU, Value: speed, Text: format.Count(speed)})
		}
	}
	return c
}

// Summary returns the chart in words, for screen readers.
func (c chart) Summary() string {
	parts := []string{fmt.Sprintf("%s: %s, %s", c.Title, c.Axis, c.Better)}
	for _, l := range c.Lines {
		if l.Text != "" {
			parts = append(parts, format.Sentence(l.Name)[:len(l.Name)]+": "+l.Text)
		}
	}
	for _, p := range c.Points {
		name := strings.TrimPrefix(p.Group+", "+p.Contender, ", ")
		if p.X > 0 {
			name += ", " + format.Plural(p.X, "CPU")
		}
		parts = append(parts, name+": "+p.Text)
	}
	return strings.Join(parts, ". ") + "."
}

// formats write figures by their unit.
var formats = map[string]func(float64) string{
	report.UnitRate: format.Count, report.UnitTime: format.Nanoseconds, report.UnitBytes: format.Bytes, report.UnitShare: format.Percent,
}
