package spaces

import (
	"iter"

	"github.com/ral-limiter/ral/policy"
)

// Find returns the space of the limit's family. ok is false if there is none yet.
func (s *Spaces) Find(limit policy.Policy) (space *Space, ok bool) {
	space = find(*s.all.Load(), limit)
	return space, space != nil
}

// CanCarry reports whether the keys are in this process, so that what they have used can be
// carried to another space. Those in Redis are also used by servers that do not know of it.
func (s *Space) CanCarry() bool { return s.Engine != nil }

// Keys goes through the keys that have been used, if CanCarry. It blocks no call. Keys that come
// or go meanwhile may be missed.
func (s *Space) Keys() iter.Seq[string] {
	return func(yield func(string) bool) {
		for key := range s.Engine.All() {
			if !yield(key) {
				return
			}
		}
	}
}

// ChangeLimit makes what the key has used under one limit of the family count under another, if
// CanCarry.
// See engine.Engine.ChangeLimit.
func (s *Space) ChangeLimit(key string, from, to policy.Policy) error {
	return s.Engine.ChangeLimit(key, from, to)
}

// Sync saves the keys now, if they are saved at all.
func (s *Space) Sync() error {
	if s.Engine == nil {
		return nil
	}
	return s.Engine.Sync()
}
