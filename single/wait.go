package single

import (
	"context"
	"fmt"
	"time"

	"github.com/ral-limiter/ral/internal/core/waitline"
	"github.com/ral-limiter/ral/policy"
)

// Errors of Wait and Acquire, wrapped, for errors.Is. Package engine has the same errors. Nothing
// was taken, or the units were given back as by Reservation.Cancel.
var (
	// ErrNever reports more units than the limit ever allows at once, or less than none.
	ErrNever = waitline.ErrNever
	// ErrDeadline reports that the turn comes too late for the patience or for the context's
	// deadline, then with context.DeadlineExceeded wrapped too.
	ErrDeadline = waitline.ErrDeadline
	// ErrCrowded reports that no further call may wait, by MaxWaiting or by the policy: see its
	// text.
	ErrCrowded = waitline.ErrCrowded
	// ErrCancelled reports that the context ended before the turn. The error also wraps the
	// context's cause.
	ErrCancelled = waitline.ErrCancelled
)

// Wait blocks until n units can be used, takes them and returns nil. n == 0 never waits. A call
// that need not wait allocates nothing.
//
// Calls are served in order of arrival. The head of the line has taken its units ahead of its turn,
// so calls that do not wait (Choke, Take) cannot keep it waiting for ever. The others take theirs
// shortly before they become the head, so a call that gives up nearly always costs the others
// nothing.
//
// The error wraps ErrNever, ErrDeadline, ErrCrowded or ErrCancelled. ErrDeadline and ErrCrowded
// come at once: before joining the line, the call forecasts its turn. Calls that do not wait may
// still take units the line has not taken, and delay that turn. If the deadline passes first, the
// error is ErrCancelled.
//
// Units given back later do not advance a promised turn. Turns are timed by package time even with
// Clock, so that clock should run at the same speed.
func (l *Limiter) Wait(ctx context.Context, n int64) error {
	var decision policy.Decision
	var h held
	_, err := l.acquire(ctx, n, forever, &decision, &h)
	return err
}

// Acquire is Wait for at most patience, and returns the units as a Reservation: Keep or Cancel
// gives back unneeded units. Zero patience does not wait. The reservation's Decision is from the
// moment of the take: its Wait is over when Acquire returns.
//
// On an error, the reservation is a refusal: it has the state of the limit, and RetryAfter as if no
// call were before this one. A turn too late for patience is ErrDeadline as well.
func (l *Limiter) Acquire(ctx context.Context, n int64, patience time.Duration) (reservation Reservation, err error) {
	reservation.Waited, err = l.acquire(ctx, n, max(patience, 0), &reservation.Decision, &reservation.held)
	if err != nil {
		reservation.Decision, reservation.held = l.refusal(n), held{}
	}
	return reservation, err
}

// acquire is Acquire, except that decision and held say nothing after an error.
func (l *Limiter) acquire(
	ctx context.Context, n int64, patience time.Duration, decision *policy.Decision, held *held,
) (waited time.Duration, err error) {
	if ctx.Err() != nil {
		return 0, waitline.Cancelled(ctx)
	}
	if !l.hasWaiters() {
		// No call waits.
		l.reserve(&request{n: n, patience: noDelay}, decision, held)
	} else {
		*decision = l.probe(0, noDelay)
		decision.Allowed = n == 0
		if n < 0 || n > decision.Limit {
			decision.RetryAfter = policy.Never
		}
	}
	switch {
	case decision.Allowed:
		return 0, nil
	case decision.RetryAfter == policy.Never:
		return 0, l.never(n, decision)
	case decision.RetryAfter > patience && (patience == 0 || l.terms.Load().inUse == nil):
		return 0, fmt.Errorf("%w: %v to wait, %v at the most", ErrDeadline, decision.RetryAfter, patience)
	}
	w := &waiter{limiter: l, n: n}
	waited, err = l.line().Wait(ctx, struct{}{}, w, patience)
	if err == nil {
		*decision, *held = w.taken, w.held
	}
	return waited, err
}

func (l *Limiter) never(n int64, decision *policy.Decision) error {
	if l.terms.Load() == nil {
		return fmt.Errorf("%w: the Limiter has no policy, as New did not make it", ErrNever)
	}
	return fmt.Errorf("%w: %d of at most %d", ErrNever, n, decision.Limit)
}

// line returns the line, made for the first call that waits.
func (l *Limiter) line() *waitline.Lines[struct{}, standing] {
	if lines := l.lines.Load(); lines != nil {
		return lines
	}
	l.lines.CompareAndSwap(nil, waitline.New[struct{}, standing](waitline.Options[struct{}]{
		Hash:      func(struct{}) (uint64, bool) { return 0, true },
		MaxPerKey: l.maxWaiting,
		MaxTotal:  l.maxWaiting,
	}))
	return l.lines.Load()
}

type waiter struct {
	limiter *Limiter
	n       int64

	taken policy.Decision
	held  held
}

func (w *waiter) State() (standing, int64) {
	standing, now := w.limiter.standing()
	return standing, int64(now)
}

func (w *waiter) Forecast(s standing, at int64) (standing, time.Duration, waitline.Verdict) {
	next, decision := s.terms.policy.Take(s.word, policy.Instant(at), w.n, forever)
	verdict := waitline.NoRoom
	switch {
	case decision.Allowed:
		verdict = waitline.Fits
	case decision.RetryAfter == policy.Never:
		verdict = waitline.Never
	}
	return standing{s.terms, next}, decision.Wait, verdict
}

func (w *waiter) Alike(waitline.Call[standing]) bool { return true }

func (w *waiter) Take(patience time.Duration, notBefore int64) waitline.Answer {
	var decision policy.Decision
	var h held
	w.limiter.reserve(&request{n: w.n, patience: patience, notBefore: policy.Instant(notBefore), inLine: true}, &decision, &h)
	switch {
	case decision.Allowed:
		w.taken, w.held = decision, h
		return waitline.Answer{Taken: true, Wait: decision.Wait, Start: int64(h.starts())}
	case decision.RetryAfter == policy.Never:
		return waitline.Answer{Err: w.limiter.never(w.n, &decision)}
	}
	return waitline.Answer{RetryIn: decision.RetryAfter}
}

func (w *waiter) GiveBack() { w.held.keep(0) }

// AwaitsRelease implements waitline.Releaser.
func (w *waiter) AwaitsRelease() bool {
	t := w.limiter.terms.Load()
	return t != nil && t.inUse != nil
}

func (w *waiter) Refusal(verdict waitline.Verdict) error {
	standing, now := w.limiter.standing()
	if verdict == waitline.Never {
		_, decision := standing.terms.policy.Take(standing.word, now, w.n, forever)
		return w.limiter.never(w.n, &decision)
	}
	return fmt.Errorf("%w: %v has no room for more", ErrCrowded, standing.terms.policy)
}
