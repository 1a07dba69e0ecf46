package admission

import (
	"time"

	"github.com/ral-limiter/ral/engine"
	"github.com/ral-limiter/ral/limits"
	"github.com/ral-limiter/ral/policy"
)

// This file is about limits of units in use, such as policy.InFlight. Their requests are held until they end,
// also without a Charge.

// occupies reports whether a limiter is known to have units in use. LimitFor tells it of any other limiter, but
// only the smallest limit of an engine.Tiered, and nothing of a candidate.
func occupies[K comparable](l limits.Limiter[K]) bool {
	switch l := l.(type) {
	case *engine.Tiered[K]:
		for _, e := range l.Engines() {
			if isOccupier(e.Limit()) {
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

// guessIn returns the guess for an engine's refusal, or after if its limit has no units in use. A block of the
// key ends when it says.
func guessIn[K comparable](e *engine.Engine[K], key K, after, guess time.Duration) time.Duration {
	if !isOccupier(e.LimitFor(key)) {
		return after
	}
	return max(min(after, guess), e.Blocked(key))
}
