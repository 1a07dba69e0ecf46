package fleet

// EventKind says what happened.
type EventKind uint8

const (
	// OutageBegan: Redis is not asked from now on, but to see whether it is back. Err is
	// why. If it is a node of a cluster that is not asked, Err names it.
	OutageBegan EventKind = iota
	// OutageEnded: Redis is asked again, with all its nodes.
	OutageEnded
	// ChargedLocal: Units that were let pass without Redis, and still count, were charged
	// there.
	ChargedLocal
	// Unchecked: whether Redis may drop keys of limits could not be found out, for want
	// of a permission. Err tells which. Calls go on.
	Unchecked
	// LimitDeploying: other servers of this Name keep another limit, as they do while a new
	// one is deployed. Err names both, and says which is newer. Calls go on.
	LimitDeploying
	// LimitConflict: they have done so for ten minutes, or count time from different
	// epochs, which no deploy makes right. Err is what Health returns; of different epochs
	// it does not say which limit is newer. Calls go on.
	LimitConflict
	// LimitAgreed: all servers keep the same limit again.
	LimitAgreed
	// StateUnsaved: what is to be charged could not be written to Config.StateFile. Err is
	// why. It is told once, until that succeeds. Calls go on.
	StateUnsaved
	// StateSaved: what is to be charged was written to Config.StateFile again.
	StateSaved
)

// String is what happened, in words.
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
