package metrics

import (
	"errors"
	"fmt"
	"time"

	"github.com/ral-limiter/ral/engine"
	"github.com/ral-limiter/ral/internal/core/shape"
	"github.com/ral-limiter/ral/limits"
	"github.com/ral-limiter/ral/single"
)

// Engine makes a Source of an *engine.Engine, named by engine.Config.Name. It may outlive the
// engine.
func Engine(e interface {
	Stats() engine.Stats
	Health() error
},
) *Source {
	if shape.IsNil(e) {
		return failed(errors.New("ral: metrics.Engine: the engine is nil, want an Engine from engine.New"))
	}
	return engineNamed(e.Stats().Name, e)
}

// Tiered makes a Source of an *engine.Tiered: a limiter for each of its limits, in the order of
// Engines. They are named by engine.Config.Name, without a suffix and then with ".2", ".3" and so
// on, like the files of engine.State. Each limit counts each call.
func Tiered[K comparable](tiered *engine.Tiered[K]) *Source {
	if tiered == nil {
		return failed(errors.New("ral: metrics.Tiered: the limiter is nil, want a Tiered from engine.NewTiered"))
	}
	var all []*Source
	for i, limiter := range tiered.Engines() {
		name := limiter.Stats().Name
		if i > 0 {
			name = fmt.Sprintf("%s.%d", name, i+1)
		}
		all = append(all, engineNamed(name, limiter))
	}
	return join(all...)
}

type engineSnapshot struct {
	engine.Stats
	healthy, unsaved bool
}

func engineNamed(name string, e interface {
	Stats() engine.Stats
	Health() error
},
) *Source {
	return New(name, func() engineSnapshot {
		stats := e.Stats()
		return engineSnapshot{stats, e.Health() == nil, stats.SaveError != nil}
	}, engineTable)
}

func ofEngines(name string) *Metric {
	for i := range engineTable {
		if metric := &engineTable[i].Metric; metric.Name == name && name != "" {
			return metric
		}
	}
	return nil
}

// engineTable has the metrics of an engine. Other limiters share them by name.
var engineTable = []Reading[engineSnapshot]{
	{Metric: Metric{Name: "ral.calls", Unit: "{call}", Label: "result", Help: "Calls that took units or were refused them."}, Value: "admitted", Of: func(snapshot *engineSnapshot) any { return &snapshot.Admitted }},
	{Value: "refused", Of: func(snapshot *engineSnapshot) any { return &snapshot.Refused }},
	{Metric: Metric{Name: "ral.healthy", Gauge: true, Help: "1 if the limiter's Health is nil, and 0 if it is degraded."}, Of: func(snapshot *engineSnapshot) any { return &snapshot.healthy }},
	{Metric: Metric{Name: "ral.waiting_calls", Gauge: true, Unit: "{call}", Help: "Calls that wait for their turn."}, Of: func(snapshot *engineSnapshot) any { return &snapshot.Waiting }},
	{Metric: Metric{Name: "ral.longest_wait", Gauge: true, Unit: "s", Help: "How long the call has waited that has waited longest of those that wait now; 0 if none waits."}, Of: func(snapshot *engineSnapshot) any { return &snapshot.LongestWait }},
	{Metric: Metric{Name: "ral.waits", Unit: "{call}", Help: "Calls that waited for their turn, with their units or without."}, Of: func(snapshot *engineSnapshot) any { return &snapshot.Waits }},
	{Metric: Metric{Name: "ral.wait_time", Unit: "s", Help: "Sum of how long these calls waited."}, Of: func(snapshot *engineSnapshot) any { return &snapshot.WaitTime }},
	{Metric: Metric{Name: "ral.refusals", Unit: "{call}", Label: "reason", Help: "Refused calls by the reason; their sum is ral.calls with the result refused."}, Value: "over_limit", Of: func(snapshot *engineSnapshot) any { return &snapshot.OverLimit }},
	{Value: "blocked", Of: func(snapshot *engineSnapshot) any { return &snapshot.Blocked }},
	{Value: "misfit", Of: func(snapshot *engineSnapshot) any { return &snapshot.Misfits }},
	{Value: "unavailable", Of: func(snapshot *engineSnapshot) any { return &snapshot.UnavailableRefused }},
	{Value: "full", Of: func(snapshot *engineSnapshot) any { return &snapshot.FullRefused }},
	{Value: "crowded", Of: func(snapshot *engineSnapshot) any { return &snapshot.Crowded }},
	{Value: "late", Of: func(snapshot *engineSnapshot) any { return &snapshot.Late }},
	{Value: "cancelled", Of: func(snapshot *engineSnapshot) any { return &snapshot.Cancelled }},
	{Metric: Metric{Name: "ral.unrecorded_calls", Unit: "{call}", Label: "reason", Help: "Calls that were answered as configured and not by the limit, because the key could not be recorded or the table was full."}, Value: "unavailable", Of: func(snapshot *engineSnapshot) any { return &snapshot.Unavailable }},
	{Value: "full", Of: func(snapshot *engineSnapshot) any { return &snapshot.Full }},
	{Metric: Metric{Name: "ral.keys", Gauge: true, Unit: "{key}", Help: "Keys in the table."}, Of: func(snapshot *engineSnapshot) any { return &snapshot.Keys }},
	{Metric: Metric{Name: "ral.max_keys", Gauge: true, Unit: "{key}", Help: "Most keys that the table may hold."}, Of: func(snapshot *engineSnapshot) any { return &snapshot.MaxKeys }},
	{Metric: Metric{Name: "ral.keys_by_use", Gauge: true, Unit: "{key}", Label: "used", Help: "Keys by the share of their limit that they have used, as counted some time ago: half is 50% and more, most is 80% and more. Absent before the first count."}, Value: "none", Of: func(snapshot *engineSnapshot) any { return since(snapshot.KeysByUse.At, &snapshot.KeysByUse.Unused) }},
	{Value: "below_half", Of: func(snapshot *engineSnapshot) any { return since(snapshot.KeysByUse.At, &snapshot.KeysByUse.BelowHalf) }},
	{Value: "half", Of: func(snapshot *engineSnapshot) any { return since(snapshot.KeysByUse.At, &snapshot.KeysByUse.Half) }},
	{Value: "most", Of: func(snapshot *engineSnapshot) any { return since(snapshot.KeysByUse.At, &snapshot.KeysByUse.Most) }},
	{Value: "all", Of: func(snapshot *engineSnapshot) any { return since(snapshot.KeysByUse.At, &snapshot.KeysByUse.All) }},
	{Metric: Metric{Name: "ral.units_in_use", Gauge: true, Unit: "{unit}", Help: "Units in use of a limit of calls at once, over all keys, as counted some time ago together with ral.keys_by_use; 0 under other limits. Absent before the first count."}, Of: func(snapshot *engineSnapshot) any {
		return since(snapshot.KeysByUse.At, &snapshot.KeysByUse.UnitsInUse)
	}},
	{Metric: Metric{Name: "ral.warnings", Unit: "{warning}", Help: "Warnings of keys that passed a share of their limit."}, Of: func(snapshot *engineSnapshot) any { return &snapshot.Warnings }},
	{Metric: Metric{Name: "ral.evicted_keys", Unit: "{key}", Help: "Keys that left the table, idle or to make room."}, Of: func(snapshot *engineSnapshot) any { return &snapshot.Evicted }},
	{Metric: Metric{Name: "ral.forgiven_keys", Unit: "{key}", Help: "Keys that were given up to make room while they still owed."}, Of: func(snapshot *engineSnapshot) any { return &snapshot.Forgiven }},
	{Metric: Metric{Name: "ral.overstayed_calls", Unit: "{call}", Help: "Releases and extensions of units in use that had ended by themselves: calls longer than the longest time of their limit."}, Of: func(snapshot *engineSnapshot) any { return &snapshot.Overstayed }},
	{Metric: Metric{Name: "ral.unheld_calls", Unit: "{call}", Help: "Calls that took units in use and returned nothing to release, such as Choke and Take."}, Of: func(snapshot *engineSnapshot) any { return &snapshot.Unheld }},
	{Metric: Metric{Name: "ral.blocked_keys", Gauge: true, Unit: "{key}", Help: "Keys that are blocked now."}, Of: func(snapshot *engineSnapshot) any { return &snapshot.BlockedKeys }},
	{Metric: Metric{Name: "ral.blocks", Unit: "{block}", Label: "reason", Help: "Blocks of keys, by a call of Block or by the configured penalty."}, Value: "call", Of: func(snapshot *engineSnapshot) any { return &snapshot.Blocks }},
	{Value: "penalty", Of: func(snapshot *engineSnapshot) any { return &snapshot.Penalties }},
	{Metric: Metric{Name: "ral.unpunished_refusals", Unit: "{call}", Help: "Refusals that did not count towards a penalty, for want of room or of a writer."}, Of: func(snapshot *engineSnapshot) any { return &snapshot.Unpunished }},
	{Metric: Metric{Name: "ral.restarts", Unit: "{restart}", Help: "Restarts of the engine's goroutines after a panic."}, Of: func(snapshot *engineSnapshot) any { return &snapshot.Restarts }},
	{Metric: Metric{Name: "ral.dropped_commands", Unit: "{command}", Help: "Commands that were given up because the writer died of them twice."}, Of: func(snapshot *engineSnapshot) any { return &snapshot.Dropped }},
	{Metric: Metric{Name: "ral.queued_commands", Gauge: true, Unit: "{command}", Help: "Commands that wait for the writer."}, Of: func(snapshot *engineSnapshot) any { return &snapshot.QueueDepth }},
	{Metric: Metric{Name: "ral.abandoned_goroutines", Gauge: true, Unit: "{goroutine}", Help: "Goroutines that did not end when they should have."}, Of: func(snapshot *engineSnapshot) any { return &snapshot.Abandoned }},
	{Metric: Metric{Name: "ral.save.timestamp", Gauge: true, Unit: "s", Help: "Unix time at which the last successful save of the state began, or the limiter if there was none; absent if no state is saved."}, Of: func(snapshot *engineSnapshot) any {
		return since(snapshot.UnsavedSince, float64(snapshot.UnsavedSince.UnixNano())/1e9)
	}},
	{Metric: Metric{Name: "ral.save.duration", Gauge: true, Unit: "s", Help: "How long the last successful save of the state took; absent before the first."}, Of: func(snapshot *engineSnapshot) any { return since(snapshot.SavedAt, &snapshot.SaveTook) }},
	{Metric: Metric{Name: "ral.save.keys", Gauge: true, Unit: "{key}", Label: "result", Help: "Keys of the last successful save, written and left out; absent before the first."}, Value: "saved", Of: func(snapshot *engineSnapshot) any { return since(snapshot.SavedAt, &snapshot.Saved) }},
	{Value: "unsaved", Of: func(snapshot *engineSnapshot) any { return since(snapshot.SavedAt, &snapshot.Unsaved) }},
	{Metric: Metric{Name: "ral.save.failing", Gauge: true, Help: "1 if the last save of the state failed."}, Of: func(snapshot *engineSnapshot) any { return &snapshot.unsaved }},
}

func since(at time.Time, value any) any {
	if at.IsZero() {
		return nil
	}
	return value
}

// Single makes a Source of a *single.Limiter under a name. Such a limiter counts no calls: the
// metrics are the used share of its limit and the waiting calls.
func Single(name string, limiter *single.Limiter) *Source {
	if limiter == nil {
		return failed(errors.New("ral: metrics.Single: the limiter is nil, want a Limiter from single.New"))
	}
	return New(name, limiter.Explain, singleTable)
}

var singleTable = []Reading[limits.Explanation]{
	{Metric: Metric{Name: "ral.used", Gauge: true, Unit: "1", Help: "Share of a limit without keys that is used, 0 to 1."}, Of: func(explanation *limits.Explanation) any {
		return min(1, float64(explanation.Used)/float64(explanation.Of))
	}},
	{Metric: Metric{Name: "ral.waiting_calls"}, Of: func(explanation *limits.Explanation) any { return &explanation.Waiting }},
}

// Trial makes a Source of a *limits.Trial under a name.
func Trial(name string, t interface{ Stats() limits.TrialStats }) *Source {
	if shape.IsNil(t) {
		return failed(errors.New("ral: metrics.Trial: the trial is nil, want a Trial from limits.NewTrial"))
	}
	return New(name, t.Stats, trialTable)
}

var trialTable = []Reading[limits.TrialStats]{
	{Metric: Metric{Name: "ral.trial.calls", Unit: "{call}", Label: "result", Help: "Calls on which a candidate was tried, by its answer beside the live limiter."}, Value: "admitted", Of: func(stats *limits.TrialStats) any { return &stats.Admitted }},
	{Value: "refused", Of: func(stats *limits.TrialStats) any { return &stats.Refused }},
	{Value: "would_refuse", Of: func(stats *limits.TrialStats) any { return &stats.WouldRefuse }},
	{Value: "would_admit", Of: func(stats *limits.TrialStats) any { return &stats.WouldAdmit }},
	{Value: "failed", Of: func(stats *limits.TrialStats) any { return &stats.Failed }},
}
