package families

import (
	"iter"

	"github.com/ral-limiter/ral/policy"
)

// CanCarry reports whether the keys are in this process, so that their words can be translated to
// another limit. Those in Redis are also used by servers that do not know of it.
func (s *Family) CanCarry() bool { return s.Engine != nil }

// Keys goes through the keys that have been used, if CanCarry. It blocks no call. Keys that come
// or go meanwhile may be missed.
func (s *Family) Keys() iter.Seq[string] {
	return func(yield func(string) bool) {
		for key := range s.Engine.All() {
			if !yield(key) {
				return
			}
		}
	}
}

// Owing goes through the keys that are not as good as new or are blocked, if CanCarry. A key may
// come twice. It blocks no call.
func (s *Family) Owing() iter.Seq[string] {
	return func(yield func(string) bool) {
		// A word says under every limit of the family when it is as good as new.
		for key, d := range s.Engine.All() {
			if d.ResetAfter > 0 && !yield(key) {
				return
			}
		}
		for key := range s.Engine.AllBlocked() {
			if !yield(key) {
				return
			}
		}
	}
}

// ChangeLimit makes what the key has used under one limit of the family count under another, if
// CanCarry.
// See engine.Engine.ChangeLimit.
func (s *Family) ChangeLimit(key string, from, to policy.Policy) error {
	return s.Engine.ChangeLimit(key, from, to)
}

// Sync saves the keys now, if they are saved at all. A family that Release has ended has none.
func (s *Family) Sync() error {
	s.saving.Lock()
	defer s.saving.Unlock()
	if s.Engine == nil || s.users.Load() == retired {
		return nil
	}
	return s.Engine.Sync()
}
