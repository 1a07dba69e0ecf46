package outgoing

import "github.com/ral-limiter/ral/observe/metrics"

// Metrics returns the line's counters, labelled with Config.Name.
func (l *Line[K]) Metrics() *metrics.Source { return metrics.New(l.config.Name, l.Stats, table) }

var table = []metrics.Reading[Stats]{
	{Metric: metrics.Metric{Name: "ral.outgoing.calls", Unit: "{call}", Help: "Calls that got their turn."}, Of: func(s *Stats) any { return &s.Turns }},
	{Metric: metrics.Metric{Name: "ral.outgoing.retries", Unit: "{call}", Help: "Calls that were sent once more."}, Of: func(s *Stats) any { return &s.Retries }},
	{Metric: metrics.Metric{Name: "ral.outgoing.refusals", Unit: "{call}", Help: "Refusals of the other sides that were obeyed."}, Of: func(s *Stats) any { return &s.Refusals }},
	{Metric: metrics.Metric{Name: "ral.outgoing.unheld_refusals", Unit: "{call}", Help: "Refusals that could not be recorded, as the most keys were held already."}, Of: func(s *Stats) any { return &s.Unheld }},
	{Metric: metrics.Metric{Name: "ral.outgoing.bad_resets", Unit: "{reset}", Help: "Resets that were ignored, as they were past or too far ahead."}, Of: func(s *Stats) any { return &s.BadResets }},
	{Metric: metrics.Metric{Name: "ral.outgoing.waiting_calls", Gauge: true, Unit: "{call}", Help: "Calls that wait for their turn."}, Of: func(s *Stats) any { return &s.Waiting }},
	{Metric: metrics.Metric{Name: "ral.outgoing.waits", Unit: "{call}", Help: "Calls that left the line of a key, with their turn or without."}, Of: func(s *Stats) any { return &s.Waits }},
	{Metric: metrics.Metric{Name: "ral.outgoing.wait_time", Unit: "s", Help: "Sum of how long calls waited for their turn."}, Of: func(s *Stats) any { return &s.WaitTime }},
	{Metric: metrics.Metric{Name: "ral.outgoing.overstayed_calls", Unit: "{call}", Help: "Calls that ended after the longest time of the configured limit of calls at once."}, Of: func(s *Stats) any { return &s.Overstayed }},
	{Metric: metrics.Metric{Name: "ral.outgoing.held_keys", Gauge: true, Unit: "{key}", Help: "Keys whose calls all wait because of an answer."}, Of: func(s *Stats) any { return &s.Held }},
	{Metric: metrics.Metric{Name: "ral.outgoing.keys", Gauge: true, Unit: "{key}", Help: "Keys that are remembered."}, Of: func(s *Stats) any { return &s.Keys }},
}
