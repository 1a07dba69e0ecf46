package httplimit

import "github.com/ral-limiter/ral/observe/metrics"

// Metrics returns the middleware's counters for monitoring: see package metrics. name is
// the value of their label. A limiter may have the same name, and no other middleware of the
// registry. Limiters have metrics of their own.
func (m *Middleware) Metrics(name string) *metrics.Source {
	type reading = metrics.Reading[Stats]
	readings := []reading{
		{Metric: "ral.http.requests", Value: "admitted", Of: func(s *Stats) float64 { return float64(s.Admitted) }},
		{Metric: "ral.http.requests", Value: "exempt", Of: func(s *Stats) float64 { return float64(s.Exempt) }},
		{Metric: "ral.http.requests", Value: "over_limit", Of: func(s *Stats) float64 { return float64(s.OverLimit) }},
		{Metric: "ral.http.requests", Value: "denied", Of: func(s *Stats) float64 { return float64(s.Denied) }},
		{Metric: "ral.http.requests", Value: "keyless", Of: func(s *Stats) float64 { return float64(s.NoKey) }},
		{Metric: "ral.http.requests", Value: "cancelled", Of: func(s *Stats) float64 { return float64(s.Cancelled) }},
		{Metric: "ral.http.requests", Value: "never_admitted", Of: func(s *Stats) float64 { return float64(s.NeverAdmitted) }},
		{Metric: "ral.http.requests", Value: "misconfigured", Of: func(s *Stats) float64 { return float64(s.Misconfigured) }},
		{Metric: "ral.http.requests", Value: "unavailable", Of: func(s *Stats) float64 { return float64(s.Unavailable) }},
		{Metric: "ral.http.delayed_requests", Of: func(s *Stats) float64 { return float64(s.Delayed) }},
		{Metric: "ral.http.delay_time", Of: func(s *Stats) float64 { return s.DelayTime.Seconds() }},
		{Metric: "ral.http.unsettled_requests", Of: func(s *Stats) float64 { return float64(s.Unsettled) }},
		{Metric: "ral.http.shadow", Of: func(s *Stats) float64 { return metrics.Bool(s.Shadow) }},
	}
	for i, l := range m.limiters {
		if m.control.Tried(i) {
			name := l.Of().Title()
			readings = append(readings, reading{
				Metric: "ral.http.shadowed_requests", Value: name,
				Of: func(s *Stats) float64 { return float64(s.Shadowed[name]) },
			})
		}
	}
	return metrics.New(name, m.Stats, readings)
}
