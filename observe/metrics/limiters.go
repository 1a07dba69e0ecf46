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
	for i, e := range tiered.Engines() {
		name := e.Stats().Name
		if i > 0 {
			name = fmt.Sprintf("%s.%d", name, i+1)
		}
		all = append(all, engineNamed(name, e))
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
		s := e.Stats()
		return engineSnapshot{s, e.Health() == nil, s.SaveError != nil}
	}, engineTable)
}

func ofEngines(name string) *Metric {
	for i := range engineTable {
		if m := &engineTable[i].Metric; m.Name == name && name != "" {
			return m
		}
	}
	return nil
}

// engineTable has the metrics of an engine. Other limiters share them by name.
var engineTable = []Reading[engineSnapshot]{
	{Metric: Metric{Name: "ral.calls", Unit: "{call}", Label: "result", Help: "Calls that took units or were refused them."}, Value: "admitted", Of: func(s *engineSnapshot) any { return &s.Admitted }},
	{Value: "refused", Of: func(s *engineSnapshot) any { return &s.Refused }},
	{Metric: Metric{Name: "ral.healthy", Gauge: true, Help: "1 if the limiter's Health is nil, and 0 if it is degraded."}, Of: func(s *engineSnapshot) any { return &s.healthy }},
	{Metric: Metric{Name: "ral.waiting_calls", Gauge: true, Unit: "{call}", Help: "Calls that wait for their turn."}, Of: func(s *engineSnapshot) any { return &s.Waiting }},
	{Metric: Metric{Name: "ral.longest_wait", Gauge: true, Unit: "s", Help: "How long the call has waited that has waited longest of those that wait now; 0 if none waits."}, Of: func(s *engineSnapshot) any { return &s.LongestWait }},
	{Metric: Metric{Name: "ral.waits", Unit: "{call}", Help: "Calls that waited for their turn, with their units or without."}, Of: func(s *engineSnapshot) any { return &s.Waits }},
	{Metric: Metric{Name: "ral.wait_time", Unit: "s", Help: "Sum of how long these calls waited."}, Of: func(s *engineSnapshot) any { return &s.WaitTime }},
	{Metric: Metric{Name: "ral.refusals", Unit: "{call}", Label: "reason", Help: "Refused calls by the reason; their sum is ral.calls with the result refused."}, Value: "over_limit", Of: func(s *engineSnapshot) any { return &s.OverLimit }},
	{Value: "blocked", Of: func(s *engineSnapshot) any { return &s.Blocked }},
	{Value: "misfit", Of: func(s *engineSnapshot) any { return &s.Misfits }},
	{Value: "unavailable", Of: func(s *engineSnapshot) any { return &s.UnavailableRefused }},
	{Value: "full", Of: func(s *engineSnapshot) any { return &s.FullRefused }},
	{Value: "crowded", Of: func(s *engineSnapshot) any { return &s.Crowded }},
	{Value: "late", Of: func(s *engineSnapshot) any { return &s.Late }},
	{Value: "cancelled", Of: func(s *engineSnapshot) any { return &s.Cancelled }},
	{Metric: Metric{Name: "ral.unrecorded_calls", Unit: "{call}", Label: "reason", Help: "Calls that were answered as configured and not by the limit, because the key could not be recorded or the table was full."}, Value: "unavailable", Of: func(s *engineSnapshot) any { return &s.Unavailable }},
	{Value: "full", Of: func(s *engineSnapshot) any { return &s.Full }},
	{Metric: Metric{Name: "ral.keys", Gauge: true, Unit: "{key}", Help: "Keys in the table."}, Of: func(s *engineSnapshot) any { return &s.Keys }},
	{Metric: Metric{Name: "ral.max_keys", Gauge: true, Unit: "{key}", Help: "Most keys that the table may hold."}, Of: func(s *engineSnapshot) any { return &s.MaxKeys }},
	{Metric: Metric{Name: "ral.keys_by_use", Gauge: true, Unit: "{key}", Label: "used", Help: "Keys by the share of their limit that they have used, as counted some time ago: half is 50% and more, most is 80% and more. Absent before the first count."}, Value: "none", Of: func(s *engineSnapshot) any { return since(s.KeysByUse.At, &s.KeysByUse.Unused) }},
	{Value: "below_half", Of: func(s *engineSnapshot) any { return since(s.KeysByUse.At, &s.KeysByUse.BelowHalf) }},
	{Value: "half", Of: func(s *engineSnapshot) any { return since(s.KeysByUse.At, &s.KeysByUse.Half) }},
	{Value: "most", Of: func(s *engineSnapshot) any { return since(s.KeysByUse.At, &s.KeysByUse.Most) }},
	{Value: "all", Of: func(s *engineSnapshot) any { return since(s.KeysByUse.At, &s.KeysByUse.All) }},
	{Metric: Metric{Name: "ral.units_in_use", Gauge: true, Unit: "{unit}", Help: "Units in use of a limit of calls at once, over all keys, as counted some time ago together with ral.keys_by_use; 0 under other limits. Absent before the first count."}, Of: func(s *engineSnapshot) any { return since(s.KeysByUse.At, &s.KeysByUse.UnitsInUse) }},
	{Metric: Metric{Name: "ral.warnings", Unit: "{warning}", Help: "Warnings of keys that passed a share of their limit."}, Of: func(s *engineSnapshot) any { return &s.Warnings }},
	{Metric: Metric{Name: "ral.evicted_keys", Unit: "{key}", Help: "Keys that left the table, idle or to make room."}, Of: func(s *engineSnapshot) any { return &s.Evicted }},
	{Metric: Metric{Name: "ral.forgiven_keys", Unit: "{key}", Help: "Keys that were given up to make room while they still owed."}, Of: func(s *engineSnapshot) any { return &s.Forgiven }},
	{Metric: Metric{Name: "ral.overstayed_calls", Unit: "{call}", Help: "Releases and extensions of units in use that had ended by themselves: calls longer than the longest time of their limit."}, Of: func(s *engineSnapshot) any { return &s.Overstayed }},
	{Metric: Metric{Name: "ral.unheld_calls", Unit: "{call}", Help: "Calls that took units in use and returned nothing to release, such as Choke and Take."}, Of: func(s *engineSnapshot) any { return &s.Unheld }},
	{Metric: Metric{Name: "ral.blocked_keys", Gauge: true, Unit: "{key}", Help: "Keys that are blocked now."}, Of: func(s *engineSnapshot) any { return &s.BlockedKeys }},
	{Metric: Metric{Name: "ral.blocks", Unit: "{block}", Label: "reason", Help: "Blocks of keys, by a call of Block or by the configured penalty."}, Value: "call", Of: func(s *engineSnapshot) any { return &s.Blocks }},
	{Value: "penalty", Of: func(s *engineSnapshot) any { return &s.Penalties }},
	{Metric: Metric{Name: "ral.unpunished_refusals", Unit: "{call}", Help: "Refusals that did not count towards a penalty, for want of room or of a writer."}, Of: func(s *engineSnapshot) any { return &s.Unpunished }},
	{Metric: Metric{Name: "ral.restarts", Unit: "{restart}", Help: "Restarts of the engine's goroutines after a panic."}, Of: func(s *engineSnapshot) any { return &s.Restarts }},
	{Metric: Metric{Name: "ral.dropped_commands", Unit: "{command}", Help: "Commands that were given up because the writer died of them twice."}, Of: func(s *engineSnapshot) any { return &s.Dropped }},
	{Metric: Metric{Name: "ral.queued_commands", Gauge: true, Unit: "{command}", Help: "Commands that wait for the writer."}, Of: func(s *engineSnapshot) any { return &s.QueueDepth }},
	{Metric: Metric{Name: "ral.abandoned_goroutines", Gauge: true, Unit: "{goroutine}", Help: "Goroutines that did not end when they should have."}, Of: func(s *engineSnapshot) any { return &s.Abandoned }},
	{Metric: Metric{Name: "ral.save.timestamp", Gauge: true, Unit: "s", Help: "Unix time at which the last successful save of the state began, or the limiter if there was none; absent if no state is saved."}, Of: func(s *engineSnapshot) any { return since(s.UnsavedSince, float64(s.UnsavedSince.UnixNano())/1e9) }},
	{Metric: Metric{Name: "ral.save.duration", Gauge: true, Unit: "s", Help: "How long the last successful save of the state took; absent before the first."}, Of: func(s *engineSnapshot) any { return since(s.SavedAt, &s.SaveTook) }},
	{Metric: Metric{Name: "ral.save.keys", Gauge: true, Unit: "{key}", Label: "result", Help: "Keys of the last successful save, written and left out; absent before the first."}, Value: "saved", Of: func(s *engineSnapshot) any { return since(s.SavedAt, &s.Saved) }},
	{Value: "unsaved", Of: func(s *engineSnapshot) any { return since(s.SavedAt, &s.Unsaved) }},
	{Metric: Metric{Name: "ral.save.failing", Gauge: true, Help: "1 if the last save of the state failed."}, Of: func(s *engineSnapshot) any { return &s.unsaved }},
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
	{Metric: Metric{Name: "ral.used", Gauge: true, Unit: "1", Help: "Share of a limit without keys that is used, 0 to 1."}, Of: func(x *limits.Explanation) any { return min(1, float64(x.Used)/float64(x.Of)) }},
	{Metric: Metric{Name: "ral.waiting_calls"}, Of: func(x *limits.Explanation) any { return &x.Waiting }},
}

// Trial makes a Source of a *limits.Trial under a name.
func Trial(name string, t interface{ Stats() limits.TrialStats }) *Source {
	if shape.IsNil(t) {
		return failed(errors.New("ral: metrics.Trial: the trial is nil, want a Trial from limits.NewTrial"))
	}
	return New(name, t.Stats, trialTable)
}

var trialTable = []Reading[limits.TrialStats]{
	{Metric: Metric{Name: "ral.trial.calls", Unit: "{call}", Label: "result", Help: "Calls on which a candidate was tried, by its answer beside the live limiter."}, Value: "admitted", Of: func(s *limits.TrialStats) any { return &s.Admitted }},
	{Value: "refused", Of: func(s *limits.TrialStats) any { return &s.Refused }},
	{Value: "would_refuse", Of: func(s *limits.TrialStats) any { return &s.WouldRefuse }},
	{Value: "would_admit", Of: func(s *limits.TrialStats) any { return &s.WouldAdmit }},
	{Value: "failed", Of: func(s *limits.TrialStats) any { return &s.Failed }},
}
