package fleet

import (
	"log/slog"

	"github.com/ral-limiter/ral/observe/eventlog"
)

// EventKind is the kind of an Event.
type EventKind uint8

const (
	// OutageBegan: only probes ask Redis from now on. Err is why, and names a cluster's node.
	OutageBegan EventKind = iota
	// OutageEnded: Redis is asked again, with all its nodes. The event comes at most once in ten
	// seconds, so an outage that begins sooner after the last end may have ended before.
	OutageEnded
	// ChargedLocal: Units let pass without Redis that still count were charged there.
	ChargedLocal
	// Unchecked: Redis hides whether it may drop keys. Err names the missing permission.
	Unchecked
	// LimitDeploying: other servers of this Name keep another limit. Err names both, and the newer.
	LimitDeploying
	// LimitConflict: they have done so for ten minutes, or count time from different epochs, which
	// no deploy mends. Err is Health's; with different epochs it names no newer limit.
	LimitConflict
	// LimitAgreed: all servers keep the same limit again.
	LimitAgreed
	// StateUnsaved: Config.StateFile could not be written; told once until a save succeeds. Err is
	// the reason.
	StateUnsaved
	// StateSaved: Config.StateFile was written again.
	StateSaved
	// SharePassed: a key has passed a share of its limit. Err names the share and the key's hash: see
	// Config.WarnAt. Of Shares: nothing is left of the reserve for a tenant, as Err says; only the first is
	// told. Of more than 64 of this kind and HookFailed at once the rest are not told;
	// Stats.Warnings counts all.
	SharePassed
	// HookFailed: Config.OnWarn panicked or ended its goroutine. Err is why.
	HookFailed
)

// description is a kind in words, the level of its records and, if the newest of some kinds is always to
// be written, what they are about.
type description struct {
	words string
	level slog.Level
	topic string
}

var descriptions = [...]description{
	OutageBegan:    {"outage began", slog.LevelError, "outage"},
	OutageEnded:    {"outage ended", slog.LevelInfo, "outage"},
	ChargedLocal:   {"charged", slog.LevelInfo, ""},
	Unchecked:      {"unchecked", slog.LevelWarn, ""},
	LimitDeploying: {"limit deploying", slog.LevelWarn, "limits"},
	LimitConflict:  {"limit conflict", slog.LevelError, "limits"},
	LimitAgreed:    {"limit agreed", slog.LevelInfo, "limits"},
	StateUnsaved:   {"state unsaved", slog.LevelError, "state"},
	StateSaved:     {"state saved", slog.LevelInfo, "state"},
	SharePassed:    {"a key has passed a share of its limit", slog.LevelWarn, ""},
	HookFailed:     {"the hook of warnings failed", slog.LevelError, ""},
}

func (k EventKind) description() description {
	if int(k) < len(descriptions) {
		return descriptions[k]
	}
	return description{words: "unknown"}
}

// String returns the kind in words.
func (k EventKind) String() string { return k.description().words }

// Event is told to Config.OnEvent. Calls go on after each.
type Event struct {
	Kind EventKind
	// Err is the error of OutageBegan, Unchecked, LimitDeploying, LimitConflict, StateUnsaved, SharePassed
	// and HookFailed.
	Err error
	// Units belongs to ChargedLocal.
	Units int64
}

// LogEvents returns a Config.OnEvent that writes events of the limit name to the log, which bounds
// their number. Outages, different limits, an unsaved state and a failed hook are errors; failed
// checks, deploys of limits and passed shares are warnings. The newest record about outages, limits
// and state is always written in the end: see eventlog.Log.State.
func LogEvents(name string, to *eventlog.Log) func(Event) {
	return func(event Event) {
		kind := event.Kind.description()
		attributes := []slog.Attr{slog.String("limit", name)}
		if event.Kind == ChargedLocal {
			attributes = append(attributes, slog.Int64("units", event.Units))
		}
		if event.Kind == SharePassed {
			attributes = append(attributes, slog.String("warning", event.Err.Error()))
		} else if event.Err != nil {
			attributes = append(attributes, slog.String("error", event.Err.Error()))
		}
		if kind.topic == "" {
			to.Record(kind.level, "ral: "+kind.words, attributes...)
			return
		}
		to.State(kind.topic+" of "+name, kind.level, "ral: "+kind.words, attributes...)
	}
}
