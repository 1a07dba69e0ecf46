package fleet

import (
	"context"
	"fmt"
	"math"

	"github.com/ral-limiter/ral/internal/core/decide"
	"github.com/ral-limiter/ral/limits"
	"github.com/ral-limiter/ral/policy"
)

// Choke reports whether the key may act now, and takes a unit if so: Take(ctx, key, 1).Allowed,
// false on an error. In Leased mode it costs less than Take, and no allocation while this server
// decides.
func (l *Limiter) Choke(ctx context.Context, key string) bool {
	if l.leased != nil && l.leased.mayTry(ctx, key) {
		if allowed, ok := l.leased.leases.Choke(key); ok {
			return allowed
		}
	}
	answer, err := l.TakeWith(ctx, nil, key, 1)
	return err == nil && answer.Allowed
}

// Take asks for n units for the key now, and records them if they are allowed. n above the limit or
// below 0 is refused with policy.Never; n == 0 looks without taking. It waits for Redis for at most
// Config.Budget, or until ctx ends, which is an error. In both cases the request may still count.
// Redis is never asked twice.
//
// If Redis decided, the decision is the policy's at that moment by Redis's clock: RetryAfter leaves
// out the way back. It is Exact in Exact mode. By Answer.Source, other figures mean:
//
//   - SourceLease: Remaining is the rest of this server's lease, ResetAfter when that ends, and
//     RetryAfter when this server will ask Redis again.
//   - SourceShare: the figures are of this server's share.
//   - SourceOpen: Remaining is as for a key never used.
//   - SourceClosed: RetryAfter guesses when Redis may be back.
//
// Answer.Err is why Redis was not asked, or the fault of its answer: ErrOutage, or an error about
// the key. It is limits.ErrBlocked if the key was blocked before the call.
func (l *Limiter) Take(ctx context.Context, key string, n int64) (limits.Answer, error) {
	if l.leased != nil && n != 0 && l.leased.mayTry(ctx, key) {
		if decision, ok := l.leased.leases.Try(key, n); ok {
			return limits.Answer{Decision: decision, Provenance: byLease}, nil
		}
	}
	return l.TakeWith(ctx, nil, key, n)
}

// TakeWith is Take under a limit that comes with the call, of the family of the limiter's own: a
// Funnel, Queue or Bursty of other figures, a window or SlidingLog of the same period. Any other
// limit is ErrMisfit, and nothing is recorded. nil is the limit that the key has without it. In
// Leased mode any limit except nil is ErrModeUnsupported.
//
// Limits that alternate on a key share time, not units, under a Funnel, Queue or Bursty. So 10 of
// 10 an hour take the whole hour under 1,000 an hour as well. Under the others they share the units
// of the window. While Redis is away each limit has a share of its own. Make limits once: making a
// limit costs more than a call. A limiter takes 1,024 of different text, then returns
// ErrTooManyLimits.
func (l *Limiter) TakeWith(ctx context.Context, limit policy.Policy, key string, n int64) (limits.Answer, error) {
	terms, err := l.under(limit, key)
	if err != nil {
		return misfit, err
	}
	t, err := l.take(ctx, ask{terms: terms, key: key, n: n, final: true})
	return t.answer, err
}

// TakeUpTo takes n units if Take would, and otherwise as many as remain for the key. It returns how
// many, and the answer to these: Take's of one unit, refused, if none remain. n of 2 or more costs a
// look beforehand. If other calls take in between, it asks again for what remains then, and each
// refusal counts. In Leased mode it may take fewer, since units on lease and in Redis do not add up.
// The error is Take's; then nothing was taken.
func (l *Limiter) TakeUpTo(ctx context.Context, key string, n int64) (units int64, answer limits.Answer, err error) {
	if n > 1 {
		if answer, err = l.Peek(ctx, key, n); err == nil && !answer.Allowed {
			n = max(min(n, answer.Remaining), 1)
		}
	}
	units = decide.UpTo(n, &answer.Decision, func(n int64) {
		if answer.Decision = (policy.Decision{}); err == nil {
			answer, err = l.Take(ctx, key, n)
		}
	})
	return units, answer, err
}

// Peek returns the answer of Take(ctx, key, n) now: whether n units would pass, or how long until
// they do. It asks Redis, takes nothing and is not counted. Under n == 0 it is the key's state:
// Allowed unless the key is blocked or Config.PolicyFor chose a limit of another family. Under a
// SlidingLog, RetryAfter of units that can pass later is ResetAfter: then they certainly pass.
func (l *Limiter) Peek(ctx context.Context, key string, n int64) (limits.Answer, error) {
	terms, err := l.under(nil, key)
	if err != nil {
		return misfit, err
	}
	t, err := l.look(ctx, ask{terms: terms, key: key, n: n})
	return t.answer, err
}

// Refund gives n units back to the key, for costs known only afterwards: take the estimate, then
// refund the rest. At most the key's used units that still count come back. In Leased mode units on
// lease count as used: a larger refund may give those back while servers go on to use them. n < 0
// charges -n units, whether the limit allows it or not. The most is the units that pass in 31 days,
// or that the limit admits at once if more; beyond is a *policy.FieldError. The answer tells how
// the key stands afterwards. See policy.Refunder.
//
// Like Take, it is one round trip to Redis, whatever other calls do. Without Redis it goes to this
// server's share, or nowhere, and then the answer is not Allowed. Nothing is given back or charged
// twice. If Redis was asked and its result is unknown, as with ErrBudget, it goes nowhere else and
// the answer is not Allowed. Redis may have done it then, and also if the error is that ctx ended.
// It is not counted in the statistics. For units taken by TakeWith use RefundWith.
func (l *Limiter) Refund(ctx context.Context, key string, n int64) (limits.Answer, error) {
	return l.RefundWith(ctx, nil, key, n)
}

// RefundWith is Refund for units taken by TakeWith under limit. nil is the key's limit.
func (l *Limiter) RefundWith(ctx context.Context, limit policy.Policy, key string, n int64) (limits.Answer, error) {
	terms, err := l.under(limit, key)
	if err != nil {
		return misfit, err
	}
	a := ask{terms: terms, key: key, n: n}
	if n == 0 {
		t, err := l.look(ctx, a)
		return t.answer, err
	}
	if most := decide.MostCharge(terms.policy); n < -most {
		return misfit, &policy.FieldError{Of: "Refund", Field: "n", Value: n, Want: fmt.Sprintf(
			"%d or more: one call charges at most as many units as pass in 31 days, or at once", -most)}
	}
	return l.giveBack(ctx, a)
}

// Charge takes n units of the key, whether its limit allows it or not, for costs found later. n < 0
// gives units back. Without Redis it does as Refund of -n. The error is Refund's, or its answer's
// Err if the charge may not count.
func (l *Limiter) Charge(ctx context.Context, key string, n int64) error {
	if n == 0 {
		return nil
	}
	answer, err := l.Refund(ctx, key, -max(n, -math.MaxInt64))
	if err == nil && !answer.Allowed {
		err = answer.Err()
	}
	return err
}

// Reset forgets the key's used units, block and refusals, and reports whether there were any. Units
// on lease stay. In Leased mode a server told of the block refuses the key for up to Config.Term
// more. Calls that wait for the end of the block go on within a second. Without Redis it forgets
// the key's use of this server's shares and its block here, and the error is ErrOutage.
func (l *Limiter) Reset(ctx context.Context, key string) (bool, error) {
	own := l.own.Load()
	used, err := about(ctx, &l.access, own, key, func(ctx context.Context, decider decider) (bool, error) {
		return decider.Delete(ctx, own.limit, key)
	})
	err, passed := forCaller(err)
	switch {
	case err != nil && !passed:
		return false, err
	case err == nil && l.leased != nil:
		l.leased.leases.Forget(key)
	}
	if l.slots != nil {
		l.slots.forgetKey(key)
	}
	l.known.Forget(key)
	for _, terms := range l.shares() {
		used = terms.local.Reset(key) || used
	}
	return used, err
}
