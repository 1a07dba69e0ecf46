package metrics

import (
	"errors"
	"fmt"
	"math"

	"github.com/ral-limiter/ral/engine"
	"github.com/ral-limiter/ral/internal/core/shape"
	"github.com/ral-limiter/ral/limits"
)

// Engine makes a Source of an *engine.Engine. Its name is
// engine.Config.Name. The Source may outlive the engine: the counters stay.
func Engine(e interface {
	Stats() engine.Stats
	Health() error
},
) *Source {
	if shape.IsNil(e) {
		return failed(errors.New("ral: metrics.Engine: the engine is nil, want what engine.New returns"))
	}
	return engineNamed(e.Stats().Name, e)
}

// Tiered makes a Source of an *engine.Tiered: one limiter for each of its limits, in the order of Engines.
// The first has the name of engine.Config.Name, and the others have it with ".2", ".3" and
// so on, as the files of engine.State have. Each limit counts each call.
func Tiered[K comparable](t *engine.Tiered[K]) *Source {
	if t == nil {
		return failed(errors.New("ral: metrics.Tiered: the limiter is nil, want what engine.NewTiered returns"))
	}
	var all []*Source
	for i, e := range t.Engines() {
		name := e.Stats().Name
		if i > 0 {
			name = fmt.Sprintf("%s.%d", name, i+1)
		}
		all = append(all, engineNamed(name, e))
	}
	return join(all...)
}

// engineSnapshot is what is read of an engine.
type engineSnapshot struct {
	engine.Stats
	healthy bool
}

func engineNamed(name string, e interface {
	Stats() engine.Stats
	Health() error
},
) *Source {
	return New(name, func() engineSnapshot { return engineSnapshot{e.Stats(), e.Health() == nil} }, engineReadings)
}

var engineReadings = []Reading[engineSnapshot]{
	{"ral.calls", "admitted", func(s *engineSnapshot) float64 { return float64(s.Admitted) }},
	{"ral.calls", "refused", func(s *engineSnapshot) float64 { return float64(s.Refused) }},
	{"ral.healthy", "", func(s *engineSnapshot) float64 { return Bool(s.healthy) }},
	{"ral.waiting_calls", "", func(s *engineSnapshot) float64 { return float64(s.Waiting) }},
	{"ral.waits", "", func(s *engineSnapshot) float64 { return float64(s.Waits) }},
	{"ral.wait_time", "", func(s *engineSnapshot) float64 { return s.WaitTime.Seconds() }},
	{"ral.refusals", "over_limit", func(s *engineSnapshot) float64 { return float64(s.OverLimit) }},
	{"ral.refusals", "blocked", func(s *engineSnapshot) float64 { return float64(s.Blocked) }},
	{"ral.refusals", "misfit", func(s *engineSnapshot) float64 { return float64(s.Misfits) }},
	{"ral.refusals", "unavailable", func(s *engineSnapshot) float64 { return float64(s.UnavailableRefused) }},
	{"ral.refusals", "full", func(s *engineSnapshot) float64 { return float64(s.FullRefused) }},
	{"ral.refusals", "crowded", func(s *engineSnapshot) float64 { return float64(s.Crowded) }},
	{"ral.refusals", "late", func(s *engineSnapshot) float64 { return float64(s.Late) }},
	{"ral.refusals", "cancelled", func(s *engineSnapshot) float64 { return float64(s.Cancelled) }},
	{"ral.unrecorded_calls", "unavailable", func(s *engineSnapshot) float64 { return float64(s.Unavailable) }},
	{"ral.unrecorded_calls", "full", func(s *engineSnapshot) float64 { return float64(s.Full) }},
	{"ral.keys", "", func(s *engineSnapshot) float64 { return float64(s.Keys) }},
	{"ral.max_keys", "", func(s *engineSnapshot) float64 { return float64(s.MaxKeys) }},
	{"ral.keys_by_use", "none", func(s *engineSnapshot) float64 { return s.ofCount(s.KeysByUse.Unused) }},
	{"ral.keys_by_use", "below_half", func(s *engineSnapshot) float64 { return s.ofCount(s.KeysByUse.BelowHalf) }},
	{"ral.keys_by_use", "half", func(s *engineSnapshot) float64 { return s.ofCount(s.KeysByUse.Half) }},
	{"ral.keys_by_use", "most", func(s *engineSnapshot) float64 { return s.ofCount(s.KeysByUse.Most) }},
	{"ral.keys_by_use", "all", func(s *engineSnapshot) float64 { return s.ofCount(s.KeysByUse.All) }},
	{"ral.keys_by_use", "chosen", func(s *engineSnapshot) float64 { return s.ofCount(s.KeysByUse.Chosen) }},
	{"ral.evicted_keys", "", func(s *engineSnapshot) float64 { return float64(s.Evicted) }},
	{"ral.forgiven_keys", "", func(s *engineSnapshot) float64 { return float64(s.Forgiven) }},
	{"ral.blocked_keys", "", func(s *engineSnapshot) float64 { return float64(s.BlockedKeys) }},
	{"ral.blocks", "call", func(s *engineSnapshot) float64 { return float64(s.Blocks) }},
	{"ral.blocks", "penalty", func(s *engineSnapshot) float64 { return float64(s.Penalties) }},
	{"ral.unpunished_refusals", "", func(s *engineSnapshot) float64 { return float64(s.Unpunished) }},
	{"ral.restarts", "", func(s *engineSnapshot) float64 { return float64(s.Restarts) }},
	{"ral.dropped_commands", "", func(s *engineSnapshot) float64 { return float64(s.Dropped) }},
	{"ral.queued_commands", "", func(s *engineSnapshot) float64 { return float64(s.QueueDepth) }},
	{"ral.abandoned_goroutines", "", func(s *engineSnapshot) float64 { return float64(s.Abandoned) }},
	{"ral.save.timestamp", "", func(s *engineSnapshot) float64 { return s.unsavedSince() }},
	{"ral.save.duration", "", func(s *engineSnapshot) float64 { return s.ofSave(s.SaveTook.Seconds()) }},
	{"ral.save.keys", "saved", func(s *engineSnapshot) float64 { return s.ofSave(float64(s.Saved)) }},
	{"ral.save.keys", "unsaved", func(s *engineSnapshot) float64 { return s.ofSave(float64(s.Unsaved)) }},
	{"ral.save.failing", "", func(s *engineSnapshot) float64 { return Bool(s.SaveError != nil) }},
}

// unsavedSince returns the Unix time from which on units are in no file, if there is to be a file.
func (s *engineSnapshot) unsavedSince() float64 {
	if s.UnsavedSince.IsZero() {
		return math.NaN()
	}
	return float64(s.UnsavedSince.UnixNano()) / 1e9
}

// ofSave returns the value if there was a save.
func (s *engineSnapshot) ofSave(value float64) float64 {
	if s.SavedAt.IsZero() {
		return math.NaN()
	}
	return value
}

// ofCount returns the count of keys if there was one.
func (s *engineSnapshot) ofCount(keys int) float64 {
	if s.KeysByUse.At.IsZero() {
		return math.NaN()
	}
	return float64(keys)
}

// Trial makes a Source of a *limits.Trial under a name.
func Trial(name string, t interface{ Stats() limits.TrialStats }) *Source {
	if shape.IsNil(t) {
		return failed(errors.New("ral: metrics.Trial: the trial is nil, want what limits.NewTrial returns"))
	}
	return New(name, t.Stats, []Reading[limits.TrialStats]{
		{"ral.trial.calls", "admitted", func(s *limits.TrialStats) float64 { return float64(s.Admitted) }},
		{"ral.trial.calls", "refused", func(s *limits.TrialStats) float64 { return float64(s.Refused) }},
		{"ral.trial.calls", "would_refuse", func(s *limits.TrialStats) float64 { return float64(s.WouldRefuse) }},
		{"ral.trial.calls", "would_admit", func(s *limits.TrialStats) float64 { return float64(s.WouldAdmit) }},
		{"ral.trial.calls", "failed", func(s *limits.TrialStats) float64 { return float64(s.Failed) }},
	})
}

// Bool returns 1 for true and 0 for false.
func Bool(is bool) float64 {
	if is {
		return 1
	}
	return 0
}
