package fleet

import (
	"context"
	"errors"
	"math"
	"time"

	"github.com/ral-limiter/ral/cell"
	"github.com/ral-limiter/ral/internal/shape"
	"github.com/ral-limiter/ral/limits"
	"github.com/ral-limiter/ral/policy"
)

// A limiter is one for adapters, which import package limits alone.
var (
	_ limits.Limiter[string] = (*Limiter)(nil)
	_ limits.Remote          = (*Limiter)(nil)
)

// Remote reports whether a call may have to wait for another process, for adapters: true.
func (l *Limiter) Remote() bool { return true }

// Ask is Take for adapters, which hold any limits.Limiter: see there. It waits for the delay
// of a policy.Queue. While Redis does not answer, FallbackClosed refuses without waiting for
// it, and so does a share that is not known yet: see ErrUncounted.
func (l *Limiter) Ask(ctx context.Context, key string, n int64) (limits.Answer, error) {
	if l.LimitFor(key).Delays() {
		g, err := l.Hold(ctx, limits.Call[string]{Key: key, N: n})
		return g.Answer, err
	}
	a, err := l.Take(ctx, key, n)
	switch {
	case misfits(err):
		return notApplied, nil
	case err != nil:
		return limits.Answer{}, err
	}
	return forAdapters(&a), nil
}

// notApplied is the answer to a call whose limit cannot be applied.
var notApplied = limits.Answer{Decision: policy.Decision{RetryAfter: policy.Never}, Basis: byRedis}

// misfits reports whether a call brought, or PolicyFor chose, a limit that cannot be applied.
func misfits(err error) bool {
	return errors.Is(err, ErrMisfit) || errors.Is(err, ErrTooManyLimits) || errors.Is(err, ErrModeUnsupported)
}

// How most answers were reached.
var (
	byRedis    = limits.NewBasis(SourceRedis, true, nil)
	byRedisToo = limits.NewBasis(SourceRedis, false, nil) // in Leased mode
	byLease    = limits.NewBasis(SourceLease, false, nil)
)

// forAdapters returns an answer as adapters have it. A refusal for lack of a share is that of
// an outage.
func forAdapters(a *Answer) limits.Answer {
	out := limits.Answer{Decision: a.Decision}
	switch {
	case a.Cause != nil:
		source := a.Source
		if !a.Allowed && source == SourceShare && errors.Is(a.Cause, ErrUncounted) {
			source = SourceClosed
		}
		out.Basis = limits.NewBasis(source, a.Promised, a.Cause)
	case a.Source == SourceLease:
		out.Basis = byLease
	case a.Promised:
		out.Basis = byRedis
	default:
		out.Basis = byRedisToo
	}
	return out
}

// Hold is Reserve, and waits for the turn, for adapters: see Ask. It waits up to the call's
// patience for the turn that Redis or the share promises, or in Leased mode until this server
// asks again. In Leased mode, where
// nothing is promised a turn, it is Take. What was taken is given back to where it came from.
// What a lease paid for, or only a part of what was taken, is given back like a Refund,
// without what has drained since; of a limit that counts in windows until the window, or the
// lease, has ended. A call whose context ends while Redis decides waits for the answer, up to
// Config.Budget, and gives back.
func (l *Limiter) Hold(ctx context.Context, call limits.Call[string]) (g limits.Grant, err error) {
	if ctx.Err() != nil {
		return g, cell.Cancelled(ctx)
	}
	of, err := l.under(call.Limit, call.Key)
	switch {
	case misfits(err):
		g.Answer = notApplied
		return g, nil
	case err != nil:
		return g, err
	}
	patience := max(call.Patience, 0)
	if deadline, ends := ctx.Deadline(); ends { // a later turn would be of no use
		patience = max(min(patience, time.Until(deadline)), 0)
	}
	var crowded error // more may not wait
	if !call.NoWait && call.N != 0 && (patience > 0 || of.policy.Delays()) {
		if crowded = l.waiters.enter(call.Key); crowded == nil {
			defer l.waiters.leave(call.Key)
		} else {
			patience = of.orAtOnce(0)
		}
	}
	r, waits := &granted{limit: call.Limit, under: of.limit.Policy()}, waits{limiter: l, ctx: ctx}
	r.limiter, r.key, r.n = l, call.Key, call.N
	for {
		r.began = time.Now()
		// A call that ends meanwhile still learns what it has to give back.
		r.taken, err = l.take(context.WithoutCancel(ctx), of, call.Key, call.N, patience)
		if err != nil {
			return limits.Grant{}, err
		}
		r.Answer = r.taken.answer
		g.Answer = forAdapters(&r.Answer)
		if crowded != nil && !g.Allowed {
			g.Basis = limits.NewBasis(g.Source(), g.Promised(), crowded)
		}
		again := max(g.RetryAfter, shortestPause)
		if l.leases == nil || g.Allowed || call.NoWait || g.Source() == SourceClosed || again > patience-waits.waited {
			break
		}
		if err = waits.sleep(again); err != nil {
			return g, err
		}
	}
	if g.Allowed {
		g.Held = limits.Held{Of: holder{}, Ref: r}
		if err = ctx.Err(); err != nil {
			err = cell.Cancelled(ctx)
		} else if !call.NoWait {
			err = waits.sleep(g.Wait)
		}
	}
	if err != nil {
		_ = g.Cancel(context.WithoutCancel(ctx)) // what cannot be given back counts
		g.Allowed = false
	}
	if !call.NoWait {
		g.Wait = waits.waited
	}
	return g, err
}

// shortestPause keeps a call that waits for a lease from asking without end.
const shortestPause = time.Millisecond

// waits sleeps, and adds up for how long.
type waits struct {
	limiter *Limiter
	ctx     context.Context
	waited  time.Duration
}

func (w *waits) sleep(d time.Duration) error {
	if d <= 0 {
		return nil
	}
	began := time.Now()
	err := w.limiter.sleep(w.ctx, d)
	w.waited += time.Since(began)
	return err
}

// granted is what Hold has taken.
type granted struct {
	Reservation
	limit policy.Policy // that came with the call, or nil
	under policy.Policy // that decided
	began time.Time     // before it was taken
}

// holder settles what limiters hold.
type holder struct{}

// Settle implements limits.Holder.
func (holder) Settle(ctx context.Context, held limits.Held, used int64) error {
	r := held.Ref.(*granted)
	source := r.taken.answer.Source
	switch {
	case used > r.n:
		return r.change(ctx, r.n-used)
	case used == r.n, source == SourceOpen:
		return nil
	case used == 0 && source != SourceLease:
		return r.Cancel(ctx)
	}
	if back := r.counting(r.n - used); back > 0 {
		return r.change(ctx, back)
	}
	return nil
}

// change gives units back, or charges them if they are below 0.
func (r *granted) change(ctx context.Context, n int64) error {
	a, err := r.limiter.RefundWith(ctx, r.limit, r.key, n)
	if err == nil && !a.Allowed {
		err = a.Cause
	}
	return err
}

// counting returns how many of the last units of what was taken still count, at least.
func (r *granted) counting(back int64) int64 {
	since := time.Since(r.began)
	if s, ok := r.under.(shape.Shaped); ok {
		if s := s.Shape(); s.Interval > 0 {
			drained := math.Ceil(float64(since.Nanoseconds()) * ticks / float64(s.Interval))
			return max(back-int64(min(drained, math.MaxInt64/2)), 0)
		}
	}
	ends := r.Answer.ResetAfter
	if w, ok := r.under.(policy.Windowed); ok {
		ends = min(ends, w.Window())
	}
	if since >= ends {
		return 0
	}
	return back
}

// ticks is how many of a shape's ticks a nanosecond has.
const ticks = 16
