package servebench

import (
	"slices"
	"time"

	"github.com/ral-limiter/ral/bench"
	"github.com/ral-limiter/ral/cmd/ralbench/fleetbench"
)

// ratios are goals of rald: multiples of another server's requests a second.
var ratios = []struct {
	of    string
	where []string
	least float64
}{
	{Script, []string{TCP, Socket}, 2},
	{Script, []string{TCPPipeline, SocketLong}, 3},
	{Ping, []string{TCP, Socket}, 0.8},
	{Reference, []string{Envoy}, 4},
}

// goals returns the goals that the report measured.
func goals(r Report) (all []fleetbench.Goal) {
	add := func(g fleetbench.Goal) {
		g.Of = Rald
		all = append(all, g.Judged())
	}
	for _, load := range r.Loads {
		rald := load.server(Rald)
		if rald == nil || len(rald.Rounds) == 0 {
			continue
		}
		for _, goal := range ratios {
			other := load.server(goal.of)
			if other == nil || len(other.Rounds) == 0 || !slices.Contains(goal.where, load.Name) {
				continue
			}
			add(fleetbench.Goal{
				What: "requests a second, times those of " + goal.of, Where: load.Name,
				Value: times(*rald, *other), Goal: goal.least, Least: true,
			})
		}
		if load.Name == EnvoyRate {
			add(fleetbench.Goal{What: "requests a second", Where: load.Name, Value: rald.Median(perSecond), Goal: 0.98 * rate, Least: true})
			add(fleetbench.Goal{What: "milliseconds of 99% of requests", Where: load.Name, Value: rald.Median(func(r Round) float64 {
				return float64(r.P99) / float64(time.Millisecond)
			}), Goal: 1})
		}
	}
	return all
}

func perSecond(r Round) float64 { return r.PerSecond }

// times returns ratios of requests a second over common rounds.
func times(of, by Server) bench.Spread {
	var values []float64
	for i := range min(len(of.Rounds), len(by.Rounds)) {
		values = append(values, of.Rounds[i].PerSecond/by.Rounds[i].PerSecond)
	}
	return bench.SpreadOf(values)
}

// server returns the server of that name, nil if there is none.
func (l Load) server(name string) *Server {
	for i := range l.Servers {
		if l.Servers[i].Name == name {
			return &l.Servers[i]
		}
	}
	return nil
}
