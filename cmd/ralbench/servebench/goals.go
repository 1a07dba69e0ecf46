package servebench

import (
	"slices"

	"github.com/ral-limiter/ral/bench"
	"github.com/ral-limiter/ral/cmd/ralbench/fleetbench"
)

var (
	single = []string{TCP, Socket}
	many   = []string{TCPPipeline, SocketLong}
)

// ratios are goals of rald, by another server's figure in the same round.
var ratios = []struct {
	of, what string
	figure   func(Round) float64
	where    []string
	goal     float64
	least    bool
}{
	{Script, "requests a second", perSecond, many, 3, true},
	{GoFloor, "requests a second", perSecond, single, 0.9, true},
	{GoFloor, "processor time", processor, single, 1.15, false},
	{GoFloor, "requests a second", perSecond, many, 0.75, true},
	{GoFloor, "processor time", processor, many, 1.7, false},
	{Reference, "requests a second", perSecond, []string{Envoy}, 6, true},
	{GRPCFloor, "time of 99% of requests", p99, []string{EnvoyRate}, 1.3, false},
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
			if other == nil || !slices.Contains(goal.where, load.Name) {
				continue
			}
			values := times(*rald, *other, goal.figure)
			if len(values) == 0 {
				continue
			}
			add(fleetbench.Goal{
				What: goal.what + ", times that of " + goal.of, Where: load.Name,
				Value: bench.SpreadOf(values), Goal: goal.goal, Least: goal.least,
			})
		}
		if load.Name == EnvoyRate {
			add(fleetbench.Goal{What: "requests a second", Where: load.Name, Value: rald.Median(perSecond), Goal: 0.98 * rate, Least: true})
		}
	}
	return all
}

func perSecond(r Round) float64 { return r.PerSecond }

func processor(r Round) float64 { return float64(r.CPU) }

func p99(r Round) float64 { return float64(r.P99) }

// times returns the ratios of a figure over the common rounds that have it.
func times(of, by Server, figure func(Round) float64) (values []float64) {
	for i := range min(len(of.Rounds), len(by.Rounds)) {
		if under := figure(by.Rounds[i]); under > 0 {
			values = append(values, figure(of.Rounds[i])/under)
		}
	}
	return values
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
