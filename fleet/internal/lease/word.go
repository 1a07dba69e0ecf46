package lease

import (
	"fmt"
	"math/bits"
	"time"

	"github.com/ral-limiter/ral/policy"
)

// A key's word in the engine says until when it holds (in steps of 2^17 ns, rounded
// down), how many units of the lease are left, and at how many of them it is time to
// ask for more; or that the key is refused until then.
//
// The steps cost a lease of 10 ms, the shortest there is, at most 1.3% of its time, and
// last 9 years. Time stands still then: leases that would end later are not kept.
const (
	stepBits = 17
	markBits = 4
	unitBits = 18

	maxUnits = 1<<unitBits - 1
	lastStep = 1<<(63-unitBits-markBits) - 2 // MaxWord is above all words of it

	// refusing stands in place of a mark.
	refusing = 1<<markBits - 1
)

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
	return 1<<(w.mark-1) - 1
}

// markFor returns the highest mark that is at most units.
func markFor(units int64) uint64 {
	return min(uint64(bits.Len64(uint64(units+1))), refusing-1)
}

// step is the last step that begins no later than t.
func step(t policy.Instant) uint64 { return min(uint64(max(t, 0))>>stepBits, lastStep) }

// local is the policy of the engine. Its decisions are for this package:
//
//   - Allowed: units of the lease were taken. Wait is 1 if it is time to ask for more.
//   - refused with a RetryAfter: so the bank said a while ago; ask again then.
//   - refused without: there are too few units here; ask.
//
// Remaining is how many units are left, ResetAfter until when the word holds. Limit is
// always ours, which tells these answers from those of an engine that has no room.
type local struct{}

const ours = 1

// Take implements [policy.Policy].
func (local) Take(state uint64, now policy.Instant, n int64, _ time.Duration) (uint64, policy.Decision) {
	d := policy.Decision{Limit: ours, Allowed: n == 0}
	w := split(state)
	if !w.holds(now) {
		return state, d
	}
	left := int64(w.units)
	d.Remaining, d.ResetAfter = left, time.Duration(w.ends()-now)
	switch {
	case n == 0:
	case w.mark == refusing:
		d.RetryAfter = d.ResetAfter
	case n > 0 && n <= left:
		d.Allowed, d.Remaining = true, left-n
		if low := w.low(); left > low && left-n <= low {
			d.Wait = 1
		}
		w.units = uint64(left - n)
		return w.join(), d
	}
	return state, d
}

// Limit implements [policy.Policy].
func (local) Limit() int64 { return ours }

// Delays implements [policy.Policy].
func (local) Delays() bool { return false }

// FreshAt implements [policy.Policy].
func (local) FreshAt(state uint64) policy.Instant { return split(state).ends() }

// Reads implements [policy.Relative].
func (local) Reads(other policy.Policy) bool {
	switch other.(type) {
	case local, grant, refusal, inventory, seizure:
		return true
	}
	return false
}

// Carry implements [policy.Relative].
func (l local) Carry(from policy.Policy, state uint64, _ policy.Instant) (uint64, bool) {
	return state, l.Reads(from)
}

// String implements [policy.Policy].
func (local) String() string { return "leases" }

// grant writes a lease into a word. What is left of the one before is lost, or added
// if it was paid in the same window, ended or not. The decision's Remaining is what was
// lost.
type grant struct {
	local
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
	return next.join(), policy.Decision{Limit: ours, Allowed: true, Remaining: lost}
}

// refusal writes into a word without units that the key is refused for a while.
type refusal struct {
	local
	until policy.Instant
}

// Take implements [policy.Policy].
func (r refusal) Take(state uint64, now policy.Instant, _ int64, _ time.Duration) (uint64, policy.Decision) {
	if w := split(state); w.units == 0 || !w.holds(now) {
		state = word{until: step(r.until), mark: refusing}.join()
	}
	return state, policy.Decision{Limit: ours, Allowed: true}
}

// inventory changes nothing. The decision's Remaining is how many units a word has, ended or
// not.
type inventory struct{ local }

// Take implements [policy.Policy].
func (inventory) Take(state uint64, _ policy.Instant, _ int64, _ time.Duration) (uint64, policy.Decision) {
	return state, policy.Decision{Limit: ours, Allowed: true, Remaining: int64(split(state).units)}
}

// seizure takes all units out of a word, or those only that have not ended. The
// decision's Remaining is how many.
type seizure struct {
	local
	ended bool
}

// Take implements [policy.Policy].
func (s seizure) Take(state uint64, now policy.Instant, _ int64, _ time.Duration) (uint64, policy.Decision) {
	w, d := split(state), policy.Decision{Limit: ours, Allowed: true}
	if w.units > 0 && (s.ended || w.holds(now)) {
		d.Remaining = int64(w.units)
		w.units, w.mark = 0, 0
		state = w.join()
	}
	return state, d
}

// String says what a word means, for tests.
func (w word) String() string {
	return fmt.Sprintf("%d units until %v, low at %d, refusing %t", w.units, time.Duration(w.ends()), w.low(), w.mark == refusing)
}
