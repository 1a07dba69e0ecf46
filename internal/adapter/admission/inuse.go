package admission

import (
	"time"

	"github.com/ral-limiter/ral/engine"
	"github.com/ral-limiter/ral/limits"
	"github.com/ral-limiter/ral/policy"
)

// This file is about limits of units in use, such as policy.InFlight. A request under such a limit keeps its
// units until it ends, even without a Charge.

// occupies reports whether a limiter is known to have units in use. For a limiter of another type, only
// LimitFor can tell. LimitFor does not suffice for an engine.Tiered, of which it returns only the smallest limit,
// and for a Trial, whose candidate it ignores.
func occupies[K comparable](limiter limits.Limiter[K]) bool {
	switch l := limiter.(type) {
	case *engine.Tiered[K]:
		for _, limiter := range l.Engines() {
			if isOccupier(limiter.Limit()) {
				return true
			}
		}
	case *limits.Trial[K]:
		return occupies(l.Live()) || occupies(l.Candidate())
	case interface{ Limit() policy.Policy }:
		return isOccupier(l.Limit())
	}
	return false
}

func isOccupier(limit policy.Policy) bool {
	_, ok := limit.(policy.Occupier)
	return ok
}

// guessIn returns the time after which a request that an engine refused is told to come back. That is after, or
// at most guess if the engine's limit is of units in use. It is never before the end of a block of the key.
func guessIn[K comparable](limiter *engine.Engine[K], key K, after, guess time.Duration) time.Duration {
	if !isOccupier(limiter.LimitFor(key)) {
		return after
	}
	return max(min(after, guess), limiter.Blocked(key))
}
