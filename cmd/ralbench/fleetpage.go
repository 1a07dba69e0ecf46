package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/ral-limiter/ral/bench"
	"github.com/ral-limiter/ral/cmd/ralbench/fleetbench"
)

// fleetChapter is what the page shows of fleet mode besides the workloads.
type fleetChapter struct {
	Redis  string
	Charts []chart
	Tables []fleetTable
}

func newFleetChapter(d document) *fleetChapter {
	c := &fleetChapter{Redis: d.Fleet.Redis, Charts: fleetCharts(d), Tables: fleetTables(d)}
	for i := range c.Tables {
		t := &c.Tables[i]
		t.Title = strings.ToUpper(t.Title[:1]) + t.Title[1:]
		t.About = sentence(strings.ToUpper(t.About[:1]) + t.About[1:])
	}
	return c
}

// multiples shows every throughput as a multiple of redis_rate's: on an axis of calls
// a second it could not be seen.
func multiples(d document) (c chart, ok bool) {
	one := 1.0
	c = chart{
		ID: "fleet-multiples", Kind: kindDots, Title: "Throughput beside redis_rate", Axis: "calls a second, as a multiple of redis_rate's",
		Better: higherIsBetter, Unit: unitTimes, Log: true, Floor: &one, FloorName: fleetbench.RedisRate,
	}
	for _, g := range grouped(d.Workloads) {
		w := g.main(d.Machine.Cores)
		for _, r := range w.Results {
			if s, ok := fleetbench.Ratio(w, r.Contender, fleetbench.RedisRate, bench.Pass.OpsPerSecond); ok && r.Contender != fleetbench.RedisRate && s.Min > 0 {
				p := spreadPoint(r, s, func(x float64) string { return digits(x) + " x" })
				p.Group = w.Name
				c.Points = append(c.Points, p)
			}
		}
	}
	return c, len(c.Points) > 0
}

func fleetCharts(d document) (charts []chart) {
	if c, ok := multiples(d); ok {
		charts = append(charts, c)
	}
	for _, g := range grouped(d.Workloads) {
		w := g.main(d.Machine.Cores)
		c := chart{
			ID: w.Name + "-redis", Kind: kindBars, Title: "Redis's processor time of a call, " + w.Name,
			Axis: "processor time of redis-server by call", Better: lowerIsBetter, Unit: unitTime,
		}
		for _, work := range d.Fleet.Work {
			if r := resultIn(d.Report, work); work.Workload == w.Name && work.CPU == w.CPU && r != nil && len(work.Rounds) > 0 {
				c.Points = append(c.Points, spreadPoint(bench.Result{Contender: work.Contender, Rounds: make([]bench.Pass, len(work.Rounds))}, work.RedisNsPerOp, nanoseconds))
			}
		}
		if len(c.Points) > 0 {
			charts = append(charts, c)
		}
	}
	memory := chart{
		ID: "fleet-memory", Kind: kindBars, Title: "Memory a key in Redis", Axis: "bytes of used_memory, by key",
		Better: lowerIsBetter, Unit: unitBytes,
	}
	for _, m := range d.Fleet.Memory {
		memory.Points = append(memory.Points, point{Contender: m.Contender, Value: m.Used, Text: size(m.Used)})
	}
	if len(memory.Points) > 0 {
		charts = append(charts, memory)
	}
	return append(charts, shareCharts(d.Fleet.Shares)...)
}

// shareCharts has one chart for each load under each limit, with the aim as a line.
func shareCharts(shares []fleetbench.Share) (charts []chart) {
	for _, s := range shares {
		if s.Share <= 0 {
			continue // no bar
		}
		id := fmt.Sprintf("fleet-share-%s-%d", s.Load, s.Limit.Count)
		i := slices.IndexFunc(charts, func(c chart) bool { return c.ID == id })
		if i < 0 {
			i = len(charts)
			aim := s.Aim
			charts = append(charts, chart{
				ID: id, Kind: kindBars, Title: "Usable share, " + s.Name(), Axis: "admitted by 4 servers of capacity + rate × time",
				Better: higherIsBetter, Unit: unitShare, Floor: &aim, FloorName: "aim of leased mode",
			})
		}
		charts[i].Points = append(charts[i].Points, point{Contender: modeName(s), Value: s.Share, Text: percent(s.Share)})
	}
	return charts
}

// modeName is the contender that a share is of.
func modeName(s fleetbench.Share) string {
	if s.Mode == fleetbench.ModeLeased {
		return fleetbench.Leased
	}
	return fleetbench.Exact
}

// shareAudits are the audits of shares.
func shareAudits(shares []fleetbench.Share) (rows []auditRow) {
	for _, s := range shares {
		text := fmt.Sprintf("admitted %s of %s calls; at most %s allowed: within the limit, in every window of time",
			thousands(s.Admitted), thousands(s.Calls), thousands(s.Allowed))
		if s.Over > 0 {
			text = fmt.Sprintf("admitted %s of %s calls; at most %s allowed: %s TOO MANY in some window of time",
				thousands(s.Admitted), thousands(s.Calls), thousands(s.Allowed), thousands(s.Over))
		}
		rows = append(rows, auditRow{modeName(s), s.Name(), text, s.Over == 0, true, true})
	}
	return rows
}
