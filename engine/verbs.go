package engine

import (
	"context"
	"iter"
	"math"
	"time"

	"github.com/ral-limiter/ral/cell"
	"github.com/ral-limiter/ral/internal/core/decide"
	"github.com/ral-limiter/ral/internal/core/shape"
	"github.com/ral-limiter/ral/policy"
)

// Choke reports whether the key may act now, and takes a unit if so. Choke is Take(key, 1).Allowed,
// and the fastest call. For a known key Choke never waits and never allocates. For a new key Choke
// waits only if the table is full, up to Config.OpenTimeout.
func (e *Engine[K]) Choke(key K) bool { return e.cell.Choke(key) }

// Allow is Choke under its name in golang.org/x/time/rate.
func (e *Engine[K]) Allow(key K) bool { return e.cell.Choke(key) }

// Take asks for n units for the key now, and records them if they are allowed. n below 0 or above
// the limit is refused with policy.Never. n == 0 looks without taking, and is not counted. Take
// waits and allocates no more than Choke does. RetryAfter of a refusal is exact if the key is in
// the table. If the key cannot be recorded RetryAfter is a guess: Config.Idle under RefuseNew,
// Config.OpenTimeout under Refuse.
func (e *Engine[K]) Take(key K, n int64) (decision policy.Decision) {
	e.cell.Take(key, n, &decision)
	return decision
}

// TakeWith is Take under a limit that comes with the call, as in redis-cell's CL.THROTTLE. Make
// limits once: making a limit costs more than a call. The limit must be of the family of the
// engine's own, as each policy's constructor says. Any other limit refuses with policy.Never and
// records nothing. nil is the limit that holds for the key anyway.
//
// Limits that alternate on a key share time, not units: 10 of 10 an hour take the whole hour under
// 1,000 an hour as well. If a key's own limit changes for good, call ChangeLimit.
func (e *Engine[K]) TakeWith(limit policy.Policy, key K, n int64) (decision policy.Decision) {
	e.cell.TakeWith(limit, key, n, &decision)
	return decision
}

// TakeUpTo takes n units if Take would, as a Bursty does on credit, and otherwise as many as remain
// for the key. TakeUpTo returns how many, and the decision on these: a Take of one unit, refused,
// if none remain. The call is counted once. n == 0 looks.
func (e *Engine[K]) TakeUpTo(key K, n int64) (taken int64, decision policy.Decision) {
	taken = e.cell.TakeUpTo(key, n, &decision)
	return taken, decision
}

// Peek returns the decision of Take(key, n) now: whether n units would pass, or how long until they
// do. Peek takes nothing, opens no key, never waits and is not counted. The decision leaves out
// that a new key may find the table full. With n == 0 the decision is the key's state: Allowed
// unless the key is blocked or PolicyFor chose a limit of another family.
func (e *Engine[K]) Peek(key K, n int64) (decision policy.Decision) {
	e.cell.Peek(key, n, &decision)
	return decision
}

// Wait blocks until n units can be used, takes them and returns nil. Calls on a key are served in
// the order of their arrival. Calls that do not wait (Choke, Take) cannot starve the head of the
// line, and a call that gives up nearly always costs the others nothing.
//
// The error wraps ErrNever, ErrDeadline, ErrCrowded, ErrCancelled, ErrClosed or ErrUnavailable.
// ErrDeadline and ErrCrowded come at once, as the call works out its turn before it joins the line.
// Calls that do not wait may still delay that turn. If the deadline then passes first, the error is
// ErrCancelled.
//
// n == 0 never waits. Such a call fails only for a limit of another family (ErrNever), a blocked
// key (ErrDeadline), an ended context or a closed engine. A key that can never be recorded does not
// wait either: Config.WhenUnavailable decides between nil and ErrUnavailable. A call on a new key
// waits for room in a full table up to Config.OpenTimeout, even if the context ends. Then it passes
// unrecorded if Config.WhenFull or WhenUnavailable admits it, and otherwise waits in line.
//
// Units given back later do not advance a promised turn. Turns are timed by package time even if
// Config.Clock is set, so that clock should run at the same speed.
func (e *Engine[K]) Wait(ctx context.Context, key K, n int64) error {
	err := e.cell.Wait(ctx, key, n)
	if err == nil && n != 0 && e.misuse != nil {
		if _, hashed := e.cell.Hash(key); hashed {
			e.misuse.unheldUnits(key)
		}
	}
	return e.named(err)
}

// Acquire is Wait for at most patience, and returns the units as a Reservation: Keep or Cancel
// gives back the units that are not needed. Zero patience does not wait. Acquire allocates nothing
// if it need not wait. The reservation's Decision is from the take: its Wait is over when Acquire
// returns.
//
// On an error, the reservation is a refusal: it has the key's state, and RetryAfter as if no call
// were before this one. A turn that comes too late for patience is ErrDeadline.
func (e *Engine[K]) Acquire(ctx context.Context, key K, n int64, patience time.Duration) (reservation Reservation[K], err error) {
	reservation.Waited, err = e.cell.Acquire(ctx, key, n, patience, &reservation.Decision, &reservation.held)
	return reservation, e.named(err)
}

// Reserve takes n units now if they can be used within patience. The caller may use them after
// Decision.Wait. With zero patience that is at once, except under a policy.Queue, which delays
// calls by up to its own length. No other call is promised the same turn. Reserve allocates nothing
// for a known key.
func (e *Engine[K]) Reserve(key K, n int64, patience time.Duration) (reservation Reservation[K]) {
	e.cell.Reserve(key, n, patience, &reservation.Decision, &reservation.held)
	return reservation
}

// Reservation holds the units that Reserve or Acquire took. If it is Allowed, act after Wait, and
// call Keep if less was needed, or Cancel. The first call ends the Reservation. One goroutine at a
// time may call its methods. A copy must not be ended as well: that may give back units of other
// calls. The zero Reservation is a refusal.
type Reservation[K comparable] struct {
	policy.Decision
	// Waited is the time that Acquire stood in line; 0 if it did not.
	Waited time.Duration

	held cell.Held[K]
}

// Cancel gives the units back, as if the call had never been made, except that turns promised to
// other calls stand. After the turn, it gives back the units that still count. Cancel does nothing
// the second time, or on a refusal. Cancel never refuses a call: at no instant, now or later, does
// less remain than without it. So a policy.FixedWindow stays where it opened, and a
// policy.WarmingUp as warm as it was. Under a policy.Restorer, such as a window, Cancel is exact.
// Under a policy.Funnel or Bursty it is exact under two conditions:
//
//   - The reservation is among the latest 128 of its key, and no other key has its place in a memory
//     of 4,096 places. That is so for all of 1,000 keys, or a quarter of Config.MaxKeys if that is less,
//     whose units are held at a time.
//   - All other calls of the key since took by Reserve, Acquire, Wait, Hold, TakeAll or Tiered.Hold,
//     charged by Refund or Settle, and gave back by Cancel, Keep or Settle.
//
// Otherwise, limits that count in windows give all units back while the window is there. A bucket
// gives back the units that have not drained, as far as it holds the units that other calls took or
// gave back since. Nothing comes back under a limit of PolicyFor that does not count in windows,
// under a Queue or WarmingUp, or under a policy that is no policy.Refunder. Nor does it after
// eviction or after SetPolicy: see there.
func (r *Reservation[K]) Cancel() { r.held.Keep(0) }

// Keep ends the reservation with n of its units used, and gives the others back on the terms of
// Cancel, for costs known only afterwards. It is as if the call had asked for n, unless that would
// have had its turn earlier. n below 0 is 0. All units, or more, give nothing back.
func (r *Reservation[K]) Keep(n int64) { r.held.Keep(n) }

// Release ends the reservation and gives back its units in use, those of a policy.InFlight. Units of other
// limits stay spent. Call Release when the work is over, also if the work failed. After the units' longest
// time Release does nothing, and counts in Stats.Overstayed; nor does it if the key was Reset since.
// Release needs no lock, no clock and no writer. Cancel and Keep release the same units, all of them.
func (r *Reservation[K]) Release() { r.held.Keep(math.MaxInt64) }

// Extend lets the units in use of a policy.InFlight begin their longest time anew, for work that takes longer.
// Extend does not end the reservation. Extend returns false, and changes nothing, if the units no longer
// count, or if these are units of another limit.
func (r *Reservation[K]) Extend() bool { return r.held.Extend() }

// Refund gives n units back to the key, for costs known only afterwards: take the estimate, then
// refund the rest. No more comes back than was taken and still counts, and no more than the current
// window has. A key that is not in the table gets nothing back. n counts units of the limit that
// holds for the key; for TakeWith there is RefundWith.
//
// n < 0 charges -n more, whether the limit allows it or not, and refuses the key until the debt has
// drained. A charge above the units that pass in 31 days, and above those that the limit admits at
// once, is refused, so that a mistake does not lock a key for years.
//
// The decision is the key's state afterwards. The decision is not Allowed if nothing was recorded.
// RetryAfter is then policy.Never if the charge is too large or the policy is not a
// policy.Refunder. Any other RetryAfter means that the key is new, and the table full or without a
// writer. A Refund is not counted in Stats.
//
// Refund assumes that the units still count and that no call is waiting. Promised turns do not
// move, so the next call may start too early by the refunded amount. If the last promised turn lies
// in a window that has not opened, that window gets the room. Use Reservation.Cancel if this
// matters.
func (e *Engine[K]) Refund(key K, n int64) (decision policy.Decision) {
	e.cell.Refund(key, n, &decision)
	return decision
}

// RefundWith is Refund for units that were taken by TakeWith under limit. nil is the limit that
// holds for the key anyway. A limit of another family gives nothing back.
func (e *Engine[K]) RefundWith(limit policy.Policy, key K, n int64) (decision policy.Decision) {
	e.cell.RefundWith(limit, key, n, &decision)
	return decision
}

// Reset forgets the key's use, debts and promised turns included, and reports whether any still
// counted. Reset lifts a block of the key, forgets its refusals, and lets calls in line for the end
// of the block go on. Calls in line keep their place. Reservations from before give nothing back
// any more.
func (e *Engine[K]) Reset(key K) bool { return e.cell.Reset(key) }

// All yields the keys in the table with their states, as from Peek, in no order. All blocks no call.
// Keys that come or go meanwhile may be missed; a key that goes and comes back may be seen twice.
// A yielded string of at most 80 bytes stands in the key's entry, and keeps its up to 96 bytes alive.
func (e *Engine[K]) All() iter.Seq2[K, policy.Decision] { return e.cell.All() }

// Len returns the number of keys in the table, never above Config.MaxKeys.
func (e *Engine[K]) Len() int { return e.cell.Len() }

// Limit returns the engine's own limit: Config.Policy, or the last of SetPolicy.
func (e *Engine[K]) Limit() policy.Policy { return e.cell.Limit() }

// LimitFor returns the limit that holds for the key now: PolicyFor's choice, and otherwise Limit.
// LimitFor looks nothing up, takes nothing and never waits.
func (e *Engine[K]) LimitFor(key K) policy.Policy { return e.cell.LimitFor(key) }

// Keep says which part of a key's use a change of its limit keeps. To keep none, call Reset.
type Keep int

const (
	// KeepUsed keeps the used units: 5 of 10 become 5 of 100.
	KeepUsed Keep = iota
	// KeepShare keeps the used share, rounded up to a unit: 5 of 10 become 50 of 100. Under a
	// Bursty or a WarmingUp, which grant units on credit, it is KeepUsed. So it is under an InFlight,
	// whose units in use end with their own calls.
	KeepShare
)

// ChangeLimit tells the engine that the key's own limit has changed, as for a customer that
// upgrades. The key's used units count under the limit to, as by SetPolicy for this key alone.
// After 10 of 10 an hour, 990 of 1,000 an hour remain. Without ChangeLimit the limits share time,
// as under TakeWith, and nothing remains until the time of the old limit has passed. Use that the
// new limit cannot count is forgotten, also if the limit is raised again. Units in use of an
// InFlight are not forgotten: all count until they are released or end. nil stands for the engine's
// own limit.
//
// A program must call ChangeLimit once for each change, as soon as PolicyFor returns the new limit
// or TakeWith is called with it. The engine does not remember a key's limit: a repeated call
// translates again, and forgives or charges by as much again. A call with the two exchanged undoes
// that only as far as the lower limit can count. The engine's own limit does not change. Without
// PolicyFor, calls that name no limit go on under it.
//
// Units taken under the new limit before ChangeLimit are read as units of the old limit, and those
// above the old limit are forgotten, so up to the whole of the new limit may pass once more. A call
// under way with the old limit is decided by it, on the translated word. Calls after ChangeLimit,
// under either limit, together take at most as much as an unused key would admit under one and then
// under the other.
//
// Promised turns are kept: no other call is admitted before the last of them. Calls in line give up
// theirs, as far as Cancel allows, and get new turns in order under PolicyFor's present limit.
// Reservations from before give nothing back, unless the translation changed nothing, as between
// limits that count in windows of the same period. Units in use of an InFlight are released as before.
//
// For a key that is not in the table ChangeLimit does nothing. The error is ErrClosed, or a
// *policy.FieldError if a limit is of another family or no policy.Relative; nothing has changed
// then.
//
// keep is KeepUsed unless given; the last counts.
func (e *Engine[K]) ChangeLimit(key K, from, to policy.Policy, keep ...Keep) error {
	return e.changeLimit(key, from, to, nil, keep)
}

// SwitchLimit is ChangeLimit in one step with PolicyFor. SwitchLimit calls publish, which must make
// PolicyFor's choose return the limit to for this key, and must return soon. No call is decided by
// one limit on the key's use under the other: a call on the key waits while the change is under way,
// a few microseconds, and a call that began before is decided anew. So each used unit counts as a
// unit before and after, and no more is admitted than the limits admit. Changes of an engine run one
// after the other. publish runs also for a key that is not in the table. publish must not call the
// engine. After an error publish has not run.
func (e *Engine[K]) SwitchLimit(key K, from, to policy.Policy, publish func(), keep ...Keep) error {
	return e.changeLimit(key, from, to, publish, keep)
}

func (e *Engine[K]) changeLimit(key K, from, to policy.Policy, publish func(), keep []Keep) error {
	share, err := decide.KeepsShare(keep)
	if err != nil {
		return err
	}
	if shape.IsNil(from) {
		from = nil
	}
	if shape.IsNil(to) {
		to = nil
	}
	return e.named(e.cell.SwitchLimit(key, e.time.anchored(from), e.time.anchored(to), share, publish))
}

// SetPolicy replaces the engine's own policy, for all keys, from the next call on. The two must be
// of one family, as their constructors say. For one key there is ChangeLimit. Nothing is forgiven:
// a key's use counts under the new policy too, up to as much as that can count. Use above that is
// forgotten, also if the limit is raised again. Units in use of an InFlight are not forgotten: all
// count until they are released or end. No key is refused for longer than the new policy would refuse
// it, except:
//
//   - Promised turns are kept: no other call is admitted before the last of them.
//   - A debt keeps its duration under a Funnel, a Queue and a Bursty.
//   - A SlidingWindow that is lowered, with the same period, counts the units above it where they
//     are: they may refuse the key until the end of the window after, and raising it again forgives
//     nothing.
//
// Windows of another length count from the change, so changing the length more often than that
// keeps a busy key full. Calls in line get turns under the new policy.
//
// SetPolicy returns when the new policy holds. Meanwhile the writer translates all keys, about a
// second for a million. Until then calls translate the keys that they come to, and another
// SetPolicy waits. A full table makes no room: new keys are answered as for an unavailable table.
//
// The limit that holds already changes nothing. After another, reservations from before give
// nothing back: a translated word does not tell how much of their units is left. Settle them first,
// or use Refund. A reservation made while keys are translated may give nothing back once keys have
// left the table. Units in use of an InFlight are released and extended as before, as long as they
// count. Only after 64 further changes of its longest time they are not found any more, and end by
// themselves.
//
// The error is a *policy.FieldError if the policy is nil or of another family, or if PolicyFor
// chooses the limits. Otherwise the error is ErrClosed or ErrUnavailable. The old policy holds
// then.
func (e *Engine[K]) SetPolicy(limit policy.Policy) error {
	if shape.IsNil(limit) {
		return e.named(&policy.FieldError{
			Of: "SetPolicy", Field: "policy", Value: "nil", Want: "a policy, such as policy.Funnel returns",
		})
	}
	return e.named(e.cell.SetPolicy(e.time.anchored(limit)))
}
