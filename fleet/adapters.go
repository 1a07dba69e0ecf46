package fleet

import (
	"context"
	"errors"
	"time"

	"github.com/ral-limiter/ral/cell"
	"github.com/ral-limiter/ral/limits"
)

var (
	_ limits.Limiter[string] = (*Limiter)(nil)
)

// Remote reports that a call may wait for another process: true.
func (l *Limiter) Remote() bool { return true }

// Admit is Take for adapters: see limits.Limiter. Admit waits for the delay of a policy.Queue. In
// an outage FallbackClosed refuses at once, and so does an unknown share: see ErrUncounted.
func (l *Limiter) Admit(ctx context.Context, key string, n int64) (limits.Answer, error) {
	if l.LimitFor(key).Delays() {
		grant, err := l.Hold(ctx, limits.Call[string]{Key: key, N: n})
		return grant.Answer, err
	}
	return answerFor(l.Take(ctx, key, n))
}

// Hold is Reserve, or Acquire if the call waits, for adapters: see Admit. In Leased mode, without
// promised turns, Hold is Take or waits like Wait. Under FallbackClosed a call waits for Redis up
// to its patience. If ctx ends while Redis decides, Hold waits for the answer, up to Config.Budget,
// and gives back. A grant is settled as by Reservation.Keep. Units of an ended lease come back like
// a Refund, without those that may have drained; of limits that count in windows none do. A part of
// a share's units under a Funnel or Bursty comes back likewise, to the share while Redis is not
// charged.
func (l *Limiter) Hold(ctx context.Context, call limits.Call[string]) (grant limits.Grant, err error) {
	r := &granted{began: time.Now()}
	if call.Patience > 0 && !call.NoWait {
		r.Reservation, err = l.acquire(ctx, &call)
	} else {
		r.Reservation, err = l.reserve(ctx, &call)
	}
	grant.Answer, err = answerFor(r.Answer, err)
	if !call.NoWait {
		grant.Wait = r.Waited
	}
	if grant.Allowed {
		grant.State = limits.GrantState{Settler: settler{}, Ref: r}
	}
	return grant, err
}

// joint is a call of several limiters, for limits.AskAll.
type joint struct{ claims []Claim }

// Join adds a call to those that limits.AskAll decides together, or begins such calls if all is
// nil. Join returns nil if the other calls are not of fleet.Limiters.
func (l *Limiter) Join(all any, call limits.Call[string]) any {
	j, ok := all.(*joint)
	switch {
	case call.N < 1 || all != nil && !ok:
		return nil
	case !ok:
		j = &joint{}
	}
	claim := l.ClaimWith(call.Limit, call.Key, call.N)
	claim.returns = !call.Brief
	j.claims = append(j.claims, claim)
	return j
}

// HoldAll takes like TakeAll, which must be able to ask the limiters together, with different keys
// or limits. HoldAll never waits. If ctx ends while Redis decides, HoldAll returns the grants with
// the error.
func (j *joint) HoldAll(ctx context.Context, _ time.Duration) (grants []limits.Grant, waited time.Duration, err error) {
	asks, _, err := join(j.claims)
	if err != nil {
		// Each limiter tells its own error.
		return nil, 0, nil
	}
	if len(asks) < len(j.claims) {
		// Two parts are one.
		return nil, 0, nil
	}
	if ctx.Err() != nil {
		return nil, 0, cell.Cancelled(ctx)
	}
	began := time.Now()
	all, err := takeAll(context.WithoutCancel(ctx), asks)
	if errors.Is(err, ErrCrossSlot) {
		return nil, 0, nil
	}
	if err != nil {
		return nil, 0, err
	}
	if ctx.Err() != nil {
		err = cell.Cancelled(ctx)
	}
	return grantsOf(asks, all, began), 0, err
}

// reserve is acquire out of line: reserve only waits out the delay of its limit, unless NoWait is
// set.
func (l *Limiter) reserve(ctx context.Context, call *limits.Call[string]) (Reservation, error) {
	if ctx.Err() != nil {
		return Reservation{}, cell.Cancelled(ctx)
	}
	terms, err := l.under(call.Limit, call.Key)
	if err != nil {
		return Reservation{Answer: misfit}, err
	}
	a := ask{terms: terms, key: call.Key, n: call.N, patience: max(call.Patience, 0), returns: !call.Brief}
	reservation, _, err := l.takeFor(ctx, a)
	switch {
	case !reservation.Allowed:
	case ctx.Err() != nil:
		// Units that cannot be given back count.
		_ = reservation.Cancel(context.WithoutCancel(ctx))
		return Reservation{}, cell.Cancelled(ctx)
	case !call.NoWait && reservation.Wait > 0:
		began := time.Now()
		err = l.await(ctx, &reservation)
		reservation.Waited = time.Since(began)
	}
	return reservation, err
}
