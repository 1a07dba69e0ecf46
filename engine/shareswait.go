package engine

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/ral-limiter/ral/internal/core/escape"
	"github.com/ral-limiter/ral/internal/core/waitline"
	"github.com/ral-limiter/ral/policy"
)

// Wait blocks until the tenant may use n units, takes them and returns nil. It is Acquire without an end to its
// patience, and without a reservation.
func (s *Shares[K]) Wait(ctx context.Context, tenant K, n int64) error {
	_, err := s.Acquire(ctx, tenant, n, policy.Never)
	if err == nil {
		s.countUnheld(tenant, n)
	}
	return err
}

// Acquire takes n units as soon as the tenant's guarantee has room for them, or can borrow them, whichever comes
// first, and waits for that at most patience. Nothing is taken ahead. A call that need not wait allocates nothing.
//
// A tenant's calls are served first come, first served. Calls that wait for the group borrow by turns among
// their tenants: deficit round robin by SharesConfig.Weight. So a tenant with one call in line waits for at most
// ceil(n/weight) rounds. While a call waits for the group in this process, calls that do not wait do not borrow.
// The guarantees stay open to them, also that of the tenant whose calls wait. A call that only its ceiling
// keeps from borrowing does not count as waiting for the group: others go on.
//
// No turn is promised, as guaranteed units of other tenants come unasked. But ErrDeadline comes at once if the call would
// be too late although no further calls came and none gave up. ErrNever, ErrCrowded (see Config.MaxWaiting), ErrCancelled and ErrClosed
// are as for Engine.Acquire. On an error the reservation is a refusal. A call is counted once.
//
// Waits are timed by package time even with a Config.Clock, so that clock should run at the same speed. Calls of a
// tenant whose key cannot be kept have no line, and borrow in no order among themselves.
func (s *Shares[K]) Acquire(ctx context.Context, tenant K, n int64, patience time.Duration) (shareReservation ShareReservation[K], err error) {
	call := shareCall[K]{shares: s, tenant: tenant, n: n, now: s.now(), held: escape.Hide(&shareReservation.held)}
	err = call.acquire(ctx, patience, escape.Hide(&shareReservation))
	call.count(&shareReservation.ShareDecision)
	return shareReservation, err
}

// acquire is Acquire, with the answer in shareReservation, without a count.
func (c *shareCall[K]) acquire(ctx context.Context, patience time.Duration, shareReservation *ShareReservation[K]) (err error) {
	shares, tenant, n := c.shares, c.tenant, c.n
	switch lined := n != 0 && shares.turns.lines.Has(tenant); {
	case ctx.Err() != nil:
		err = waitline.Cancelled(ctx)
	case lined:
		shareReservation.ShareDecision = shares.Peek(tenant, n)
		shareReservation.Allowed = false // others are first
	default:
		c.decide(&shareReservation.ShareDecision)
	}
	switch {
	case err != nil || shareReservation.Allowed:
	case shares.closed.Load():
		err = ErrClosed
	case shareReservation.RetryAfter == policy.Never:
		err = fmt.Errorf("%w: %d of at most %d", ErrNever, n, max(shares.lend.Limit(), shareReservation.Limit))
	case patience <= 0:
		err = fmt.Errorf("%w: %v to wait, %v at the most", ErrDeadline, shareReservation.RetryAfter, patience)
	default:
		*shareReservation, err = shares.await(ctx, tenant, n, patience)
	}
	if err != nil {
		if shareReservation.ShareDecision = shares.Peek(tenant, n); shareReservation.Allowed { // others were first
			shareReservation.Allowed, shareReservation.Borrowed, shareReservation.RetryAfter = false, false, 1
		}
	}
	return namedBy(shares.config.Config.Name, err)
}

// await is Acquire for a call that has to wait.
func (s *Shares[K]) await(ctx context.Context, tenant K, n int64, patience time.Duration) (shareReservation ShareReservation[K], err error) {
	w := &shareWaiter[K]{call: shareCall[K]{shares: s, tenant: tenant, n: n, now: s.now()}}
	w.call.held = &w.held
	w.call.findOwn()
	w.call.findCeiling()
	// A call that only its guarantee or its ceiling lets pass may hold up those behind it.
	simple := w.call.ceiling == nil && !w.call.barred && n <= s.lend.Limit()
	w.call.turn = s.turns.join(tenant, n, s.weightOf(&w.call), simple)
	defer s.turns.quit(w.call.turn)
	wait := s.forecast(&w.call)
	deadline, ok := ctx.Deadline()
	switch {
	case wait > patience:
		return shareReservation, fmt.Errorf("%w: at least %v to wait, %v at the most", ErrDeadline, wait, patience)
	case ok && wait > time.Until(deadline):
		return shareReservation, fmt.Errorf("%w (%w): at least %v to wait", ErrDeadline, context.DeadlineExceeded, wait)
	}
	if shareReservation.Waited, err = s.turns.lines.Wait(ctx, tenant, w, patience); err == nil {
		shareReservation.ShareDecision, shareReservation.held = w.taken, w.held
	}
	return shareReservation, err
}

// weightOf returns the units that the tenant of a call may borrow in a round.
func (s *Shares[K]) weightOf(shareCall *shareCall[K]) (weight float64) {
	interval := uint64(0)
	switch {
	case s.config.Weight != nil:
		weight = s.config.Weight(shareCall.tenant)
	case s.longest > 0:
		if shareCall.own != nil {
			weight = float64(shareCall.own.limit.Limit())
		}
	case shareCall.own != nil:
		interval = grantOf(shareCall.own.limit).interval
	default:
		s.mu.Lock()
		interval = s.reserve.longest
		s.mu.Unlock()
	}
	if interval > 0 {
		weight = float64(s.lend.Limit()) * float64(s.groupTicks) / float64(interval)
	}
	if !(weight > 0) || math.IsInf(weight, 1) {
		return 1
	}
	return weight
}

// forecast returns a lower bound of the wait of a call that has joined the turns: until its guarantee has room, or until the
// group has, after those before it, and its ceiling.
func (s *Shares[K]) forecast(shareCall *shareCall[K]) time.Duration {
	if s.longest > 0 {
		// Units may be released at any time.
		return 0
	}
	own := s.unguaranteed(shareCall.n)
	if shareCall.own != nil {
		own = accountWord{shareCall.own.limit, min(shareCall.own.word.Load(), policy.MaxWord), s.own.from(shareCall.own, shareCall.now)}.look(shareCall.n)
	}
	group := s.lendWord(shareCall.now)
	if group.look(shareCall.n).RetryAfter < policy.Never {
		ahead := s.turns.ahead(shareCall.turn)
		group.word = s.lend.(policy.Refunder).Refund(group.word, shareCall.now, -int64(min(ahead, 1<<62)))
	}
	loan := group.look(shareCall.n).RetryAfter
	if shareCall.ceiling != nil {
		ceiling := accountWord{shareCall.ceiling.limit, min(shareCall.ceiling.word.Load(), policy.MaxWord), s.ceilings.from(shareCall.ceiling, shareCall.now)}
		loan = max(loan, ceiling.look(shareCall.n).RetryAfter)
	} else if shareCall.barred {
		loan = max(loan, 1) // no ceiling is kept now
	}
	return min(own.RetryAfter, loan)
}

// shareWaiter is a call of Acquire in its tenant's line. It implements waitline.Call.
type shareWaiter[K comparable] struct {
	call  shareCall[K]
	taken ShareDecision
	held  shareHeld[K]
}

func (w *shareWaiter[K]) Take(time.Duration, int64) waitline.Answer {
	shareCall := &w.call
	shareCall.now = shareCall.shares.now()
	shareCall.decide(&w.taken)
	switch {
	case shareCall.shares.closed.Load():
		return waitline.Answer{Err: ErrClosed}
	case w.taken.Allowed:
		return waitline.Answer{Taken: true, Start: int64(shareCall.now)}
	}
	return waitline.Answer{RetryIn: w.taken.RetryAfter}
}

func (w *shareWaiter[K]) GiveBack() { w.held.keep(0) }

// Unlocked implements waitline.Unlocker: a call that leaves its turn to others wakes them.
func (w *shareWaiter[K]) Unlocked() { w.call.shares.turns.wakeNext() }

// AwaitsRelease implements waitline.Releaser: no turn can be promised.
func (w *shareWaiter[K]) AwaitsRelease() bool { return true }

func (w *shareWaiter[K]) State() (struct{}, int64) { return struct{}{}, int64(w.call.shares.now()) }

func (w *shareWaiter[K]) Forecast(struct{}, int64) (struct{}, time.Duration, waitline.Verdict) {
	return struct{}{}, 0, waitline.NoRoom
}

func (w *shareWaiter[K]) Alike(waitline.Call[struct{}]) bool { return true }

func (w *shareWaiter[K]) Refusal(waitline.Verdict) error { return ErrNever }
