package engine

import (
	"time"
)

// RefusedList lists the most refused keys: see Engine.MostRefused.
type RefusedList[K comparable] struct {
	// Keys are sorted by Least, the most first.
	Keys []RefusedKey[K]
	// For is the time that the list covers, up to now.
	For time.Duration
	// Total is the exact number of refusals in that time, of all keys.
	Total uint64
	// OthersMost bounds the refusals of any key that is not in Keys.
	OthersMost uint64
}

// RefusedKey is a key with its refusals in the time of a list. Refusals is an estimate, neither
// below Least nor above Most.
type RefusedKey[K comparable] struct {
	Key                   K
	Refusals, Least, Most uint64
	// Last is the time since a refusal of the key was last counted for the list.
	Last time.Duration
}

// MostRefused returns the n keys that were refused most in the current minute and the one before,
// or since the engine was made. A call counts once for each key that Stats.Refused counts, for
// whatever reason, blocks included.
//
// The first thousand refusals in a minute are all counted, so up to that and 512 keys the list is
// exact. Beyond, a random sample is counted, of 1 in 2,048 or more, and the figures are estimates
// with bounds, missed with a chance below 1 in 10¹¹. A key with more than 1 in 512 of the sampled
// refusals always has a counter, whatever the flood of keys that are refused once each.
//
// Total, Refusals and bounds are read while calls go on. Unless Config.NoRefusedKeys is set, the
// list costs a refused call up to 2%, and samples up to 2 ms a minute until the chance is lowest.
// An admitted call costs nothing more. The few refusals that are counted for the list take some
// tens of microseconds longer.
func (e *Engine[K]) MostRefused(n int) RefusedList[K] {
	most := e.cell.RefusedMost(n)
	list := RefusedList[K]{
		Keys: make([]RefusedKey[K], len(most.Keys)),
		For:  time.Duration(most.To - most.From), Total: most.Total, OthersMost: most.Others,
	}
	for i, refused := range most.Keys {
		list.Keys[i] = RefusedKey[K]{refused.Key, refused.Count, refused.Least, refused.Most, time.Duration(max(most.To-refused.Last, 0))}
	}
	return list
}
