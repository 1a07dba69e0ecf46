package page

import (
	"fmt"
	"slices"

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
func better(column report.Column) string {
	if column.Better > 0 {
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

func spreadPoint(result bench.Result, spread bench.Spread, format func(float64) string) point {
	p := point{Contender: result.Name, Value: spread.Median, Text: format(spread.Median)}
	if len(result.Rounds) > 1 {
		p.Min, p.Max = &spread.Min, &spread.Max
		p.Text += fmt.Sprintf(" (%s to %s)", format(spread.Min), format(spread.Max))
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
	for _, workloadReport := range workloads {
		i := slices.IndexFunc(groups, func(name byName) bool { return name.name == workloadReport.Name })
		if i < 0 {
			i = len(groups)
			groups = append(groups, byName{name: workloadReport.Name})
		}
		groups[i].cpus = append(groups[i].cpus, workloadReport)
	}
	return groups
}

// main returns the report with the most processors that the machine has.
func (g byName) main(cores int) bench.WorkloadReport {
	rank := func(w bench.WorkloadReport) int {
		if w.CPU > cores {
			return -w.CPU
		}
		return w.CPU
	}
	return slices.MaxFunc(g.cpus, func(a, b bench.WorkloadReport) int { return rank(a) - rank(b) })
}

// overview shows the cost of a call in all workloads, relative to the xsync map, which takes part
// in more of them than the floor. Fleet mode has throughputs relative to redis_rate's.
func overview(document report.Document, groups []byName) chart {
	c := chart{
		ID: "overview", Kind: kindDots, Title: "Cost of a call in all workloads", Axis: "processor time of a call, as a multiple of the xsync map's",
		Better: "lower is better", Unit: report.UnitTimes, Log: true, Lines: []line{{"xsync map", 1, ""}},
	}
	figure := bench.Pass.NsPerOp
	if document.Settings.Fleet {
		c.Title, c.Axis, c.Better = "Throughput beside redis_rate", "calls a second, as a multiple of redis_rate's", "higher is better"
		c.Lines[0].Name, figure = fleetbench.RedisRate, bench.Pass.OpsPerSecond
	}
	for _, byName := range groups {
		w := byName.main(document.Machine.Cores)
		base := w.Result(c.Lines[0].Name)
		for _, result := range w.Results {
			if base == nil || result.Name == base.Name {
				continue
			}
			if spread, ok := bench.Ratios(result.Rounds, base.Rounds, figure); ok && spread.Min > 0 {
				point := spreadPoint(result, spread, func(value float64) string { return format.Digits(value) + " x" })
				point.Group = byName.name
				c.Points = append(c.Points, point)
			}
		}
	}
	return c
}

// charts returns the charts of a workload that have points.
func (g byName) charts(document report.Document) (charts []chart) {
	workloadReport := g.main(document.Machine.Cores)
	with := " with " + format.Plural(workloadReport.CPU, "CPU")
	add := func(chart chart) {
		if len(chart.Points) > 0 {
			chart.ID = g.name + "-" + chart.ID
			chart.Title += with
			charts = append(charts, chart)
		}
	}
	for _, column := range report.Columns {
		add(bars(document, workloadReport, column))
	}
	add(curves(workloadReport, "latency", "Latency of single calls", func(result bench.Result) *bench.Latency { return result.Latency }))
	add(curves(workloadReport, "known", "Latency on known keys meanwhile", func(result bench.Result) *bench.Latency { return result.Known }))
	if len(g.cpus) > 1 {
		with = ""
		add(g.scaling(document))
	}
	for _, column := range report.MemoryColumns {
		add(bars(document, workloadReport, column))
	}
	return charts
}

// bars has a bar for each contender with the column's figure. Yardsticks and goals are lines.
func bars(document report.Document, workloadReport bench.WorkloadReport, column report.Column) (c chart) {
	if column.Chart == nil {
		return c
	}
	source := column.Chart
	c = chart{ID: source.ID, Kind: kindBars, Title: source.Title, Axis: source.Axis, Better: better(column), Unit: source.Unit}
	for _, result := range workloadReport.Results {
		spread, ok := column.Value(result)
		switch {
		case !ok:
		case !result.IsLimiter():
			c.Lines = append(c.Lines, line{result.Name, spread.Median, formats[c.Unit](spread.Median)})
		default:
			c.Points = append(c.Points, spreadPoint(result, spread, formats[c.Unit]))
		}
	}
	for _, goal := range report.Goals(document) {
		if goal.Workload == workloadReport.Name && goal.Figure.Name == column.Name && goal.Of == "" {
			c.Lines = append(c.Lines, line{"goal of " + goal.Contender, goal.Goal, formats[c.Unit](goal.Goal)})
		}
	}
	return c
}

func curves(w bench.WorkloadReport, id, title string, source func(bench.Result) *bench.Latency) chart {
	c := chart{ID: id, Kind: kindCurves, Title: title, Axis: "latency", Better: "lower is better", Unit: report.UnitTime, Log: true}
	for _, result := range w.Results {
		for _, column := range report.Percentiles {
			// A logarithm has no zero, and older reports have no p90.
			if spread, ok := column.Value(bench.Result{Latency: source(result)}); ok {
				c.Points = append(c.Points, point{Contender: result.Name, Group: column.Name, Value: spread.Median, Text: column.Format(spread.Median)})
			}
		}
	}
	return c
}

// scaling has the speeds by processors, and the speed of Ral by the model in a run with -cores.
func (g byName) scaling(document report.Document) chart {
	c := chart{
		ID: "scaling", Kind: kindScaling, Title: "Throughput over processors", Axis: "calls a second",
		Better: "higher is better", Unit: report.UnitRate,
	}
	for _, workloadReport := range g.cpus {
		for _, result := range workloadReport.Results {
			if len(result.Rounds) > 0 {
				point := spreadPoint(result, result.OpsPerSecond, format.Count)
				point.X = workloadReport.CPU
				c.Points = append(c.Points, point)
			}
		}
		if ns, ok := document.Model(g.name, report.Transfer{Cores: workloadReport.CPU, Time: document.Transfer}); ok {
			speed := 1e9 * float64(workloadReport.CPU) / ns
			c.Points = append(c.Points, point{Contender: "Ral by the model", X: workloadReport.CPU, Value: speed, Text: format.Count(speed)})
		}
	}
	return c
}

// formats write figures by their unit.
var formats = map[string]func(float64) string{
	report.UnitRate: format.Count, report.UnitTime: format.Nanoseconds, report.UnitBytes: format.Bytes, report.UnitShare: format.Percent,
}
