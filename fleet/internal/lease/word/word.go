// Package word is the state of a leased key in an engine: the end of its lease, the units left, and when
// to ask for more. [Policy] takes from such a word; [Grant], [Refusal], [Inventory] and [Seizure] change
// one. Start reading at Policy.
package word

import (
	"math/bits"
	"time"

	"github.com/ral-limiter/ral/policy"
)

// A key's word has the end of its lease (in steps of 2^17 ns, rounded down), the units left, and
// the mark at which to ask for more. In a word with the mark refusing, the end is the time until
// which the key is refused. The steps cost a lease of 10 ms, the shortest, at most 1.3% of its
// time, and last 4 years. Leases that would end later are not kept.
const (
	stepBits = 17
	markBits = 5
	unitBits = 18

	MaxUnits = 1<<unitBits - 1
	// lastStep keeps every word of Policy below policy.MaxWord.
	lastStep = 1<<(63-unitBits-markBits) - 2

	// refusing stands in place of a mark.
	refusing = 1<<markBits - 1
)

// Verdict is a word's answer to a call.
type Verdict uint8

const (
	// Short says that there are too few units: ask the bank.
	Short Verdict = iota
	// Refused says that the bank refused the key, and need not be asked again before the time Holds
	// has passed.
	Refused
	Taken
	// TakenLow also says that it is time to ask for more.
	TakenLow
)

// Decision is a word's answer to a call. The engine passes a Decision on inside a policy.Decision.
type Decision struct {
	Verdict Verdict
	// Units is the units left after the call.
	Units int64
	// Holds is how long the word is valid.
	Holds time.Duration
}

// wrap encodes d as a policy.Decision for the engine only: allowed with a Wait is TakenLow.
func (d Decision) wrap() policy.Decision {
	decision := policy.Decision{Limit: MaxUnits, Remaining: d.Units, ResetAfter: d.Holds}
	switch d.Verdict {
	case TakenLow:
		decision.Allowed, decision.Wait = true, 1
	case Taken:
		decision.Allowed = true
	case Refused:
		decision.RetryAfter = d.Holds
	}
	return decision
}

// Unwrap decodes the engine's decision. The refusal of an engine without room has no ResetAfter, as
// such a refusal is short.
func Unwrap(w policy.Decision) Decision {
	decision := Decision{Units: w.Remaining, Holds: w.ResetAfter}
	switch {
	case w.Allowed && w.Wait > 0:
		decision.Verdict = TakenLow
	case w.Allowed:
		decision.Verdict = Taken
	case w.RetryAfter > 0 && w.ResetAfter > 0:
		decision.Verdict = Refused
	}
	return decision
}

// Answers reports whether the word answers the call. Otherwise the bank must be asked.
func (d Decision) Answers() bool { return d.Verdict != Short }

// Answer converts a decision that answers for the caller.
func (d Decision) Answer(limit int64) policy.Decision {
	if d.Verdict == Refused {
		return policy.Decision{Limit: limit, RetryAfter: d.Holds, ResetAfter: d.Holds}
	}
	return policy.Decision{Allowed: true, Limit: limit, Remaining: d.Units, ResetAfter: d.Holds}
}

// changed is the decision of a policy that changes a word. The decision reports units.
func changed(units int64) policy.Decision {
	return policy.Decision{Limit: MaxUnits, Allowed: true, Remaining: units}
}

type word struct {
	// until is in steps.
	until uint64
	units uint64
	mark  uint64
}

func split(w uint64) word {
	return word{
		until: min(w>>(unitBits+markBits), lastStep),
		units: w >> markBits & MaxUnits,
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

// MarkFor returns the highest mark that is at most units.
func MarkFor(units int64) uint64 {
	mark := min(2*uint64(bits.Len64(uint64(units+1))), refusing-1)
	if lowAt(mark) > units {
		mark--
	}
	return mark
}

// step returns the last step that begins at or before t.
func step(t policy.Instant) uint64 { return min(uint64(max(t, 0))>>stepBits, lastStep) }

// take takes n units. For n == 0 take looks, and refuses only if the word refuses every call.
func (w *word) take(now policy.Instant, n int64) Decision {
	var decision Decision
	if n == 0 {
		decision.Verdict = Taken
	}
	if !w.holds(now) {
		return decision
	}
	left := int64(w.units)
	decision.Units, decision.Holds = left, time.Duration(w.ends()-now)
	switch {
	case w.mark == refusing:
		// Choke goes by the verdict, also for n == 0.
		decision.Verdict = Refused
	case n == 0:
	case n > 0 && n <= left:
		decision.Verdict, decision.Units = Taken, left-n
		if low := w.low(); left > low && left-n <= low {
			decision.Verdict = TakenLow
		}
		w.units = uint64(left - n)
	}
	return decision
}

// Policy is the engine's policy: a call takes from the word of its key.
type Policy struct{}

func (Policy) Take(state uint64, now policy.Instant, n int64, _ time.Duration) (uint64, policy.Decision) {
	word := split(state)
	decision := word.take(now, n)
	if n == 0 || decision.Verdict < Taken {
		return state, decision.wrap()
	}
	return word.join(), decision.wrap()
}

// Choke does not allow the call that leaves few units: Take does, and tells.
func (Policy) Choke(state uint64, now policy.Instant) (uint64, bool) {
	w := split(state)
	if w.units == 0 || w.mark == refusing || !w.holds(now) || int64(w.units)-1 == w.low() {
		return state, false
	}
	return state - 1<<markBits, true
}

// Refund does nothing: only a take can be cancelled.
func (Policy) Refund(state uint64, _ policy.Instant, _ int64) uint64 { return state }

// Cancel returns units to their lease, or to another with the same end, while it
// lasts.
func (Policy) Cancel(state, left uint64, _, now policy.Instant, n, _ int64) uint64 {
	word := split(state)
	if n <= 0 || word.mark == refusing || word.until != split(left).until || !word.holds(now) {
		return state
	}
	word.units = min(word.units+uint64(n), MaxUnits)
	return word.join()
}

func (Policy) Limit() int64 { return MaxUnits }

func (Policy) Delays() bool { return false }

func (Policy) FreshAt(state uint64) policy.Instant { return split(state).ends() }

func (Policy) Reads(other policy.Policy) bool {
	switch other.(type) {
	case Policy, Grant, Refusal, Inventory, Seizure:
		return true
	}
	return false
}

func (l Policy) Carry(from policy.Policy, state uint64, _ policy.Instant) (uint64, bool) {
	return state, l.Reads(from)
}

func (Policy) String() string { return "leases" }

// Grant writes a lease into a word. The old rest is lost, or added if paid in the same window,
// ended or not. A Grant reports the lost units.
type Grant struct {
	Policy
	Until policy.Instant
	Units int64
	// Mark is returned by MarkFor.
	Mark uint64
	Add  bool
}

func (g Grant) Take(state uint64, _ policy.Instant, _ int64, _ time.Duration) (uint64, policy.Decision) {
	old, next := split(state), word{until: step(g.Until), units: uint64(min(g.Units, MaxUnits)), mark: g.Mark}
	lost := g.Units - int64(next.units) + int64(old.units)
	if g.Add {
		added := min(old.units, MaxUnits-next.units)
		next.units += added
		lost -= int64(added)
	}
	return next.join(), changed(lost)
}

// Refusal writes a refusal into a word, unless the word has units that have not ended. A Refusal
// reports 0.
type Refusal struct {
	Policy
	Until policy.Instant
}

func (r Refusal) Take(state uint64, now policy.Instant, _ int64, _ time.Duration) (uint64, policy.Decision) {
	if w := split(state); w.units == 0 || !w.holds(now) {
		state = word{until: step(r.Until), mark: refusing}.join()
	}
	return state, changed(0)
}

// Inventory changes nothing. An Inventory reports the units of a word, ended or not.
type Inventory struct{ Policy }

func (Inventory) Take(state uint64, _ policy.Instant, _ int64, _ time.Duration) (uint64, policy.Decision) {
	return state, changed(int64(split(state).units))
}

// Seizure takes all units out of a word. If Ended is false, it takes them only if they have not
// ended. A Seizure reports how many.
type Seizure struct {
	Policy
	Ended bool
}

func (s Seizure) Take(state uint64, now policy.Instant, _ int64, _ time.Duration) (uint64, policy.Decision) {
	word, seized := split(state), int64(0)
	if word.units > 0 && (s.Ended || word.holds(now)) {
		seized = int64(word.units)
		word.units, word.mark = 0, 0
		state = word.join()
	}
	return state, changed(seized)
}
