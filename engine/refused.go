package engine

import (
	"time"
)

// RefusedList is the list of the keys that were refused most: see Engine.MostRefused.
type RefusedList[K comparable] struct {
	// Keys are those that were refused most, by Least, the most first.
	Keys []RefusedKey[K]
	// For is the time that the list covers, up to now.
	For time.Duration
	// Total is the number of refusals in that time, of all keys. It is exact.
	Total uint64
	// OthersMost is the most refusals that any key which is not in Keys can have had in that
	// time.
	OthersMost uint64
}

// RefusedKey is a key with the number of its refusals in the time that a list covers. The
// number is Refusals by estimate, and is neither below Least nor above Most.
type RefusedKey[K comparable] struct {
	Key                   K
	Refusals, Least, Most uint64
	// Last is how long ago a refusal of the key was last counted for the list.
	Last time.Duration
}

// MostRefused returns the n keys that were refused most of late: in a minute that is under way
// and the one before, or since the engine was made. A call is refused once for each key that
// Stats.Refused counts, whatever it asked for and for whatever reason, blocks included.
//
// The first thousand refusals in a minute are all counted, so that the list is exact if there
// are no more, and no more than 512 keys. Of more a random sample is counted, of 1 in 2,048
// at the least. The figures are estimates then, and their bounds stand beside them. The
// chance that a number is outside of its bounds is below 1 in 10¹¹. A key with more than one in
// 512 of the refusals in the sample always has a counter, whatever other keys come, so that
// a flood of keys that are refused once each does not push out those that are refused often.
//
// Total, Refusals and bounds are read while calls go on. The list is kept unless
// Config.NoRefusedKeys is set. That costs an admitted call nothing, a refused
// one up to 2%, and up to 2 ms a minute for the samples until the chance is the lowest.
// The list holds up the few refusals that are counted for it, for some tens of microseconds.
func (e *Engine[K]) MostRefused(n int) RefusedList[K] {
	most := e.cell.RefusedMost(n)
	list := RefusedList[K]{
		Keys: make([]RefusedKey[K], len(most.Keys)),
		For:  time.Duration(most.To - most.From), Total: most.Total, OthersMost: most.Others,
	}
	for i, k := range most.Keys {
		list.Keys[i] = RefusedKey[K]{k.Key, k.Count, k.Least, k.Most, time.Duration(max(most.To-k.Last, 0))}
	}
	return list
}
