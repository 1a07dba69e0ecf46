package fleet

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/ral-limiter/ral/engine"
	"github.com/ral-limiter/ral/fleet/internal/lease"
	"github.com/ral-limiter/ral/fleet/internal/share"
	"github.com/ral-limiter/ral/fleet/internal/store"
	"github.com/ral-limiter/ral/internal/core/decide"
	"github.com/ral-limiter/ral/limits"
	"github.com/ral-limiter/ral/policy"
)

// Choke reports whether the key may act now, and takes a unit if so: Take(ctx, key, 1).Allowed,
// false on an error. In Leased mode it costs less than Take, and no allocation while this server
// decides.
func (l *Limiter) Choke(ctx context.Context, key string) bool {
	if l.leases == nil {
		a, err := l.TakeWith(ctx, nil, key, 1)
		return err == nil && a.Allowed
	}
	if ctx.Err() == nil {
		if _, blocked := l.blockedLease(key, 1); blocked {
			return false
		}
		if allowed, ok := l.leases.Choke(key); ok {
			return allowed
		}
	}
	t, err := l.askLease(ctx, store.TakeAsk{Key: key, N: 1})
	return err == nil && t.answer.Allowed
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
	// A look also asks Redis in Leased mode: a lease tells only this server's units.
	if l.leases != nil && n != 0 {
		if a, ok := l.tryLease(ctx, key, n); ok {
			return a, nil
		}
		t, err := l.askLease(ctx, store.TakeAsk{Key: key, N: n})
		return t.answer, err
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
	of, err := l.under(limit, key)
	if err != nil {
		return misfit, err
	}
	t, err := l.take(ctx, of, store.TakeAsk{Key: key, N: n})
	return t.answer, err
}

// TakeUpTo takes n units if Take would, and otherwise as many as remain for the key. It returns how
// many, and the answer to these: Take's of one unit, refused, if none remain. n of 2 or more costs a
// look beforehand. If other calls take in between, it asks again for what remains then, and each
// refusal counts. In Leased mode it may take fewer, since units on lease and in Redis do not add up.
// The error is Take's; then nothing was taken.
func (l *Limiter) TakeUpTo(ctx context.Context, key string, n int64) (units int64, a limits.Answer, err error) {
	if n > 1 {
		if a, err = l.Peek(ctx, key, n); err == nil && !a.Allowed {
			n = max(min(n, a.Remaining), 1)
		}
	}
	units = decide.UpTo(n, &a.Decision, func(n int64) {
		if a.Decision = (policy.Decision{}); err == nil {
			a, err = l.Take(ctx, key, n)
		}
	})
	return units, a, err
}

// taken is the result of a take, and the means to give it back.
type taken struct {
	answer limits.Answer
	of     *terms // that decided
	// At most one of these is set, if the take was recorded.
	exact store.Taken
	local share.Reservation
	lease *engine.Reservation[string]
	// guess: RetryAfter is a guess, not a limit's decision.
	guess   bool
	blocked time.Duration // for how long the key is, if that was decided without Redis
}

// take has a lease, Redis or the fallback decide, and keeps the units to give back. of has the limit
// of the ask.
func (l *Limiter) take(ctx context.Context, of *terms, ask store.TakeAsk) (taken, error) {
	key, n := ask.Key, ask.N
	if l.leases != nil && n != 0 {
		if ctx.Err() == nil {
			if a, blocked := l.blockedLease(key, n); blocked {
				return taken{answer: a, of: of}, nil
			}
			if d, held, ok := l.leases.Reserve(key, n); ok {
				return taken{answer: limits.Answer{Decision: d, Provenance: byLease}, of: of, lease: &held}, nil
			}
		}
		return l.askLease(ctx, ask)
	}
	return l.takeExact(ctx, of, ask, l.held(key))
}

// askLease is take in Leased mode after the lease did not decide.
func (l *Limiter) askLease(ctx context.Context, ask store.TakeAsk) (taken, error) {
	key, n := ask.Key, ask.N
	switch {
	case l.closed.Load():
		return taken{}, engine.ErrClosed
	case ctx.Err() != nil:
		return taken{}, context.Cause(ctx)
	}
	if err := store.CheckKey(key); err != nil {
		return taken{}, err
	}
	d, err := l.leases.Ask(key, n, l.config.Budget, ctx.Done())
	if err == nil {
		t := taken{answer: limits.Answer{Decision: d, Provenance: byLease}}
		if !d.Allowed { // counted by the leases
			refuseBlocked(&t.answer, l.blockedFor(key, policy.Never))
		}
		return t, nil
	}
	switch {
	case errors.Is(err, lease.ErrFew):
		// The key is not worth a lease, and Redis decides by the same policy. The call is paid
		// before it passes, like a lease's units.
		ask.Patience = 0
		return l.takeExact(ctx, l.own.Load(), ask, 0)
	case errors.Is(err, lease.ErrClosed):
		return taken{}, engine.ErrClosed
	case ctx.Err() != nil:
		return taken{}, context.Cause(ctx)
	case errors.Is(err, lease.ErrLate):
		err = fmt.Errorf("%w of %v: %w", ErrBudget, l.config.Budget, err)
	}
	return l.takeWithout(l.own.Load(), key, n, 0, noAnswer{cause: asOutage(err)})
}

// takeExact has Redis decide. held is this server's units besides those left there.
func (l *Limiter) takeExact(ctx context.Context, of *terms, ask store.TakeAsk, held int64) (taken, error) {
	key := ask.Key
	exact, err := l.askTake(ctx, of, ask)
	if err != nil {
		return l.takeWithout(of, key, ask.N, ask.Patience, err)
	}
	of.remember(key, exact, false)
	l.learnBlock(key, &exact)
	t := taken{of: of, exact: exact, answer: limits.Answer{Decision: exact.Decision, Provenance: l.byRedis()}}
	if exact.Block.Refused {
		t.answer.Provenance = blocked(t.answer.Provenance)
	} else {
		t.answer.Remaining = min(t.answer.Remaining+held, t.answer.Limit)
	}
	l.tally.count(ask.N, &t.answer)
	return t, nil
}

// takeWithout takes by the fallback, if mayFallBack allows it and no share was closed meanwhile.
func (l *Limiter) takeWithout(of *terms, key string, n int64, patience time.Duration, failure error) (t taken, err error) {
	why, err := mayFallBack(key, failure)
	if err != nil {
		return taken{}, err
	}
	t.of, t.blocked = of, l.blockedFor(key, policy.Never)
	if of.local == nil {
		t.answer, t.guess = l.without(of, n, why.cause), true
	} else {
		n := of.unlessBlocked(n, t.blocked)
		t.local = of.local.Take(key, n, patience)
		t.answer, t.guess = l.shared(of, t.local.Decision, n, why.cause), t.local.RetryAfter == policy.Never
	}
	refuseBlocked(&t.answer, t.blocked)
	if l.closed.Load() {
		return taken{}, engine.ErrClosed
	}
	l.tally.count(n, &t.answer)
	return t, nil
}

// retry is a guess of when Redis may be back.
const retry = longestPause

// without answers by FallbackOpen or FallbackClosed.
func (l *Limiter) without(of *terms, n int64, cause error) limits.Answer {
	source := limits.SourceOpen
	if l.config.Outage == FallbackClosed {
		source = limits.SourceClosed
	}
	a := limits.Answer{Provenance: limits.NewProvenance(source, false, cause), Decision: policy.Decision{Limit: of.most}}
	switch {
	case n < 0 || n > of.most:
		a.RetryAfter = policy.Never
	case source == limits.SourceOpen:
		a.Allowed, a.Remaining = true, of.most-n
	case n == 0:
		a.Allowed = true
	default:
		a.RetryAfter = retry
	}
	return a
}

// unlessBlocked returns how many of n units to take of a share: none if the key is blocked.
func (of *terms) unlessBlocked(n int64, blocked time.Duration) int64 {
	if blocked > 0 && n <= of.most {
		return min(n, 0)
	}
	return n
}

func (l *Limiter) shared(of *terms, d policy.Decision, n int64, cause error) limits.Answer {
	if d.RetryAfter == policy.Never && n > 0 && n <= of.most {
		d.RetryAfter = retry // more than the share ever has, but not than the limit
	}
	return limits.Answer{Decision: d, Provenance: limits.NewProvenance(limits.SourceShare, false, l.uncounted(cause))}
}

// remember has the share begin from Redis's answer about a key. late: it is some time old.
func (of *terms) remember(key string, t store.Taken, late bool) {
	if of.local == nil {
		return
	}
	word := t.After
	if of.logged {
		word = of.local.Word(t.Limit-t.Remaining, t.At)
	}
	if late {
		of.local.LearnLate(key, word, t.At)
	} else {
		of.local.Learn(key, word, t.At)
	}
}

// Peek returns the answer of Take(ctx, key, n) now: whether n units would pass, or how long until
// they do. It asks Redis, takes nothing and is not counted. Under n == 0 it is the key's state:
// Allowed unless the key is blocked or Config.PolicyFor chose a limit of another family. Under a
// SlidingLog, RetryAfter of units that can pass later is ResetAfter: then they certainly pass.
func (l *Limiter) Peek(ctx context.Context, key string, n int64) (limits.Answer, error) {
	of, err := l.under(nil, key)
	if err != nil {
		return misfit, err
	}
	held := l.held(key)
	t, err := l.takeExact(ctx, of, store.TakeAsk{Key: key}, held)
	if err != nil || n == 0 {
		return t.answer, err
	}
	a, blocked := t.answer, max(t.exact.Block.Left, t.blocked)
	switch {
	case a.Source() == limits.SourceShare:
		a.Decision = l.shared(of, of.local.Peek(key, n), n, nil).Decision
	case a.Source() != limits.SourceRedis:
		a.Decision = l.without(of, n, nil).Decision
	case 0 < n && n <= held:
		a.Remaining -= n
	case of.logged && 0 < n && n <= of.most:
		if a.Allowed = n <= a.Remaining; a.Allowed {
			a.Remaining -= n
		} else {
			a.RetryAfter = a.ResetAfter
		}
	case of.logged:
		a.Allowed, a.RetryAfter = false, policy.Never
	default:
		_, a.Decision = of.limit.Policy().Take(t.exact.After, t.exact.At, n, 0)
	}
	if a.Allowed && blocked > 0 {
		return t.answer, nil // it has taken nothing
	}
	refuseBlocked(&a, blocked)
	return a, nil
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
	of, err := l.under(limit, key)
	if err != nil {
		return misfit, err
	}
	if n == 0 {
		t, err := l.take(ctx, of, store.TakeAsk{Key: key})
		return t.answer, err
	}
	if most := decide.MostCharge(of.policy); n < -most {
		return misfit, &policy.FieldError{Of: "Refund", Field: "n", Value: n, Want: fmt.Sprintf(
			"%d or more: one call charges at most as many units as pass in 31 days, or at once", -most)}
	}
	held := l.held(key)
	exact, err := askOnce(ctx, l, l.guardOf(of, key), l.config.Budget, func(ctx context.Context, r *remote) (store.Taken, error) {
		return r.store.Refund(ctx, of.limit, key, n)
	})
	if err != nil {
		return l.refundWithout(of, key, n, err)
	}
	of.remember(key, exact, false)
	a := limits.Answer{Decision: exact.Decision, Provenance: l.byRedis()}
	a.Remaining = min(a.Remaining+held, a.Limit)
	return a, nil
}

// refundWithout is takeWithout for a refund, unless Redis may have done it.
func (l *Limiter) refundWithout(of *terms, key string, n int64, failure error) (a limits.Answer, err error) {
	why, err := mayFallBack(key, failure)
	if err != nil {
		return limits.Answer{}, err
	}
	switch {
	case of.local == nil:
		a = l.without(of, 1, why.cause)
		a.Allowed, a.Remaining = false, 0
	case why.mayBeDone:
		a = l.shared(of, of.local.Peek(key, 0), 0, why.cause)
		a.Allowed = false
	default:
		a = l.shared(of, of.local.Refund(key, n), n, why.cause)
	}
	if l.closed.Load() {
		return limits.Answer{}, engine.ErrClosed
	}
	return a, nil
}

// Charge takes n units of the key, whether its limit allows it or not, for costs found later. n < 0
// gives units back. Without Redis it does as Refund of -n. The error is Refund's, or its answer's
// Err if the charge may not count.
func (l *Limiter) Charge(ctx context.Context, key string, n int64) error {
	if n == 0 {
		return nil
	}
	a, err := l.Refund(ctx, key, -max(n, -math.MaxInt64))
	if err == nil && !a.Allowed {
		err = a.Err()
	}
	return err
}

// Reset forgets the key's used units, block and refusals, and reports whether there were any. Units
// on lease stay. In Leased mode a server told of the block refuses the key for up to Config.Term
// more. Calls that wait for the end of the block go on within a second. Without Redis it forgets
// the key's use of this server's shares and its block here, and the error is ErrOutage.
func (l *Limiter) Reset(ctx context.Context, key string) (bool, error) {
	own := l.own.Load()
	used, err := ask(ctx, l, l.guardOf(own, key), func(ctx context.Context, r *remote) (bool, error) {
		return r.store.Delete(ctx, own.limit, key)
	})
	var why noAnswer
	switch {
	case err != nil && !errors.As(err, &why):
		return false, err
	case err == nil && l.leases != nil:
		l.leases.Forget(key)
	}
	l.known.Forget(key)
	if store.CheckKey(key) == nil {
		for _, of := range l.shares() {
			used = of.local.Reset(key) || used
		}
	}
	return used, why.cause
}
