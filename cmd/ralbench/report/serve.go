package report

import (
	"time"

	"github.com/ral-limiter/ral/cmd/ralbench/format"
	"github.com/ral-limiter/ral/cmd/ralbench/servebench"
)

// ServeFooter explains the tables of servers.
const ServeFooter = `The generator and the servers share the cores of this machine. "spread" is the distance of the round that is farthest from the median. "CPU" is the processor time of a server by request, with that of the Redis behind it.`

// ServeTables returns the tables of servers.
func ServeTables(d Document) (tables []Table) {
	if t := goalsTable(d.Serve.Goals, "server"); len(t.Rows) > 0 {
		tables = append(tables, t)
	}
	for _, load := range d.Serve.Loads {
		t := Table{
			ID: load.Name, Title: load.Name, About: load.About,
			Columns: []string{"server", "requests/s", "spread", "times rald's", "p50", "p99", "CPU"}, Left: 1,
		}
		var rald float64
		for _, s := range load.Servers {
			speed := s.Median(func(r servebench.Round) float64 { return r.PerSecond })
			if s.Name == servebench.Rald {
				rald = speed.Median
			}
			kind := KindPeer
			if s.Name == servebench.Rald {
				kind = KindRal
			}
			relative := "-"
			if rald > 0 {
				relative = format.Ratio(speed.Median / rald)
			}
			t.Rows = append(t.Rows, Row{kind, []string{
				s.Name, format.Count(speed.Median), format.Percent(speed.Relative()), relative,
				timeOf(s, func(r servebench.Round) time.Duration { return r.P50 }),
				timeOf(s, func(r servebench.Round) time.Duration { return r.P99 }),
				timeOf(s, func(r servebench.Round) time.Duration { return r.CPU }),
			}})
		}
		tables = append(tables, t)
	}
	return tables
}

// timeOf writes the median of a time, "-" if it is unknown.
func timeOf(s servebench.Server, figure func(servebench.Round) time.Duration) string {
	median := s.Median(func(r servebench.Round) float64 { return float64(figure(r)) }).Median
	if median == 0 {
		return "-"
	}
	return format.Nanoseconds(median)
}
