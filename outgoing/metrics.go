package outgoing

import "github.com/ral-limiter/ral/observe/metrics"

// Metrics returns the line's counters, labelled with Config.Name.
func (l *Line[K]) Metrics() *metrics.Source { return metrics.New(l.config.Name, l.Stats, table) }

var table = []metrics.Reading[Stats]{
	{Metric: metrics.Metric{Name: "ral.outgoing.calls", Unit: "{call}", Help: "Calls that got their turn."}, Of: func(stats *Stats) any { return &stats.Turns }},
	{Metric: metrics.Metric{Name: "ral.outgoing.retries", Unit: "{call}", Help: "Calls that were sent once more."}, Of: func(stats *Stats) any { return &stats.Retries }},
	{Metric: metrics.Metric{Name: "ral.outgoing.refusals", Unit: "{call}", Help: "Refusals of the other sides that were obeyed."}, Of: func(stats *Stats) any { return &stats.Refusals }},
	{Metric: metrics.Metric{Name: "ral.outgoing.unheld_refusals", Unit: "{call}", Help: "Refusals that could not be recorded, as the most keys were held already."}, Of: func(stats *Stats) any { return &stats.Unheld }},
	{Metric: metrics.Metric{Name: "ral.outgoing.bad_resets", Unit: "{reset}", Help: "Resets that were ignored, as they were past or too far ahead."}, Of: func(stats *Stats) any { return &stats.BadResets }},
	{Metric: metrics.Metric{Name: "ral.outgoing.waiting_calls", Gauge: true, Unit: "{call}", Help: "Calls that wait for their turn."}, Of: func(stats *Stats) any { return &stats.Waiting }},
	{Metric: metrics.Metric{Name: "ral.outgoing.waits", Unit: "{call}", Help: "Calls that left the line of a key, with their turn or without."}, Of: func(stats *Stats) any { return &stats.Waits }},
	{Metric: metrics.Metric{Name: "ral.outgoing.wait_time", Unit: "s", Help: "Sum of how long calls waited for their turn."}, Of: func(stats *Stats) any { return &stats.WaitTime }},
	{Metric: metrics.Metric{Name: "ral.outgoing.overstayed_calls", Unit: "{call}", Help: "Calls that ended after the longest time of the configured limit of calls at once."}, Of: func(stats *Stats) any { return &stats.Overstayed }},
	{Metric: metrics.Metric{Name: "ral.outgoing.held_keys", Gauge: true, Unit: "{key}", Help: "Keys whose calls all wait because of an answer."}, Of: func(stats *Stats) any { return &stats.Held }},
	{Metric: metrics.Metric{Name: "ral.outgoing.keys", Gauge: true, Unit: "{key}", Help: "Keys that are remembered."}, Of: func(stats *Stats) any { return &stats.Keys }},
}
