package fleet

type EventKind uint8

const (
	// OutageBegan: only probes ask Redis, or a node of a cluster, from now on. Err is why, and
	// names the node.
	OutageBegan EventKind = iota
	// OutageEnded: Redis is asked again, with all its nodes.
	OutageEnded
	// ChargedLocal: Units let pass without Redis that still count were charged there.
	ChargedLocal
	// Unchecked: for want of a permission, which Err names, Redis could not be checked for eviction
	// of keys. Calls go on.
	Unchecked
	// LimitDeploying: other servers of this Name keep another limit, as in a deploy. Err names
	// both, and the newer. Calls go on.
	LimitDeploying
	// LimitConflict: they have done so for ten minutes, or count time from different epochs, which
	// no deploy mends. Err is Health's; with different epochs it names no newer limit. Calls go on.
	LimitConflict
	// LimitAgreed: all servers keep the same limit again.
	LimitAgreed
	// StateUnsaved: Config.StateFile could not be written. Err is why. It is told once until a
	// write succeeds. Calls go on.
	StateUnsaved
	// StateSaved: Config.StateFile was written again.
	StateSaved
)

// String returns the kind in words.
func (k EventKind) String() string {
	names := [...]string{"outage began", "outage ended", "charged", "unchecked", "limit deploying", "limit conflict", "limit agreed", "state unsaved", "state saved"}
	if int(k) < len(names) {
		return names[k]
	}
	return "unknown"
}

// Event is told to Config.OnEvent.
type Event struct {
	Kind  EventKind
	Err   error // of OutageBegan, Unchecked, LimitDeploying, LimitConflict and StateUnsaved
	Units int64 // of ChargedLocal
}
