package fleet

import (
	"log/slog"

	"github.com/ral-limiter/ral/observe/eventlog"
)

// LogEvents returns a Config.OnEvent that writes events of the limit name to the log, which bounds
// their number. Outages, different limits and an unsaved state are errors; failed checks and
// deploys of limits are warnings. The newest record about outages, limits and state is always
// written in the end: see eventlog.Log.State.
func LogEvents(name string, to *eventlog.Log) func(Event) {
	return func(e Event) {
		at := slog.LevelInfo
		switch e.Kind {
		case OutageBegan, LimitConflict, StateUnsaved:
			at = slog.LevelError
		case Unchecked, LimitDeploying:
			at = slog.LevelWarn
		}
		attributes := []slog.Attr{slog.String("limit", name)}
		if e.Kind == ChargedLocal {
			attributes = append(attributes, slog.Int64("units", e.Units))
		}
		if e.Err != nil {
			attributes = append(attributes, slog.String("error", e.Err.Error()))
		}
		var topic string
		switch e.Kind {
		case OutageBegan, OutageEnded:
			topic = "outage of " + name
		case LimitConflict, LimitDeploying, LimitAgreed:
			topic = "limits of " + name
		case StateUnsaved, StateSaved:
			topic = "state of " + name
		default:
			to.Record(at, "ral: "+e.Kind.String(), attributes...)
			return
		}
		to.State(topic, at, "ral: "+e.Kind.String(), attributes...)
	}
}
