package admission

import (
	"math/rand/v2"
	"time"

	"github.com/ral-limiter/ral/engine"
	deciding "github.com/ral-limiter/ral/internal/adapter/binding"
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

// HasUnitsInUse reports whether the limiter is known to have units in use until a request ends.
func (p *Parts[R, S]) HasUnitsInUse() bool { return p.occupies }

// tellInUse replaces the times of v, which are upper bounds under a limit of units in use: any request that ends
// makes room.
func (l *Limit[R, K, S]) tellInUse(key K, v *Result, guess time.Duration) {
	if v.Reason == limits.OverLimit && v.keepsTurn(&v.Quota) {
		v.told(l.comesBack(key, v.Cost, v.RetryAfter, guess))
	}
	if v.Quota.InUse {
		v.boundReset(guess)
	}
}

func (v *Result) boundReset(guess time.Duration) {
	v.Decision.ResetAfter = min(v.Decision.ResetAfter, guess)
}

// tellInUse is Limit.tellInUse for a claim that one of several limits refuses. It adds the claim to last.
func (d *Controller[R, S]) tellInUse(r R, c *claims, quotas []Quota, claim int, decision *policy.Decision, basis *limits.Provenance, last *deciding.Claim) {
	index := c.limits[claim]
	if !decision.Allowed && basis.Err() == nil && (quotas[index].InUse || d.parts[index].occupies) {
		decision.RetryAfter = d.limiters[index].comesBackAfter(r, c.costs[index], decision.RetryAfter, d.config.RetryGuess)
	}
	last.See(claim, decision, 0)
}

func (l *Limit[R, K, S]) comesBackAfter(r R, n int64, after, guess time.Duration) time.Duration {
	if key, ok := l.find(r); ok && after > 0 {
		return l.comesBack(key, n, after, guess)
	}
	return after
}

// comesBack returns the time after which a refused request of n units is told to come back, instead of after.
// Requests that were refused together are told different times.
func (l *Limit[R, K, S]) comesBack(key K, n int64, after, guess time.Duration) time.Duration {
	guess = guess/2 + rand.N(guess/2+1)
	switch tiered, _ := l.Limiter.(*engine.Tiered[K]); {
	case after == policy.Never:
	case tiered != nil:
		after = 1 // a request may have ended since
		for _, e := range tiered.Engines() {
			if d := e.Peek(key, n); !d.Allowed {
				after = max(after, guessIn(e, key, d.RetryAfter, guess))
			}
		}
	case l.engine != nil:
		after = guessIn(l.engine, key, after, guess)
	case isOccupier(l.Limiter.LimitFor(key)):
		after = min(after, guess)
	}
	return after
}

// guessIn returns the guess for an engine's refusal, or after if its limit has no units in use. A block of the
// key ends when it says.
func guessIn[K comparable](e *engine.Engine[K], key K, after, guess time.Duration) time.Duration {
	if !isOccupier(e.LimitFor(key)) {
		return after
	}
	return max(min(after, guess), e.Blocked(key))
}
