package page

import (
	"fmt"
	"slices"
	"strings"

	"github.com/ral-limiter/ral/bench"
	"github.com/ral-limiter/ral/cmd/ralbench/fleetbench"
	"github.com/ral-limiter/ral/cmd/ralbench/format"
	"github.com/ral-limiter/ral/cmd/ralbench/report"
)

// fleetChapter is the page's part about fleet mode beyond the workloads.
type fleetChapter struct {
	Redis  string
	Charts []chart
	Tables []report.Table
}

func newFleetChapter(d report.Document) *fleetChapter {
	c := &fleetChapter{Redis: d.Fleet.Redis, Charts: fleetCharts(d), Tables: report.FleetTables(d)}
	for i := range c.Tables {
		t := &c.Tables[i]
		t.Title = strings.ToUpper(t.Title[:1]) + t.Title[1:]
		t.About = format.Sentence(t.About)
	}
	return c
}

// multiples shows throughputs as multiples of redis_rate's, too small on an axis of calls a second.
func multiples(d report.Document) chart {
	c := chart{
		ID: "fleet-multiples", Kind: kindDots, Title: "Throughput beside redis_rate", Axis: "calls a second, as a multiple of redis_rate's",
		Better: higherIsBetter, Unit: unitTimes, Log: true, Lines: []line{{fleetbench.RedisRate, 1, ""}},
	}
	for _, g := range grouped(d.Workloads) {
		w := g.main(d.Machine.Cores)
		for _, r := range w.Results {
			if s, ok := fleetbench.Ratio(w, r.Contender, fleetbench.RedisRate, bench.Pass.OpsPerSecond); ok && r.Contender != fleetbench.RedisRate && s.Min > 0 {
				p := spreadPoint(r, s, func(x float64) string { return format.Digits(x) + " x" })
				p.Group = w.Name
				c.Points = append(c.Points, p)
			}
		}
	}
	return c
}

func fleetCharts(d report.Document) []chart {
	charts := []chart{multiples(d)}
	for _, g := range grouped(d.Workloads) {
		w := g.main(d.Machine.Cores)
		c := chart{
			ID: w.Name + "-redis", Kind: kindBars, Title: "Redis's processor time of a call, " + w.Name,
			Axis: "processor time of redis-server by call", Better: lowerIsBetter, Unit: unitTime,
		}
		for _, work := range d.Fleet.Work {
			if r := report.ResultOfWork(d.Report, work); work.Workload == w.Name && work.CPU == w.CPU && r != nil && len(work.Rounds) > 0 {
				c.Points = append(c.Points, spreadPoint(bench.Result{Contender: work.Contender, Rounds: make([]bench.Pass, len(work.Rounds))}, work.RedisNsPerOp, format.Nanoseconds))
			}
		}
		charts = append(charts, c)
	}
	memory := chart{
		ID: "fleet-memory", Kind: kindBars, Title: "Memory a key in Redis", Axis: "bytes of used_memory, by key",
		Better: lowerIsBetter, Unit: unitBytes,
	}
	for _, m := range d.Fleet.Memory {
		memory.Points = append(memory.Points, point{Contender: m.Contender, Value: m.Used, Text: format.Size(m.Used)})
	}
	charts = append(append(charts, memory), shareCharts(d.Fleet.Shares)...)
	return slices.DeleteFunc(charts, func(c chart) bool { return len(c.Points) == 0 })
}

// shareCharts returns a chart for each load under each limit, with the aim as a line.
func shareCharts(shares []fleetbench.Share) (charts []chart) {
	for _, s := range shares {
		if s.Share <= 0 {
			continue // no bar
		}
		id := fmt.Sprintf("fleet-share-%s-%d", s.Load, s.Limit.Count)
		i := slices.IndexFunc(charts, func(c chart) bool { return c.ID == id })
		if i < 0 {
			i = len(charts)
			charts = append(charts, chart{
				ID: id, Kind: kindBars, Title: "Usable share, " + s.Name(), Axis: "admitted by 4 servers of capacity + rate × time",
				Better: higherIsBetter, Unit: unitShare, Lines: []line{{"aim of leased mode", s.Aim, format.Percent(s.Aim)}},
			})
		}
		charts[i].Points = append(charts[i].Points, point{Contender: report.ModeName(s), Value: s.Share, Text: format.Percent(s.Share)})
	}
	return charts
}
