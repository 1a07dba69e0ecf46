package lease

import (
	"math/bits"
	"time"

	"github.com/ral-limiter/ral/policy"
)

// A key's word in the engine says until when it holds (in steps of 2^17 ns, rounded
// down), how many units of the lease are left, and at how many of them it is time to
// ask for more; or that the key is refused until then.
//
// The steps cost a lease of 10 ms, the shortest there is, at most 1.3% of its time, and
// last 4 years. Time stands still then: leases that would end later are not kept.
const (
	stepBits = 17
	markBits = 5
	unitBits = 18

	maxUnits = 1<<unitBits - 1
	lastStep = 1<<(63-unitBits-markBits) - 2 // MaxWord is above all words of it

	// refusing stands in place of a mark.
	refusing = 1<<markBits - 1
)

// verdict is what a word says to a call.
type verdict uint8

const (
	// short: too few units are here; ask the bank.
	short verdict = iota
	// refused: so the bank said a while ago; ask it again when that is over.
	refused
	// taken: units of the lease were taken.
	taken
	// takenLow: they were, and it is time to ask for more.
	takenLow
)

// leaseDecision is the answer of a word to a call. The engine, which decides by a
// policy.Policy, passes it on inside of a policy.Decision.
type leaseDecision struct {
	verdict verdict
	units   int64         // left in the word after the call
	holds   time.Duration // for how long the word means anything
}

// wrap returns the policy.Decision that stands for d inside of the engine. It is no answer
// to a caller: an allowed one that has a Wait is takenLow.
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

// unwrap returns what wrap was given. The refusal of an engine that has no room for a key
// says nothing about a lease, and has no ResetAfter: it is short.
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

// answers reports whether the call needs no bank.
func (d leaseDecision) answers() bool { return d.verdict != short }

// answer returns what the caller is told under a limit. The decision must be one that
// answers.
func (d leaseDecision) answer(limit int64) policy.Decision {
	if d.verdict == refused {
		return policy.Decision{Limit: limit, RetryAfter: d.holds, ResetAfter: d.holds}
	}
	return policy.Decision{Allowed: true, Limit: limit, Remaining: d.units, ResetAfter: d.holds}
}

// changed is the policy.Decision of a policy that changes a word. What it reports is a
// number of units.
func changed(units int64) policy.Decision {
	return policy.Decision{Limit: maxUnits, Allowed: true, Remaining: units}
}

// word is a word, taken apart.
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

// holds reports whether the word still means anything.
func (w word) holds(now policy.Instant) bool { return now < w.ends() }

// ends is when it ceases to.
func (w word) ends() policy.Instant { return policy.Instant(w.until << stepBits) }

// low is how many units are left when it is time to ask for more, -1 if never.
func (w word) low() int64 {
	if w.mark == 0 {
		return -1
	}
	return lowAt(w.mark)
}

// lowAt is how many units a mark above 0 stands for: 0, 0, 1, 2, 3, 5, 7, 11, 15, 23 and so on.
func lowAt(mark uint64) int64 { return (2+int64(mark-1)&1)<<((mark-1)>>1)>>1 - 1 }

// markFor returns the highest mark that is at most units.
func markFor(units int64) uint64 {
	mark := min(2*uint64(bits.Len64(uint64(units+1))), refusing-1)
	if lowAt(mark) > units {
		mark--
	}
	return mark
}

// step is the last step that begins no later than t.
func step(t policy.Instant) uint64 { return min(uint64(max(t, 0))>>stepBits, lastStep) }

// take takes n units out of the word at now. For n == 0 it takes nothing, and looks: it is
// refused only if the word refuses every call.
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
		d.verdict = refused // also to a call that looks: see Leases.Choke
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

// wordPolicy is the policy of the engine: a call takes from the word of its key.
type wordPolicy struct{}

// Take implements [policy.Policy]. The Decision is a leaseDecision in disguise.
func (wordPolicy) Take(state uint64, now policy.Instant, n int64, _ time.Duration) (uint64, policy.Decision) {
	w := split(state)
	d := w.take(now, n)
	if n == 0 || d.verdict < taken {
		return state, d.wrap()
	}
	return w.join(), d.wrap()
}

// Choke implements [policy.Choker], except that it does not allow the call that leaves few
// units: Take does, and tells.
func (wordPolicy) Choke(state uint64, now policy.Instant) (uint64, bool) {
	w := split(state)
	if w.units == 0 || w.mark == refusing || !w.holds(now) || int64(w.units)-1 == w.low() {
		return state, false
	}
	return state - 1<<markBits, true
}

// Refund implements [policy.Refunder]. Units come back of a take only.
func (wordPolicy) Refund(state uint64, _ policy.Instant, _ int64) uint64 { return state }

// Cancel implements [policy.Refunder]: units come back to the lease that they were taken
// from, or to one that ends with it, as long as that lasts. They were paid for until then.
func (wordPolicy) Cancel(state, left uint64, _, now policy.Instant, n, _ int64) uint64 {
	w := split(state)
	if n <= 0 || w.mark == refusing || w.until != split(left).until || !w.holds(now) {
		return state
	}
	w.units = min(w.units+uint64(n), maxUnits)
	return w.join()
}

// Limit implements [policy.Policy].
func (wordPolicy) Limit() int64 { return maxUnits }

// Delays implements [policy.Policy].
func (wordPolicy) Delays() bool { return false }

// FreshAt implements [policy.Policy].
func (wordPolicy) FreshAt(state uint64) policy.Instant { return split(state).ends() }

// Reads implements [policy.Relative].
func (wordPolicy) Reads(other policy.Policy) bool {
	switch other.(type) {
	case wordPolicy, grant, refusal, inventory, seizure:
		return true
	}
	return false
}

// Carry implements [policy.Relative].
func (l wordPolicy) Carry(from policy.Policy, state uint64, _ policy.Instant) (uint64, bool) {
	return state, l.Reads(from)
}

// String implements [policy.Policy].
func (wordPolicy) String() string { return "leases" }

// grant writes a lease into a word. What is left of the one before is lost, or added
// if it was paid in the same window, ended or not. It reports what was lost.
type grant struct {
	wordPolicy
	until policy.Instant
	units int64
	mark  uint64
	add   bool
}

// Take implements [policy.Policy].
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

// refusal writes into a word without units that the key is refused for a while. It reports
// nothing.
type refusal struct {
	wordPolicy
	until policy.Instant
}

// Take implements [policy.Policy].
func (r refusal) Take(state uint64, now policy.Instant, _ int64, _ time.Duration) (uint64, policy.Decision) {
	if w := split(state); w.units == 0 || !w.holds(now) {
		state = word{until: step(r.until), mark: refusing}.join()
	}
	return state, changed(0)
}

// inventory changes nothing. It reports how many units a word has, ended or not.
type inventory struct{ wordPolicy }

// Take implements [policy.Policy].
func (inventory) Take(state uint64, _ policy.Instant, _ int64, _ time.Duration) (uint64, policy.Decision) {
	return state, changed(int64(split(state).units))
}

// seizure takes all units out of a word, or those only that have not ended. It reports how
// many.
type seizure struct {
	wordPolicy
	ended bool
}

// Take implements [policy.Policy].
func (s seizure) Take(state uint64, now policy.Instant, _ int64, _ time.Duration) (uint64, policy.Decision) {
	w, seized := split(state), int64(0)
	if w.units > 0 && (s.ended || w.holds(now)) {
		seized = int64(w.units)
		w.units, w.mark = 0, 0
		state = w.join()
	}
	return state, changed(seized)
}
