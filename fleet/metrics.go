package fleet

import "github.com/ral-limiter/ral/observe/metrics"

// Metrics returns the limiter's counters for monitoring: see package metrics. The value of
// their label is Config.Name. The counters are those of this server.
func (l *Limiter) Metrics() *metrics.Source {
	return metrics.New(l.config.Name, func() snapshot { return snapshot{l.Stats(), l.Health() == nil} }, readings)
}

// snapshot is what Metrics reads at a time.
type snapshot struct {
	Stats
	healthy bool
}

var readings = []metrics.Reading[snapshot]{
	{Metric: "ral.calls", Value: "admitted", Of: func(s *snapshot) float64 { return float64(s.Admitted) }},
	{Metric: "ral.calls", Value: "refused", Of: func(s *snapshot) float64 { return float64(s.Refused) }},
	{Metric: "ral.healthy", Of: func(s *snapshot) float64 { return metrics.Bool(s.healthy) }},
	{Metric: "ral.refusals", Value: "over_limit", Of: func(s *snapshot) float64 { return float64(s.OverLimit) }},
	{Metric: "ral.refusals", Value: "blocked", Of: func(s *snapshot) float64 { return float64(s.Blocked) }},
	{Metric: "ral.refusals", Value: "unavailable", Of: func(s *snapshot) float64 { return float64(s.Unavailable) }},
	{Metric: "ral.waiting_calls", Of: func(s *snapshot) float64 { return float64(s.Waiting) }},
	{Metric: "ral.waits", Of: func(s *snapshot) float64 { return float64(s.Waits) }},
	{Metric: "ral.wait_time", Of: func(s *snapshot) float64 { return s.WaitTime.Seconds() }},
	{Metric: "ral.fleet.answers", Value: "exact", Of: func(s *snapshot) float64 { return float64(s.Exact) }},
	{Metric: "ral.fleet.answers", Value: "leased", Of: func(s *snapshot) float64 { return float64(s.Leased) }},
	{Metric: "ral.fleet.answers", Value: "local", Of: func(s *snapshot) float64 { return float64(s.Local) }},
	{Metric: "ral.fleet.answers", Value: "open", Of: func(s *snapshot) float64 { return float64(s.Open) }},
	{Metric: "ral.fleet.answers", Value: "closed", Of: func(s *snapshot) float64 { return float64(s.Closed) }},
	{Metric: "ral.fleet.misfit_calls", Of: func(s *snapshot) float64 { return float64(s.Misfits) }},
	{Metric: "ral.blocks", Value: "call", Of: func(s *snapshot) float64 { return float64(s.Blocks) }},
	{Metric: "ral.blocks", Value: "penalty", Of: func(s *snapshot) float64 { return float64(s.Penalties) }},
	{Metric: "ral.fleet.outage", Of: func(s *snapshot) float64 { return metrics.Bool(s.Outage) }},
	{Metric: "ral.fleet.breakers", Value: "closed", Of: func(s *snapshot) float64 { return float64(s.Breakers - s.OpenBreakers) }},
	{Metric: "ral.fleet.breakers", Value: "open", Of: func(s *snapshot) float64 { return float64(s.OpenBreakers - s.HalfOpenBreakers) }},
	{Metric: "ral.fleet.breakers", Value: "half_open", Of: func(s *snapshot) float64 { return float64(s.HalfOpenBreakers) }},
	{Metric: "ral.fleet.breaker_openings", Of: func(s *snapshot) float64 { return float64(s.Openings) }},
	{Metric: "ral.fleet.redis_trips", Value: "answered", Of: func(s *snapshot) float64 { return float64(s.RoundTrips) }},
	{Metric: "ral.fleet.redis_trips", Value: "failed", Of: func(s *snapshot) float64 { return float64(s.FailedTrips) }},
	{Metric: "ral.fleet.redis_time", Of: func(s *snapshot) float64 { return s.RedisTime.Seconds() }},
	{Metric: "ral.fleet.share_units", Value: "charged", Of: func(s *snapshot) float64 { return float64(s.Charged) }},
	{Metric: "ral.fleet.share_units", Value: "lapsed", Of: func(s *snapshot) float64 { return float64(s.Lapsed) }},
	{Metric: "ral.fleet.lease_units", Value: "leased", Of: func(s *snapshot) float64 { return float64(s.LeasedUnits) }},
	{Metric: "ral.fleet.lease_units", Value: "returned", Of: func(s *snapshot) float64 { return float64(s.ReturnedUnits) }},
	{Metric: "ral.fleet.lease_units", Value: "lapsed", Of: func(s *snapshot) float64 { return float64(s.LapsedUnits) }},
	{Metric: "ral.fleet.servers", Of: func(s *snapshot) float64 { return float64(s.Servers) }},
	{Metric: "ral.fleet.divisor", Of: func(s *snapshot) float64 { return float64(s.Divisor) }},
}
