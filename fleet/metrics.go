package fleet

import "github.com/ral-limiter/ral/observe/metrics"

// Metrics returns this server's counters, labelled by Config.Name: see package metrics.
func (l *Limiter) Metrics() *metrics.Source {
	return metrics.New(l.config.Name, func() snapshot { return snapshot{l.Stats(), l.Health() == nil} }, table)
}

type snapshot struct {
	Stats
	healthy bool
}

var table = []metrics.Reading[snapshot]{
	{Metric: metrics.Metric{Name: "ral.calls"}, Value: "admitted", Of: func(snapshot *snapshot) any { return &snapshot.Admitted }},
	{Value: "refused", Of: func(snapshot *snapshot) any { return &snapshot.Refused }},
	{Metric: metrics.Metric{Name: "ral.healthy"}, Of: func(snapshot *snapshot) any { return &snapshot.healthy }},
	{Metric: metrics.Metric{Name: "ral.refusals"}, Value: "over_limit", Of: func(snapshot *snapshot) any { return &snapshot.OverLimit }},
	{Value: "blocked", Of: func(snapshot *snapshot) any { return &snapshot.Blocked }},
	{Value: "unavailable", Of: func(snapshot *snapshot) any { return &snapshot.Unavailable }},
	{Metric: metrics.Metric{Name: "ral.warnings"}, Of: func(snapshot *snapshot) any { return &snapshot.Warnings }},
	{Metric: metrics.Metric{Name: "ral.waiting_calls"}, Of: func(snapshot *snapshot) any { return &snapshot.Waiting }},
	{Metric: metrics.Metric{Name: "ral.waits"}, Of: func(snapshot *snapshot) any { return &snapshot.Waits }},
	{Metric: metrics.Metric{Name: "ral.wait_time"}, Of: func(snapshot *snapshot) any { return &snapshot.WaitTime }},
	{Metric: metrics.Metric{Name: "ral.fleet.answers", Unit: "{call}", Label: "source", Help: "Calls by the place of their decision: Redis, a lease, this server's share of the limit, or the configured answer of an outage."}, Value: "exact", Of: func(snapshot *snapshot) any { return &snapshot.Exact }},
	{Value: "leased", Of: func(snapshot *snapshot) any { return &snapshot.Leased }},
	{Value: "local", Of: func(snapshot *snapshot) any { return &snapshot.Local }},
	{Value: "open", Of: func(snapshot *snapshot) any { return &snapshot.Open }},
	{Value: "closed", Of: func(snapshot *snapshot) any { return &snapshot.Closed }},
	{Metric: metrics.Metric{Name: "ral.fleet.misfit_calls", Unit: "{call}", Help: "Calls in error because the limit that came with them is of another family."}, Of: func(snapshot *snapshot) any { return &snapshot.Misfits }},
	{Metric: metrics.Metric{Name: "ral.blocks"}, Value: "call", Of: func(snapshot *snapshot) any { return &snapshot.Blocks }},
	{Value: "penalty", Of: func(snapshot *snapshot) any { return &snapshot.Penalties }},
	{Metric: metrics.Metric{Name: "ral.fleet.outage", Gauge: true, Help: "1 if calls are answered without Redis: all calls, or the calls of a node of a cluster."}, Of: func(snapshot *snapshot) any { return &snapshot.Outage }},
	{Metric: metrics.Metric{Name: "ral.fleet.breakers", Gauge: true, Unit: "{breaker}", Label: "state", Help: "Circuit breakers before Redis by their state; half_open has a call under way that tries whether Redis is back."}, Value: "closed", Of: func(snapshot *snapshot) any { return snapshot.Breakers - snapshot.OpenBreakers }},
	{Value: "open", Of: func(snapshot *snapshot) any { return snapshot.OpenBreakers - snapshot.HalfOpenBreakers }},
	{Value: "half_open", Of: func(snapshot *snapshot) any { return &snapshot.HalfOpenBreakers }},
	{Metric: metrics.Metric{Name: "ral.fleet.breaker_openings", Unit: "{opening}", Help: "How often the breaker before Redis opened, of all nodes."}, Of: func(snapshot *snapshot) any { return &snapshot.Openings }},
	{Metric: metrics.Metric{Name: "ral.fleet.redis_trips", Unit: "{trip}", Label: "result", Help: "Trips to Redis, answered or not in time."}, Value: "answered", Of: func(snapshot *snapshot) any { return &snapshot.RoundTrips }},
	{Value: "failed", Of: func(snapshot *snapshot) any { return &snapshot.FailedTrips }},
	{Metric: metrics.Metric{Name: "ral.fleet.redis_time", Unit: "s", Help: "Sum of the times from sending to Redis to the answer, of those trips that were answered."}, Of: func(snapshot *snapshot) any { return &snapshot.RedisTime }},
	{Metric: metrics.Metric{Name: "ral.fleet.share_units", Unit: "{unit}", Label: "result", Help: "Units that shares let pass during outages, and that were charged to Redis afterwards or never will be."}, Value: "charged", Of: func(snapshot *snapshot) any { return &snapshot.Charged }},
	{Value: "lapsed", Of: func(snapshot *snapshot) any { return &snapshot.Lapsed }},
	{Metric: metrics.Metric{Name: "ral.fleet.excess_units", Unit: "{unit}", Help: "Units of shares that were above their key's limit when they were charged to Redis: so many at least were admitted beyond the bound."}, Of: func(snapshot *snapshot) any { return &snapshot.Excess }},
	{Metric: metrics.Metric{Name: "ral.fleet.lease_units", Unit: "{unit}", Label: "result", Help: "Units leased, units of leases given back, and units lost when a lease ended."}, Value: "leased", Of: func(snapshot *snapshot) any { return &snapshot.LeasedUnits }},
	{Value: "returned", Of: func(snapshot *snapshot) any { return &snapshot.ReturnedUnits }},
	{Value: "lapsed", Of: func(snapshot *snapshot) any { return &snapshot.LapsedUnits }},
	{Metric: metrics.Metric{Name: "ral.fleet.servers", Gauge: true, Unit: "{server}", Help: "Servers of the fleet that were counted last."}, Of: func(snapshot *snapshot) any { return &snapshot.Servers }},
	{Metric: metrics.Metric{Name: "ral.fleet.divisor", Gauge: true, Unit: "{server}", Help: "Number by which a server's share divides the limit in an outage; 0 if it is not known."}, Of: func(snapshot *snapshot) any { return &snapshot.Divisor }},
	{Metric: metrics.Metric{Name: "ral.fleet.in_flight", Gauge: true, Unit: "{unit}", Help: "Units in flight that calls of this server have in use."}, Of: func(snapshot *snapshot) any { return &snapshot.HeldUnits }},
	{Metric: metrics.Metric{Name: "ral.fleet.in_flight_units", Unit: "{unit}", Label: "result", Help: "Units in flight that this server gave up because Redis could not be asked, and units released after they had ended."}, Value: "lost", Of: func(snapshot *snapshot) any { return &snapshot.LostUnits }},
	{Value: "overstayed", Of: func(snapshot *snapshot) any { return &snapshot.OverstayedUnits }},
}
