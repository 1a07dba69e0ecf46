package fleet

import (
	"context"
	"math"
	"time"

	"github.com/ral-limiter/ral/fleet/internal/share"
	"github.com/ral-limiter/ral/internal/core/decide"
	"github.com/ral-limiter/ral/internal/core/shape"
	"github.com/ral-limiter/ral/limits"
	"github.com/ral-limiter/ral/policy"
)

// granted is the Ref of a limits.GrantState.
type granted struct {
	Reservation
	// began is before the units were taken.
	began time.Time
}

// grantOf returns a grant of the reservation's units, which were asked for at that time.
func grantOf(reservation Reservation, began time.Time) limits.Grant {
	return limits.Grant{Answer: forAdapters(reservation.Answer), State: limits.GrantState{Settler: settler{}, Ref: &granted{Reservation: reservation, began: began}}}
}

type settler struct{}

// Settle implements limits.Settler.
func (settler) Settle(ctx context.Context, state limits.GrantState, used int64) error {
	r := state.Ref.(*granted)
	if r.slot() != nil {
		return r.Release(ctx)
	}
	source := r.Source()
	switch {
	case used == limits.AllUsed:
		return nil
	case used > r.ask.n:
		return r.change(ctx, r.ask.n-used)
	case used == r.ask.n, source == limits.SourceOpen:
		return nil
	case source == limits.SourceRedis, source == limits.SourceShare && (used == 0 || !r.drains()),
		source == limits.SourceLease && r.ask.receipt != nil && time.Since(r.began) < r.ResetAfter:
		return r.Keep(ctx, used)
	}
	back := r.counting(r.ask.n - used)
	if source == limits.SourceShare {
		// Units not yet charged to Redis come back to the share first. A refund in Redis would give
		// back others' units, and admit as many before the charge arrives.
		back = r.ask.receipt.(*share.Reservation).Refund(back)
	}
	if back <= 0 {
		return nil
	}
	return r.change(ctx, back)
}

// Lost is Reservation.Lost, for limits.Grant.
func (settler) Lost(state limits.GrantState) <-chan struct{} { return state.Ref.(*granted).Lost() }

// under returns the limit by which the units were taken, though the key's may have changed.
func (r *granted) under() policy.Policy { return r.ask.terms.limit.Policy() }

// drains reports whether the units drain from a bucket, without a promised turn.
func (r *granted) drains() bool {
	shaped, ok := r.under().(shape.Shaped)
	return ok && r.Answer.Wait == 0 && (shaped.Shape().Kind == shape.Funnel || shaped.Shape().Kind == shape.Bursty)
}

// change refunds n units, or charges -n.
func (r *granted) change(ctx context.Context, n int64) error {
	var limit policy.Policy
	if r.limiter.leased == nil {
		limit = r.ask.terms.policy
	}
	answer, err := r.limiter.RefundWith(ctx, limit, r.ask.key, max(n, -decide.MostCharge(r.under())))
	if err == nil && !answer.Allowed {
		err = answer.Err()
	}
	return err
}

// counting returns how many of the last back units still count, at least.
func (r *granted) counting(back int64) int64 {
	since := time.Since(r.began)
	limit := r.under()
	if shaped, ok := limit.(shape.Shaped); ok {
		if form := shaped.Shape(); form.Interval > 0 {
			drained := math.Ceil(float64(since.Nanoseconds()) * ticks / float64(form.Interval))
			return max(back-int64(min(drained, math.MaxInt64/2)), 0)
		}
	}
	ends := r.Answer.ResetAfter
	if w, ok := limit.(policy.Windowed); ok {
		ends = min(ends, w.Window())
	}
	if since >= ends {
		return 0
	}
	return back
}
