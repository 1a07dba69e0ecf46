package fleetbench

import (
	"fmt"
	"slices"

	"github.com/ral-limiter/ral/bench"
)

// Goal is a goal of fleet mode, with the measured value.
type Goal struct {
	Of    string `json:"of"`    // the mode
	What  string `json:"what"`  // the figure
	Where string `json:"where"` // the workload or the load
	// Value is the figure; for a ratio it is the median over the rounds.
	Value bench.Spread `json:"value"`
	Goal  float64      `json:"goal"`
	// Least says that Goal is the least; otherwise it is the most.
	Least   bool `json:"least"`
	Percent bool `json:"percent"`
	Reached bool `json:"reached"`
}

const (
	exactSpeed  = 2.0   // times redis_rate's throughput, at least
	exactMemory = 1.0   // of redis_rate's memory a key: less
	leasedSpeed = 100.0 // times redis_rate's throughput, at least
	leasedCost  = 2.0   // the engine's throughput by the leases', at the most
)

// Less reports whether the value must be below Goal: equal to another contender is not enough.
func (g Goal) Less() bool { return !g.Least && g.Goal == 1 }

func (g Goal) Judged() Goal {
	switch g.Reached = g.Value.Median <= g.Goal; {
	case g.Least:
		g.Reached = g.Value.Median >= g.Goal
	case g.Less():
		g.Reached = g.Value.Median < g.Goal
	}
	return g
}

func goals(report bench.Report, more Report) (all []Goal) {
	add := func(g Goal, ok bool) {
		if ok {
			all = append(all, g.Judged())
		}
	}
	for _, w := range report.Workloads {
		for _, r := range []struct {
			of, what    string
			over, under string
			by          func(bench.Pass) float64
			goal        float64
			least       bool
			where       []string
		}{
			{Exact, "throughput, times redis_rate's", Exact, RedisRate, bench.Pass.OpsPerSecond, exactSpeed, true, []string{Hot, Keys}},
			{Leased, "throughput, times redis_rate's", Leased, RedisRate, bench.Pass.OpsPerSecond, leasedSpeed, true, []string{Hot, Some}},
			{Leased, "engine Take's throughput, times its own", EngineTake, Leased, bench.Pass.OpsPerSecond, leasedCost, false, []string{Hot, Some}},
			{Leased, "engine Choke's throughput, times its own", EngineChoke, Leased, bench.Pass.OpsPerSecond, leasedCost, false, []string{Hot, Some}},
			{Leased, "ns/op, times engine Take's", Leased, EngineTake, bench.Pass.NsPerOp, leasedCost, false, []string{Hot, Some}},
		} {
			value, ok := Ratio(w, r.over, r.under, r.by)
			add(Goal{Of: r.of, What: r.what, Where: name(report, w), Value: value, Goal: r.goal, Least: r.least}, ok && slices.Contains(r.where, w.Name))
		}
	}
	exact, ok1 := memoryOf(more, Exact)
	rate, ok2 := memoryOf(more, RedisRate)
	for _, m := range []struct {
		what        string
		over, under float64
	}{
		{"MEMORY USAGE of a key, of redis_rate's", exact.Usage, rate.Usage},
		{"used_memory by key, of redis_rate's", exact.Used, rate.Used},
	} {
		add(Goal{
			Of: Exact, What: m.what, Where: fmt.Sprintf("%d keys", exact.Keys),
			Value: bench.SpreadOf([]float64{m.over / max(m.under, 1)}), Goal: exactMemory,
		}, ok1 && ok2)
	}
	for _, s := range more.Shares {
		if s.Mode == ModeLeased {
			add(Goal{
				Of: Leased, What: "usable share of the limit", Where: s.Name(),
				Value: bench.SpreadOf([]float64{s.Share}), Goal: s.Aim, Least: true, Percent: true,
			}, true)
		}
	}
	return all
}

func (s Share) Name() string {
	return fmt.Sprintf("%s load, %d per %v", s.Load, s.Limit.Count, s.Limit.Per)
}

// name returns a workload's name, with GOMAXPROCS if there are several values.
func name(report bench.Report, w bench.WorkloadReport) string {
	for _, other := range report.Workloads {
		if other.Name == w.Name && other.CPU != w.CPU {
			return fmt.Sprintf("%s (GOMAXPROCS %d)", w.Name, w.CPU)
		}
	}
	return w.Name
}

// Ratio returns a figure relative to another contender over common rounds, false without any.
func Ratio(w bench.WorkloadReport, over, under string, by func(bench.Pass) float64) (bench.Spread, bool) {
	a, b := w.Result(over), w.Result(under)
	if a == nil || b == nil {
		return bench.Spread{}, false
	}
	return bench.Ratios(a.Rounds, b.Rounds, by)
}

func memoryOf(r Report, contender string) (Memory, bool) {
	for _, m := range r.Memory {
		if m.Contender == contender {
			return m, true
		}
	}
	return Memory{}, false
}
