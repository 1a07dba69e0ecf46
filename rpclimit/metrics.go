package rpclimit

import "github.com/ral-limiter/ral/observe/metrics"

// Metrics returns the limits' counters: see package metrics. name is the value of their label,
// unique among the registry's Guards. Limiters have metrics of their own.
func (g *Guard) Metrics(name string) *metrics.Source {
	all := table
	for i := range g.limits {
		if g.whole.Tried(i) {
			name := g.limits[i].Of().Name
			all = append(all[:len(all):len(all)], metrics.Reading[Stats]{Metric: shadowed, Value: name, Of: func(stats *Stats) any { return float64(stats.Shadowed[name]) }})
		}
	}
	return metrics.New(name, g.Stats, all)
}

var shadowed = metrics.Metric{Name: "ral.rpc.shadowed_calls", Unit: "{call}", Label: "shadow", Help: "Calls and messages that a limit in shadow mode would have refused."}

var table = []metrics.Reading[Stats]{
	{Metric: metrics.Metric{Name: "ral.rpc.calls", Unit: "{call}", Label: "result", Help: "Calls by the reason of their verdict."}, Value: "admitted", Of: func(stats *Stats) any { return &stats.Admitted }},
	{Value: "exempt", Of: func(stats *Stats) any { return &stats.Exempt }},
	{Value: "over_limit", Of: func(stats *Stats) any { return &stats.OverLimit }},
	{Value: "no_key", Of: func(stats *Stats) any { return &stats.NoKey }},
	{Value: "cancelled", Of: func(stats *Stats) any { return &stats.Cancelled }},
	{Value: "never_admitted", Of: func(stats *Stats) any { return &stats.NeverAdmitted }},
	{Value: "misconfigured", Of: func(stats *Stats) any { return &stats.Misconfigured }},
	{Value: "unavailable", Of: func(stats *Stats) any { return &stats.Unavailable }},
	{Metric: metrics.Metric{Name: "ral.rpc.messages", Unit: "{message}", Label: "result", Help: "Messages of streams that a limit decided about."}, Value: "admitted", Of: func(stats *Stats) any { return &stats.Messages.Admitted }},
	{Value: "refused", Of: func(stats *Stats) any { return &stats.Messages.Refused }},
	{Metric: metrics.Metric{Name: "ral.rpc.delayed_calls", Unit: "{call}", Help: "Calls and messages that waited for their turn."}, Of: func(stats *Stats) any { return &stats.Delayed }},
	{Metric: metrics.Metric{Name: "ral.rpc.delay_time", Unit: "s", Help: "Sum of how long these calls and messages waited."}, Of: func(stats *Stats) any { return &stats.DelayTime }},
	{Metric: metrics.Metric{Name: "ral.rpc.unsettled_calls", Unit: "{call}", Help: "Calls whose later charge may not count."}, Of: func(stats *Stats) any { return &stats.Unsettled }},
	{Metric: metrics.Metric{Name: "ral.rpc.shadow", Gauge: true, Help: "1 if refusals are only counted."}, Of: func(stats *Stats) any { return &stats.Shadow }},
}
