package single

import (
	"math"
	"time"

	"github.com/ral-limiter/ral/internal/core/decide"
	"github.com/ral-limiter/ral/internal/core/underway"
	"github.com/ral-limiter/ral/policy"
)

// This file lowers the word (as does SetPolicy). Each call holds Limiter.mu while it reads the word
// and swaps the word, so the terms do not change meanwhile. Takes go on: see underway.Log.GiveBack.

// Reserve takes n units if they can be used within patience. A caller may use the units after the
// decision's Wait. With zero patience that is at once, except under a policy.Queue, which delays
// calls by up to its own length. Unlike Take, Reserve serves calls that can come later or may be
// given up: the units are taken now, so no other call is promised the turn. Reserve allocates
// nothing.
func (l *Limiter) Reserve(n int64, patience time.Duration) (reservation Reservation) {
	l.reserve(&request{n: n, patience: max(patience, 0)}, &reservation.Decision, &reservation.held)
	return reservation
}

func (l *Limiter) reserve(request *request, decision *policy.Decision, held *held) {
	l.takeLogged(request, decision, &held.receipt)
	held.limiter = l
}

// takeLogged is take, and remembers a take that may be given back, or a charge beside it.
func (l *Limiter) takeLogged(request *request, decision *policy.Decision, receipt *receipt) {
	t := l.terms.Load()
	if t == nil || !t.remembered || !l.tryLock() {
		l.take(request, decision, receipt)
		return
	}
	defer l.mu.Unlock()
	l.take(request, decision, receipt)
	if receipt.terms != nil && decision.Wait == 0 {
		mark := underway.Mark{Word: receipt.After, Returned: receipt.Returned}
		receipt.ID = receipt.terms.log.Add(receipt.terms.policy, receipt.Before, mark, receipt.At, request.n)
	}
}

// Reservation holds the units of Reserve or Acquire, with the decision. If Allowed, act after Wait
// and call Keep if less was needed; or call Cancel. The first call ends the Reservation. A copy must not be
// ended as well: that may give back units of other calls. A single goroutine at a time may call its methods.
// The zero Reservation is a refusal.
type Reservation struct {
	policy.Decision
	// Waited is the time that Acquire waited in line.
	Waited time.Duration

	held held
}

// Cancel gives the units back as far as possible without moving later reservations or exceeding the
// limit:
//
//   - If all calls since took by Reserve, Acquire or Hold, it is as if the call had never been
//     made, except that promised turns stand. That holds for the latest 128 calls. Windows need
//     neither condition. A policy.FixedWindow stays where it opened, and a policy.WarmingUp as warm
//     as it was.
//   - If other calls took since, their turns stand. The rest comes back, as each policy's
//     constructor says.
//   - If other calls took and the policy is not a policy.Refunder, or if SetPolicy or Reset was
//     called since, nothing comes back.
//
// After the turn, Cancel gives back the units that still count. A second call does nothing, nor
// does Cancel of a refusal.
func (r *Reservation) Cancel() { r.held.end(0) }

// Keep ends the reservation with n units used and gives the others back on the terms of Cancel: for
// costs known only afterwards. If the word is unchanged, it is as if the call had asked for n,
// unless its turn would have been earlier. n below 0 is 0. All units, or more, give nothing back.
func (r *Reservation) Keep(n int64) { r.held.end(n) }

// Release ends the reservation and gives back its units in use, those of a policy.InFlight. Units of other
// limits stay spent. Call Release when the work is over, also if the work failed. After the units' longest
// time, or after a Reset, Release does nothing. Cancel and Keep release the same units, all of them.
func (r *Reservation) Release() { r.held.end(math.MaxInt64) }

// Extend lets the units in use of a policy.InFlight begin their longest time anew, for work that takes longer.
// Extend does not end the reservation. Extend returns false, and changes nothing, if the units no longer
// count, or if they are of another limit.
func (r *Reservation) Extend() bool {
	t := r.held.receipt.terms
	return t != nil && t.inUse != nil && r.held.swap(policy.Occupier.Extend)
}

func (h *held) starts() policy.Instant { return h.receipt.At + policy.Instant(h.receipt.Wait) }

// end is keep, and then has the line go on if units in use came back.
func (h *held) end(n int64) {
	t := h.receipt.terms
	if h.keep(n); t != nil && t.inUse != nil {
		h.limiter.wake()
	}
}

// keep is Reservation.Keep without regard to the line.
func (h *held) keep(n int64) {
	r := h.receipt
	if r.terms != nil && r.terms.inUse != nil {
		h.swap(policy.Occupier.Release)
		h.receipt = receipt{}
		return
	}
	h.receipt = receipt{}
	n = max(n, 0)
	if r.terms == nil || n >= r.N {
		return
	}
	limiter, terms := h.limiter, r.terms
	limiter.mu.Lock()
	defer limiter.mu.Unlock()
	// SetPolicy may have replaced the terms.
	if limiter.terms.Load() == terms {
		terms.log.GiveBack(&terms.word, &terms.returned, terms.policy, &r.Taken, n, limiter.time.now)
	}
}

// Refund gives n units back, for costs known only afterwards: take an estimate, then refund the
// rest. No more comes back than was taken and still counts, and no more than the current window
// has. n < 0 charges -n more even if the limit does not allow it, which may leave a debt: calls are
// refused until the debt has drained. One call charges at most as many units as pass in 31 days, or
// as the limit admits at once if that is more.
//
// The decision is the state afterwards. The decision is not Allowed, and nothing was recorded, if
// the charge is above that bound or the policy is not a policy.Refunder.
//
// Refund does not know when the units were taken or which turns were promised since: it assumes
// that the units still count and that no call waits. Promised turns do not move, so the next call
// may start too early by the refund. If the last promised turn lies in a window that has not
// opened, that window gets the room. Use Reservation.Cancel or Keep if this matters.
func (l *Limiter) Refund(n int64) (decision policy.Decision) {
	if n < 0 || l.terms.Load() == nil {
		l.takeLogged(&request{n: n, charge: true}, &decision, &receipt{})
		return decision
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.time.now()
	for terms := l.terms.Load(); ; {
		word := terms.word.Load()
		next := decide.Refund(terms.policy, terms.refunder, word, now, n, &decision)
		switch {
		case n == 0 || next == word || !decision.Allowed:
			return decision
		case next > policy.MaxWord:
			// Survive a policy that breaks its contract.
			return policy.Decision{Limit: decision.Limit, RetryAfter: policy.Never}
		}
		terms.returned.Add(uint64(min(n, underway.ResetUnits)))
		if terms.word.CompareAndSwap(word, next) {
			return decision
		}
	}
}

// Reset forgets all usage, debts and promised turns, and reports whether anything still counted.
// Calls in line keep their place. Earlier reservations then give nothing back.
func (l *Limiter) Reset() bool {
	if t := l.terms.Load(); t != nil && t.inUse != nil {
		return l.vacate()
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	terms := l.terms.Load()
	if terms == nil {
		return false
	}
	if terms.word.Load() == 0 {
		return false
	}
	terms.returned.Add(underway.ResetUnits)
	word := terms.word.Swap(0)
	return terms.policy.FreshAt(word) > l.time.now()
}
