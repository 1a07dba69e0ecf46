package metrics

import (
	"fmt"
	"slices"
	"strings"
)

// Kind says whether a metric is a counter or a gauge.
type Kind uint8

const (
	// Counter only grows, from 0 when the limiter is made.
	Counter Kind = iota
	// Gauge goes up and down.
	Gauge
)

// String returns "counter" or "gauge", as Prometheus has them.
func (k Kind) String() string {
	if k == Counter {
		return "counter"
	}
	return "gauge"
}

// Metric is the name and the meaning of a metric, the same in every monitoring system.
type Metric struct {
	// Name is that of OpenTelemetry, in dotted form: "ral.fleet.redis_time".
	Name string
	// Help is one sentence.
	Help string
	Kind Kind
	// Unit is as OpenTelemetry has it (UCUM): "s" for seconds, "By" for bytes, "1" for a ratio, what
	// is counted in braces, such as "{call}", or "" for a gauge that is 0 or 1.
	Unit string
	// Label is the name of the label beside LimitLabel, or "" if there is none.
	Label string
	// Values are all that this label can have. They are nil if these are names that the
	// program gave to its limits.
	Values []string
}

// LimitLabel is the label of every metric that holds the limiter's name.
const LimitLabel = "limit"

// Prometheus returns the name in the form of Prometheus: "ral_fleet_redis_time_seconds_total". It is
// made of Name, Unit and Kind as OpenTelemetry's exporters do.
func (m *Metric) Prometheus() string {
	name := strings.ReplaceAll(m.Name, ".", "_")
	switch m.Unit {
	case "s":
		name += "_seconds"
	case "By":
		name += "_bytes"
	case "1":
		name += "_ratio"
	}
	if m.Kind == Counter {
		name += "_total"
	}
	return name
}

// All returns the contract: every metric that a Source of this module or of module fleet
// can have.
func All() []Metric { return slices.Clone(contract) }

// find returns the metric of that name.
func find(name string) (*Metric, error) {
	i := slices.IndexFunc(contract, func(m Metric) bool { return m.Name == name })
	if i < 0 {
		return nil, fmt.Errorf("ral: metrics: %q is no metric of the contract: see metrics.All", name)
	}
	return &contract[i], nil
}

// contract lists the metrics by name.
var contract = []Metric{
	// Of any limiter: engine.Engine, each engine of an engine.Tiered, fleet.Limiter.
	{Name: "ral.calls", Kind: Counter, Unit: "{call}", Label: "result", Values: []string{"admitted", "refused"},
		Help: "Calls that took units or were refused them."},
	{Name: "ral.healthy", Kind: Gauge,
		Help: "1 if the limiter's Health is nil, and 0 if it is degraded."},

	{Name: "ral.waiting_calls", Kind: Gauge, Unit: "{call}",
		Help: "Calls that wait for their turn."},
	{Name: "ral.waits", Kind: Counter, Unit: "{call}",
		Help: "Calls that waited for their turn, with their units or without."},
	{Name: "ral.wait_time", Kind: Counter, Unit: "s",
		Help: "Sum of how long these calls waited."},

	{Name: "ral.refusals", Kind: Counter, Unit: "{call}", Label: "reason", Values: []string{
		"over_limit", "blocked", "misfit", "unavailable", "full", "crowded", "late", "cancelled"},
		Help: "Refused calls by the reason; their sum is ral.calls with the result refused."},

	// Of an engine.
	{Name: "ral.unrecorded_calls", Kind: Counter, Unit: "{call}", Label: "reason", Values: []string{"unavailable", "full"},
		Help: "Calls that were answered as configured and not by the limit, because the key could not be recorded or the table was full."},
	{Name: "ral.keys", Kind: Gauge, Unit: "{key}",
		Help: "Keys in the table."},
	{Name: "ral.max_keys", Kind: Gauge, Unit: "{key}",
		Help: "Most keys that the table may hold."},
	{Name: "ral.keys_by_use", Kind: Gauge, Unit: "{key}", Label: "used", Values: []string{"none", "below_half", "half", "most", "all", "chosen"},
		Help: "Keys by the share of their limit that they have used, as counted some time ago: half is 50% and more, most is 80% and more; " +
			"chosen is any share of a limit that PolicyFor chose. Absent before the first count."},
	{Name: "ral.evicted_keys", Kind: Counter, Unit: "{key}",
		Help: "Keys that left the table, idle or to make room."},
	{Name: "ral.forgiven_keys", Kind: Counter, Unit: "{key}",
		Help: "Keys that were given up to make room while they still owed."},
	{Name: "ral.blocked_keys", Kind: Gauge, Unit: "{key}",
		Help: "Keys that are blocked now."},
	{Name: "ral.blocks", Kind: Counter, Unit: "{block}", Label: "reason", Values: []string{"call", "penalty"},
		Help: "Blocks of keys, by a call of Block or by the configured penalty."},
	{Name: "ral.unpunished_refusals", Kind: Counter, Unit: "{call}",
		Help: "Refusals that did not count towards a penalty, for want of room or of a writer."},
	{Name: "ral.restarts", Kind: Counter, Unit: "{restart}",
		Help: "Restarts of the engine's goroutines after a panic."},
	{Name: "ral.dropped_commands", Kind: Counter, Unit: "{command}",
		Help: "Commands that were given up because the writer died of them twice."},
	{Name: "ral.queued_commands", Kind: Gauge, Unit: "{command}",
		Help: "Commands that wait for the writer."},
	{Name: "ral.abandoned_goroutines", Kind: Gauge, Unit: "{goroutine}",
		Help: "Goroutines that did not end when they should have."},
	{Name: "ral.save.timestamp", Kind: Gauge, Unit: "s",
		Help: "Unix time at which the last successful save of the state began, or the limiter if there was none; absent if no state is saved."},
	{Name: "ral.save.duration", Kind: Gauge, Unit: "s",
		Help: "How long the last successful save of the state took; absent before the first."},
	{Name: "ral.save.keys", Kind: Gauge, Unit: "{key}", Label: "result", Values: []string{"saved", "unsaved"},
		Help: "Keys of the last successful save, written and left out; absent before the first."},
	{Name: "ral.save.failing", Kind: Gauge,
		Help: "1 if the last save of the state failed."},

	// Of a fleet.Limiter.
	{Name: "ral.fleet.answers", Kind: Counter, Unit: "{call}", Label: "source", Values: []string{"exact", "leased", "local", "open", "closed"},
		Help: "Calls by what decided them: Redis, a lease, this server's share of the limit, or the configured answer of an outage."},
	{Name: "ral.fleet.misfit_calls", Kind: Counter, Unit: "{call}",
		Help: "Calls in error because the limit that came with them is of another family."},
	{Name: "ral.fleet.outage", Kind: Gauge,
		Help: "1 if calls are answered without Redis: all of them, or those of a node of a cluster."},
	{Name: "ral.fleet.breakers", Kind: Gauge, Unit: "{breaker}", Label: "state", Values: []string{"closed", "open", "half_open"},
		Help: "Circuit breakers before Redis by their state; half_open has a call under way that tries whether Redis is back."},
	{Name: "ral.fleet.breaker_openings", Kind: Counter, Unit: "{opening}",
		Help: "How often the breaker before Redis opened, of all nodes."},
	{Name: "ral.fleet.redis_trips", Kind: Counter, Unit: "{trip}", Label: "result", Values: []string{"answered", "failed"},
		Help: "What was sent to Redis, answered or not in time."},
	{Name: "ral.fleet.redis_time", Kind: Counter, Unit: "s",
		Help: "Sum of the times from sending to Redis to the answer, of those trips that were answered."},
	{Name: "ral.fleet.share_units", Kind: Counter, Unit: "{unit}", Label: "result", Values: []string{"charged", "lapsed"},
		Help: "Units that shares let pass during outages, and that were charged to Redis afterwards or never will be."},
	{Name: "ral.fleet.lease_units", Kind: Counter, Unit: "{unit}", Label: "result", Values: []string{"leased", "returned", "lapsed"},
		Help: "Units that were leased, those of them that were given back, and those that were lost when a lease ended."},
	{Name: "ral.fleet.servers", Kind: Gauge, Unit: "{server}",
		Help: "Servers of the fleet that were counted last."},
	{Name: "ral.fleet.divisor", Kind: Gauge, Unit: "{server}",
		Help: "Number by which a server's share divides the limit in an outage; 0 if it is not known."},

	// Of an httplimit.Middleware.
	{Name: "ral.http.requests", Kind: Counter, Unit: "{request}", Label: "result", Values: []string{
		"admitted", "exempt", "over_limit", "denied", "keyless", "cancelled", "never_admitted", "misconfigured", "unavailable"},
		Help: "Requests by the reason of their verdict."},
	{Name: "ral.http.delayed_requests", Kind: Counter, Unit: "{request}",
		Help: "Requests that waited for their turn."},
	{Name: "ral.http.delay_time", Kind: Counter, Unit: "s",
		Help: "Sum of how long these requests waited."},
	{Name: "ral.http.unsettled_requests", Kind: Counter, Unit: "{request}",
		Help: "Requests whose later charge may not count."},
	{Name: "ral.http.shadowed_requests", Kind: Counter, Unit: "{request}", Label: "shadow",
		Help: "Requests that a limit in shadow mode would have refused."},
	{Name: "ral.http.shadow", Kind: Gauge,
		Help: "1 if refusals are only counted."},

	// Of a limits.Trial.
	{Name: "ral.trial.calls", Kind: Counter, Unit: "{call}", Label: "result", Values: []string{"admitted", "refused", "would_refuse", "would_admit", "failed"},
		Help: "Calls on which a candidate was tried, by what it said beside the live limiter."},
}
