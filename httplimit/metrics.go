package httplimit

import "github.com/ral-limiter/ral/observe/metrics"

// Metrics returns the middleware's counters: see package metrics. name is the value of their label,
// unique among the registry's middlewares. Limiters have metrics of their own.
func (m *Middleware) Metrics(name string) *metrics.Source {
	all := table
	for i, checked := range m.limiters {
		if m.control.Tried(i) {
			name := checked.Of().Name
			all = append(all[:len(all):len(all)], metrics.Reading[Stats]{Metric: shadowed, Value: name, Of: func(stats *Stats) any { return float64(stats.Shadowed[name]) }})
		}
	}
	return metrics.New(name, m.Stats, all)
}

var shadowed = metrics.Metric{Name: "ral.http.shadowed_requests", Unit: "{request}", Label: "shadow", Help: "Requests that a limit in shadow mode would have refused."}

var table = []metrics.Reading[Stats]{
	{Metric: metrics.Metric{Name: "ral.http.requests", Unit: "{request}", Label: "result", Help: "Requests by the reason of their verdict."}, Value: "admitted", Of: func(stats *Stats) any { return &stats.Admitted }},
	{Value: "exempt", Of: func(stats *Stats) any { return &stats.Exempt }},
	{Value: "over_limit", Of: func(stats *Stats) any { return &stats.OverLimit }},
	{Value: "denied", Of: func(stats *Stats) any { return &stats.Denied }},
	{Value: "no_key", Of: func(stats *Stats) any { return &stats.NoKey }},
	{Value: "cancelled", Of: func(stats *Stats) any { return &stats.Cancelled }},
	{Value: "never_admitted", Of: func(stats *Stats) any { return &stats.NeverAdmitted }},
	{Value: "misconfigured", Of: func(stats *Stats) any { return &stats.Misconfigured }},
	{Value: "unavailable", Of: func(stats *Stats) any { return &stats.Unavailable }},
	{Metric: metrics.Metric{Name: "ral.http.delayed_requests", Unit: "{request}", Help: "Requests that waited for their turn."}, Of: func(stats *Stats) any { return &stats.Delayed }},
	{Metric: metrics.Metric{Name: "ral.http.delay_time", Unit: "s", Help: "Sum of how long these requests waited."}, Of: func(stats *Stats) any { return &stats.DelayTime }},
	{Metric: metrics.Metric{Name: "ral.http.unsettled_requests", Unit: "{request}", Help: "Requests whose later charge may not count."}, Of: func(stats *Stats) any { return &stats.Unsettled }},
	{Metric: metrics.Metric{Name: "ral.http.shadow", Gauge: true, Help: "1 if refusals are only counted."}, Of: func(stats *Stats) any { return &stats.Shadow }},
}
