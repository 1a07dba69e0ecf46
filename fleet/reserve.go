package fleet

import (
	"context"
	"fmt"
	"time"

	"github.com/ral-limiter/ral/cell"
	"github.com/ral-limiter/ral/engine"
	"github.com/ral-limiter/ral/fleet/internal/slots"
	"github.com/ral-limiter/ral/limits"
	"github.com/ral-limiter/ral/policy"
)

// Reservation is the units that Reserve or Acquire took, with the answer. If Allowed, act after
// Wait, and call Keep if less was needed, or Cancel. Its methods are for one goroutine at a time.
// The first call ends the Reservation, and must not be repeated on a copy: that may give back units
// of other calls. The zero Reservation is a refusal.
type Reservation struct {
	limits.Answer
	// Waited is how long Acquire waited for the turn.
	Waited time.Duration

	limiter *Limiter
	// by is the link that took the units. by is nil once the units are settled.
	by link
	// ask has the receipt.
	ask ask
}

// Reserve takes n units for the key now if they can be used within patience. The answer's Wait is
// how long to wait before using them. No other call in the fleet is promised the same turn. With
// zero patience they can be used at once, except under a policy.Queue, which delays calls by up to
// its own length. Leased mode has no turns: the error is ErrModeUnsupported.
func (l *Limiter) Reserve(ctx context.Context, key string, n int64, patience time.Duration) (Reservation, error) {
	if l.leased != nil {
		return Reservation{}, unsupported("Reserve")
	}
	terms, err := l.under(nil, key)
	if err != nil {
		return Reservation{Answer: misfit}, err
	}
	a := ask{terms: terms, key: key, n: n, patience: patience, returns: true}
	t, err := l.take(ctx, a)
	return l.reserved(a, t), err
}

func (l *Limiter) reserved(ask ask, t taken) Reservation {
	ask.receipt = t.receipt
	return Reservation{Answer: t.answer, limiter: l, by: t.by, ask: ask}
}

// slot returns the reservation's units in flight, or nil.
func (r *Reservation) slot() *slots.Slot {
	slot, _ := r.ask.receipt.(*slots.Slot)
	return slot
}

// Cancel gives all units back, on the terms of Keep.
func (r *Reservation) Cancel(ctx context.Context) error { return r.Keep(ctx, 0) }

// Keep ends the reservation with n of its units used, for costs known only afterwards. Other units
// come back as far as later reservations keep their promises and the limit holds. These units go to
// their source: Redis, this server's share, or a lease that lasts and that the call did not wait
// for.
//
//   - If the key's word has not changed since, all come back. It is as if the call had asked for n,
//     unless that would have had its turn earlier.
//   - If other calls took or gave back since, units come back under limits that count in windows if
//     the window is still there, and under a SlidingLog except those given back before. Under a
//     Funnel and a Bursty it is as if the call had asked for n, if all later takes of the key were
//     by Reserve, Acquire or Hold, none of them waited, and they are at most 160.
//   - Otherwise units of a Funnel and a Bursty come back without the part that would drain in the
//     time since they were taken. None come back under a Funnel that calls wait for or that was
//     charged beyond its capacity, under a Bursty that owes more than a unit, and under a Queue:
//     the next call may not start before promised turns.
//
// Units in flight all come back, whatever n is: the call has ended. Otherwise, n below 0 is 0, and all units
// or more give nothing back, without asking Redis. On an error, such as ErrOutage, the units still count, or
// Redis was too late to say. A second call does nothing, and neither does a call on a refusal.
func (r *Reservation) Keep(ctx context.Context, n int64) error {
	link, ask := r.by, r.ask
	r.by = nil
	if link == nil || ask.receipt == nil || !r.Allowed || n >= ask.n && r.slot() == nil {
		// Nothing was recorded, or all is kept.
		return nil
	}
	ask.kept = n
	_, err := link.giveBack(ctx, ask)
	err, _ = forCaller(err)
	return err
}

// Wait blocks until n units can be used, takes them, and returns nil. Redis hands out turns to all
// servers. Calls for the same number of units are served in order of arrival.
//
// The error wraps engine.ErrNever, engine.ErrDeadline, engine.ErrCrowded, engine.ErrCancelled,
// engine.ErrClosed or an error of Take. Nothing was taken then, or the units were given back as by
// Reservation.Cancel. engine.ErrDeadline comes at once if the turn is after the deadline. So does
// engine.ErrCrowded if as many calls wait here as Config.MaxWaiting and MaxWaitingTotal allow, or a
// policy.Queue is full.
//
// While the key is blocked the call waits, and notices within a second when Reset lifts the block,
// on any server. Without Redis the call waits for this server's share; under FallbackClosed, for
// Redis. Without a deadline a call is promised a turn however far away, and all later calls wait
// for it, even if they do not Wait. In Leased mode there are no turns: the call asks again when
// this server does.
func (l *Limiter) Wait(ctx context.Context, key string, n int64) error {
	_, err := l.acquire(ctx, &limits.Call[string]{Key: key, N: n, Patience: policy.Never, Brief: true})
	return err
}

// Acquire is Wait for calls that may need less in the end, or wait no longer than patience. Acquire
// returns the units that it took, which Keep or Cancel gives back. Zero patience does not wait, not
// even under a policy.Queue. The answer is of the moment at which the units were taken: its Wait is
// over when Acquire returns. On an error the reservation is a refusal. A turn too late for patience
// is engine.ErrDeadline as well. RetryAfter is then the time after which the same call would be
// admitted if no other call took.
func (l *Limiter) Acquire(ctx context.Context, key string, n int64, patience time.Duration) (Reservation, error) {
	return l.acquire(ctx, &limits.Call[string]{Key: key, N: n, Patience: max(patience, 0)})
}

// acquire is Acquire in any mode, under the call's limit as by TakeWith.
func (l *Limiter) acquire(ctx context.Context, call *limits.Call[string]) (reservation Reservation, err error) {
	terms, err := l.under(call.Limit, call.Key)
	if err != nil {
		return Reservation{Answer: misfit}, err
	}
	w := waiting{Limiter: l, key: call.Key, n: call.N, patience: call.Patience, inLine: l.slots != nil && call.N > 0}
	reservation.Limit = terms.maxTake
	err = w.acquire(ctx, func(left time.Duration) (trial, error) {
		if terms, err = l.under(call.Limit, call.Key); err != nil {
			reservation = Reservation{Answer: misfit}
			return trial{}, err
		}
		var taken taken
		a := ask{terms: terms, key: call.Key, n: call.N, patience: terms.orAtOnce(left), returns: !call.Brief, isHead: w.place != nil && w.inLine}
		if reservation, taken, err = l.takeFor(ctx, a); err != nil {
			return trial{}, err
		}
		promised := reservation.Allowed && reservation.Wait > 0 && call.N != 0
		if reservation.Allowed {
			w.slept = w.slept || reservation.Wait > 0
			err = l.await(ctx, &reservation)
			if w.slept {
				reservation.Waited = time.Since(w.begun)
			}
		}
		if promised && err == nil {
			if blocked := l.known.Left(call.Key, policy.Never); blocked > 0 {
				// Give the turn back, so that waiting calls do not all start when the block ends.
				// Units that cannot be given back count.
				_ = reservation.Cancel(context.WithoutCancel(ctx))
				reservation.Answer = limits.Answer{Decision: policy.Decision{Limit: reservation.Limit}, Provenance: limits.NewProvenance(reservation.Source(), false, nil)}
				refuseBlocked(&reservation.Answer, blocked)
			}
		}
		// A decision about turns is final: there is no use in asking again.
		try := trial{Answer: &reservation.Answer, most: terms.maxTake, sleep: l.sleep, final: !taken.guess && l.leased == nil && !isBlocked(&reservation.Answer)}
		switch {
		case isBlocked(&reservation.Answer):
			try.sleep = func(ctx context.Context, duration time.Duration) error {
				return l.sleepBlocked(ctx, call.Key, duration)
			}
		case try.final && terms.crowds(left):
			try.full = fmt.Errorf("%w: %v has no room for more", engine.ErrCrowded, terms.policy)
		case a.isHead && !reservation.Allowed && reservation.RetryAfter != policy.Never:
			reservation.RetryAfter = pollAfter(reservation.RetryAfter, left)
			try.sleep = func(ctx context.Context, duration time.Duration) error {
				return l.sleepUntil(ctx, w.place.woken, duration, nil)
			}
		}
		return try, err
	})
	return reservation, err
}

// takeFor takes units that may come back. A call that ends meanwhile still learns its units, to give them back.
func (l *Limiter) takeFor(ctx context.Context, ask ask) (Reservation, taken, error) {
	taken, err := l.take(context.WithoutCancel(ctx), ask)
	if err != nil {
		return Reservation{}, taken, err
	}
	return l.reserved(ask, taken), taken, nil
}

// waiting is a call that waits on this server until it is admitted.
type waiting struct {
	*Limiter
	key      string
	n        int64
	patience time.Duration
	// inLine reports whether only the first of the calls that wait for the key asks.
	inLine bool

	begun time.Time
	// place is nil if the call does not wait.
	place *turn
	slept bool
}

// trial is the answer to a call that waits.
type trial struct {
	*limits.Answer
	// most is the most units that can ever be admitted at once.
	most int64
	// final reports whether there is no use in asking again.
	final bool
	// full is the error if the limit has no room for more calls that wait.
	full error
	// sleep sleeps for RetryAfter, or less.
	sleep func(context.Context, time.Duration) error
}

// acquire asks until the call is admitted, cannot be, or its patience is over.
func (w *waiting) acquire(ctx context.Context, ask func(left time.Duration) (trial, error)) error {
	// crowded is the error if no more calls may wait.
	var crowded error
	if w.patience > 0 && w.n != 0 {
		if w.place, crowded = w.waiters.enter(w.key); crowded == nil {
			defer w.waiters.leave(w.key, w.place)
		}
	}
	w.begun = time.Now()
	defer func() {
		if w.slept {
			w.waiters.waited(time.Since(w.begun))
		}
	}()
	for {
		if ctx.Err() != nil {
			return cell.Cancelled(ctx)
		}
		left, _ := w.left(ctx)
		if w.inLine && w.place != nil {
			w.slept = w.slept || w.place.waits
			if err := w.sleepUntil(ctx, w.place.first, left, errNotFirst); err != nil {
				return err
			}
			left, _ = w.left(ctx)
		}
		if crowded != nil {
			left = 0
		}
		answer, err := ask(left)
		if err != nil || answer.Allowed {
			return err
		}
		left, byDeadline := w.left(ctx)
		switch {
		case answer.RetryAfter == policy.Never:
			return fmt.Errorf("%w: %d of at most %d", engine.ErrNever, w.n, answer.most)
		case crowded != nil:
			return crowded
		case w.n == 0:
			return late(answer.Answer)
		case answer.full != nil:
			return answer.full
		case !answer.final && answer.RetryAfter <= left:
		case isBlocked(answer.Answer) && byDeadline:
			return fmt.Errorf("%w: %w", late(answer.Answer), context.DeadlineExceeded)
		case isBlocked(answer.Answer):
			return fmt.Errorf("%w, longer than %v", late(answer.Answer), w.patience)
		case byDeadline:
			return fmt.Errorf("%w: %w", engine.ErrDeadline, context.DeadlineExceeded)
		default:
			return fmt.Errorf("%w: more than %v to wait", engine.ErrDeadline, w.patience)
		}
		w.slept = true
		if err := answer.sleep(ctx, answer.RetryAfter); err != nil {
			return err
		}
	}
}

// errNotFirst is why a call got no units in flight that waited in its line until its patience was over.
var errNotFirst = fmt.Errorf("%w: others have waited longer", engine.ErrDeadline)

// left returns how long the call may still wait, and whether its deadline bounds that.
func (w *waiting) left(ctx context.Context) (left time.Duration, byDeadline bool) {
	left = w.patience
	if left != policy.Never {
		left = max(left-time.Since(w.begun), 0)
	}
	if deadline, ends := ctx.Deadline(); ends && time.Until(deadline) < left {
		return time.Until(deadline), true
	}
	return left, false
}

// await waits for the reservation's turn, or gives it back.
func (l *Limiter) await(ctx context.Context, reservation *Reservation) error {
	err := l.sleep(ctx, reservation.Wait)
	if err != nil {
		_ = reservation.Cancel(context.WithoutCancel(ctx))
		reservation.Answer = limits.Answer{Decision: policy.Decision{Limit: reservation.Limit}, Provenance: limits.NewProvenance(reservation.Source(), false, reservation.Err())}
	}
	return err
}
