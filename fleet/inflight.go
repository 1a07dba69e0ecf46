package fleet

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/ral-limiter/ral/fleet/internal/slots"
	"github.com/ral-limiter/ral/fleet/internal/store"
	"github.com/ral-limiter/ral/policy"
)

// inFlight is the link that has Redis decide calls under a limit in flight, in place of exact. The units of
// an admitted call are a slot, which the server confirms until the call ends: see slotKeeper. Its refusals are
// not exact, since it depends on other servers when units leave.
type inFlight struct{ exact }

func (f inFlight) take(ctx context.Context, ask ask) (taken, error) {
	if !ask.isHead && f.waiters.forKey(ask.key) > 0 {
		return f.behindLine(ctx, ask)
	}
	request, err := f.slots.mayEnter()
	if err != nil {
		return taken{}, err
	}
	got, err := f.askTake(ctx, ask.terms, store.TakeAsk{Key: ask.key, N: ask.n, ID: ask.id})
	if err != nil {
		return taken{}, err
	}
	return f.entered(&ask, got, request)
}

// behindLine refuses a call that does not wait while others wait here for the key.
func (f inFlight) behindLine(ctx context.Context, ask ask) (taken, error) {
	ask.n = 0
	taken, err := f.look(ctx, ask)
	taken.receipt, taken.guess = nil, true
	if err == nil && taken.blocked == 0 {
		taken.answer.Allowed, taken.answer.RetryAfter, taken.answer.Provenance = false, askAgain, besideLeases
	}
	return taken, err
}

// entered tells Redis's answer to a call, which asked by the request, and records the slot of its
// units. An answer so late that Redis may have forgotten the units is none.
func (f inFlight) entered(ask *ask, got store.Taken, request slots.Request) (taken, error) {
	t := f.answer(ask, got)
	t.guess = true
	switch {
	case got.Emptied && !got.Allowed:
		t.answer.Provenance = byEmptied
	case !got.Allowed:
		t.answer.Provenance = besideLeases
	case ask.n > 0:
		slot := f.slots.enter(ask, request)
		if slot == nil {
			return taken{}, noAnswer{cause: asOutage(errCutOff)}
		}
		t.receipt = slot
	}
	return t, nil
}

func (f inFlight) giveBack(ctx context.Context, ask ask) (taken, error) {
	return f.slots.giveBack(ctx, ask, f)
}

// slotShare is the last link under a limit in flight, in place of fallback. Under FallbackShare a server has
// the limit divided by the number of servers, rounded down, less the units that the server has already, lost
// or not.
type slotShare struct{ fallback }

func (f slotShare) take(ctx context.Context, ask ask) (taken, error) {
	if f.config.Outage != FallbackShare {
		return f.fallback.take(ctx, ask)
	}
	decision, n := policy.Decision{}, ask.units()
	if servers := f.divisor.Load(); servers > 0 {
		decision.Limit = ask.terms.maxTake / servers
	}
	slot, held := f.slots.enterLocally(&ask, n, decision.Limit)
	decision.Remaining = max(decision.Limit-held, 0)
	if decision.Allowed = n == 0 || slot != nil; !decision.Allowed {
		decision.RetryAfter = retryFor(ask.terms, n)
	}
	taken := f.shared(&ask, decision, ask.n)
	taken.guess = true
	if slot != nil {
		taken.receipt = slot
	}
	return taken, nil
}

func (f slotShare) look(ctx context.Context, ask ask) (taken, error) {
	if f.config.Outage != FallbackShare {
		return f.fallback.look(ctx, ask)
	}
	n := ask.n
	ask.n = 0
	taken, err := f.take(ctx, ask)
	if decision := &taken.answer.Decision; n < 0 || n > decision.Remaining {
		decision.Allowed, decision.RetryAfter = false, retryFor(ask.terms, n)
	}
	return taken, err
}

// retryFor returns the time until a share that lacks n units may have them.
func retryFor(t *terms, n int64) time.Duration {
	if n < 0 || n > t.maxTake {
		return policy.Never
	}
	return retry
}

func (f slotShare) giveBack(ctx context.Context, ask ask) (t taken, err error) {
	return f.slots.giveBack(ctx, ask, f)
}

// Release ends the call: its units in flight come back, and units of other limits stay used. If Redis cannot
// be asked, which is the error, the units leave Redis within Config.Term. A second call does nothing.
func (r *Reservation) Release(ctx context.Context) error {
	if r.slot() == nil {
		r.by = nil
		return nil
	}
	return r.Keep(ctx, 0)
}

// Extend lets units in flight last for another longest time from now. Extend reports whether the
// units still count: not if they have ended, are lost or were given back. If Redis cannot be asked,
// the error says so, and the units are extended if it answers before they would have ended or are
// lost.
func (r *Reservation) Extend(ctx context.Context) (bool, error) {
	if r.slot() == nil || r.by == nil {
		return false, nil
	}
	return r.limiter.slots.extend(ctx, &r.ask, r.slot())
}

// Lost returns a channel that is closed if this server gives up the reservation's units in flight before they
// were released: the server could not confirm these units in Redis, which may give their place to another
// call within a twentieth of Config.Term. The call should end. The channel is nil for units of other limits,
// and of a refused call.
func (r *Reservation) Lost() <-chan struct{} {
	if slot := r.slot(); slot != nil {
		return slot.Lost
	}
	return nil
}

// ID names the reservation's units in flight, for Limiter.Release on any server. ID is empty if
// there are none.
func (r *Reservation) ID() string {
	if slot := r.slot(); slot != nil {
		return slot.ID
	}
	return ""
}

// Release gives back units in flight by the ID of their reservation, on any server: a worker ends a call
// that a gateway began. Release reports whether the units still counted. The server that took them
// learns of the release when it next confirms its units, within a fifth of Config.Term; this does not
// close Reservation.Lost. The error is a *policy.FieldError for an ID that no reservation has, or as
// from Take; without Redis it wraps ErrOutage.
func (l *Limiter) Release(ctx context.Context, key, id string) (bool, error) {
	terms := l.own.Load()
	_, count, _ := strings.Cut(id, ".")
	n, err := strconv.ParseInt(count, 10, 64)
	if l.slots == nil || err != nil || n < 1 || n > store.MaxInFlight {
		return false, &policy.FieldError{Of: "Release", Field: "id", Value: fmt.Sprintf("%q", id), Want: "the ID of a reservation under a limit in flight"}
	}
	left, err := l.slots.releaseInRedis(ctx, terms, key, id, n)
	// The units may belong to the server's share.
	held := err == nil && l.slots.forget(key, id)
	return held || left > 0, err
}
