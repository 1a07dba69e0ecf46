package lease

import (
	"math/bits"
	"time"

	"github.com/ral-limiter/ral/policy"
)

// A key's word has the end of its lease (in steps of 2^17 ns, rounded down), the units left, and
// the mark at which to ask for more. Or the key is refused until then. The steps cost a lease of 10
// ms, the shortest, at most 1.3% of its time, and last 4 years. Leases that would end later are not
// kept.
const (
	stepBits = 17
	markBits = 5
	unitBits = 18

	maxUnits = 1<<unitBits - 1
	lastStep = 1<<(63-unitBits-markBits) - 2 // MaxWord is above all its words

	refusing = 1<<markBits - 1 // in place of a mark
)

type verdict uint8

const (
	short   verdict = iota // too few units: ask the bank
	refused                // by the bank, a while ago: ask it again after that
	taken
	takenLow // and time to ask for more
)

// leaseDecision is a word's answer to a call. The engine passes it on inside a policy.Decision.
type leaseDecision struct {
	verdict verdict
	units   int64         // left after the call
	holds   time.Duration // while the word is valid
}

// wrap encodes d as a policy.Decision for the engine only: allowed with a Wait is takenLow.
func (d leaseDecision) wrap() policy.Decision {
	w := policy.Decision{Limit: maxUnits, Remaining: d.units, ResetAfter: d.holds}
	switch d.verdict {
	case takenLow:
		w.Allowed, w.Wait = true, 1
	case taken:
		w.Allowed = true
	case refused:
		w.RetryAfter = d.holds
	}
	return w
}

// unwrap decodes wrap. The refusal of an engine without room has no ResetAfter: it is short.
func unwrap(w policy.Decision) leaseDecision {
	d := leaseDecision{units: w.Remaining, holds: w.ResetAfter}
	switch {
	case w.Allowed && w.Wait > 0:
		d.verdict = takenLow
	case w.Allowed:
		d.verdict = taken
	case w.RetryAfter > 0 && w.ResetAfter > 0:
		d.verdict = refused
	}
	return d
}

func (d leaseDecision) answers() bool { return d.verdict != short }

// answer converts a decision that answers for the caller.
func (d leaseDecision) answer(limit int64) policy.Decision {
	if d.verdict == refused {
		return policy.Decision{Limit: limit, RetryAfter: d.holds, ResetAfter: d.holds}
	}
	return policy.Decision{Allowed: true, Limit: limit, Remaining: d.units, ResetAfter: d.holds}
}

// changed is the decision of a policy that changes a word. It reports units.
func changed(units int64) policy.Decision {
	return policy.Decision{Limit: maxUnits, Allowed: true, Remaining: units}
}

type word struct {
	until uint64 // in steps
	units uint64
	mark  uint64
}

func split(w uint64) word {
	return word{
		until: min(w>>(unitBits+markBits), lastStep),
		units: w >> markBits & maxUnits,
		mark:  w & refusing,
	}
}

func (w word) join() uint64 { return w.until<<(unitBits+markBits) | w.units<<markBits | w.mark }

// holds reports whether the word is still valid.
func (w word) holds(now policy.Instant) bool { return now < w.ends() }

func (w word) ends() policy.Instant { return policy.Instant(w.until << stepBits) }

// low returns the units left at which to ask for more; -1: never.
func (w word) low() int64 {
	if w.mark == 0 {
		return -1
	}
	return lowAt(w.mark)
}

// lowAt returns the units of a mark above 0: 0, 0, 1, 2, 3, 5, 7, 11, 15, 23 and so on.
func lowAt(mark uint64) int64 { return (2+int64(mark-1)&1)<<((mark-1)>>1)>>1 - 1 }

// markFor returns the highest mark that is at most units.
func markFor(units int64) uint64 {
	mark := min(2*uint64(bits.Len64(uint64(units+1))), refusing-1)
	if lowAt(mark) > units {
		mark--
	}
	return mark
}

// step returns the last step that begins at or before t.
func step(t policy.Instant) uint64 { return min(uint64(max(t, 0))>>stepBits, lastStep) }

// take takes n units. For n == 0 it looks: it is refused only if the word refuses every call.
func (w *word) take(now policy.Instant, n int64) leaseDecision {
	var d leaseDecision
	if n == 0 {
		d.verdict = taken
	}
	if !w.holds(now) {
		return d
	}
	left := int64(w.units)
	d.units, d.holds = left, time.Duration(w.ends()-now)
	switch {
	case w.mark == refusing:
		d.verdict = refused // also for n == 0: see Leases.Choke
	case n == 0:
	case n > 0 && n <= left:
		d.verdict, d.units = taken, left-n
		if low := w.low(); left > low && left-n <= low {
			d.verdict = takenLow
		}
		w.units = uint64(left - n)
	}
	return d
}

// wordPolicy is the engine's policy: a call takes from the word of its key.
type wordPolicy struct{}

func (wordPolicy) Take(state uint64, now policy.Instant, n int64, _ time.Duration) (uint64, policy.Decision) {
	w := split(state)
	d := w.take(now, n)
	if n == 0 || d.verdict < taken {
		return state, d.wrap()
	}
	return w.join(), d.wrap()
}

// Choke does not allow the call that leaves few units: Take does, and tells.
func (wordPolicy) Choke(state uint64, now policy.Instant) (uint64, bool) {
	w := split(state)
	if w.units == 0 || w.mark == refusing || !w.holds(now) || int64(w.units)-1 == w.low() {
		return state, false
	}
	return state - 1<<markBits, true
}

// Refund does nothing: only a take can be cancelled.
func (wordPolicy) Refund(state uint64, _ policy.Instant, _ int64) uint64 { return state }

// Cancel returns units to the lease that they are from, or another with the same end, while it
// lasts.
func (wordPolicy) Cancel(state, left uint64, _, now policy.Instant, n, _ int64) uint64 {
	w := split(state)
	if n <= 0 || w.mark == refusing || w.until != split(left).until || !w.holds(now) {
		return state
	}
	w.units = min(w.units+uint64(n), maxUnits)
	return w.join()
}

func (wordPolicy) Limit() int64 { return maxUnits }

func (wordPolicy) Delays() bool { return false }

func (wordPolicy) FreshAt(state uint64) policy.Instant { return split(state).ends() }

func (wordPolicy) Reads(other policy.Policy) bool {
	switch other.(type) {
	case wordPolicy, grant, refusal, inventory, seizure:
		return true
	}
	return false
}

func (l wordPolicy) Carry(from policy.Policy, state uint64, _ policy.Instant) (uint64, bool) {
	return state, l.Reads(from)
}

func (wordPolicy) String() string { return "leases" }

// grant writes a lease into a word. The old rest is lost, or added if paid in the same window,
// ended or not. It reports the lost units.
type grant struct {
	wordPolicy
	until policy.Instant
	units int64
	mark  uint64
	add   bool
}

func (g grant) Take(state uint64, _ policy.Instant, _ int64, _ time.Duration) (uint64, policy.Decision) {
	old, next := split(state), word{until: step(g.until), units: uint64(min(g.units, maxUnits)), mark: g.mark}
	lost := g.units - int64(next.units) + int64(old.units)
	if g.add {
		added := min(old.units, maxUnits-next.units)
		next.units += added
		lost -= int64(added)
	}
	return next.join(), changed(lost)
}

// refusal writes a refusal into a word without units. It reports 0.
type refusal struct {
	wordPolicy
	until policy.Instant
}

func (r refusal) Take(state uint64, now policy.Instant, _ int64, _ time.Duration) (uint64, policy.Decision) {
	if w := split(state); w.units == 0 || !w.holds(now) {
		state = word{until: step(r.until), mark: refusing}.join()
	}
	return state, changed(0)
}

// inventory changes nothing. It reports the units of a word, ended or not.
type inventory struct{ wordPolicy }

func (inventory) Take(state uint64, _ policy.Instant, _ int64, _ time.Duration) (uint64, policy.Decision) {
	return state, changed(int64(split(state).units))
}

// seizure takes all units out of a word, or only if they have not ended. It reports how many.
type seizure struct {
	wordPolicy
	ended bool
}

func (s seizure) Take(state uint64, now policy.Instant, _ int64, _ time.Duration) (uint64, policy.Decision) {
	w, seized := split(state), int64(0)
	if w.units > 0 && (s.ended || w.holds(now)) {
		seized = int64(w.units)
		w.units, w.mark = 0, 0
		state = w.join()
	}
	return state, changed(seized)
}
