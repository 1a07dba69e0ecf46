// Package part decides on a key by a server's part of a limit. It is arithmetic on values, without
// locks, clocks and keys: package share has those. [Of] divides a limit, a [State] is a key's. Start
// reading at [Part.Take].
package part

import (
	"math"
	"math/bits"
	"time"

	"github.com/ral-limiter/ral/internal/core/shape"
	"github.com/ral-limiter/ral/policy"
)

// ticks in a nanosecond, in the words of paced policies.
const ticks = 16

// Whole is an undivided limit. It does not change.
type Whole struct {
	Policy policy.Policy
	// Memory is the time in which a full key drains.
	Memory time.Duration
	// shape is zero for a log.
	shape shape.Shape
}

// NewWhole returns the whole of a limit.
func NewWhole(limit policy.Policy) *Whole {
	whole := &Whole{Policy: limit, shape: shapeOf(limit)}
	if whole.shape.Kind == shape.AlignedWindow {
		whole.Memory = whole.shape.Per
		return whole
	}
	start := whole.Start()
	whole.Memory = time.Duration(limit.FreshAt(charged(limit, 0, start, full(limit))) - start)
	return whole
}

func shapeOf(limit policy.Policy) (form shape.Shape) {
	if shaped, ok := limit.(shape.Shaped); ok {
		form = shaped.Shape()
	}
	return form
}

// Start is an instant late enough for a window to have opened, or a store to be full.
func (w *Whole) Start() policy.Instant {
	switch w.shape.Kind {
	case shape.Funnel, shape.Queue:
		return 1
	case shape.Bursty:
		return min(policy.Instant(w.shape.Depth/ticks)+2, policy.Instant(w.shape.End/2))
	}
	return policy.Instant(maxPeriod) + 1
}

// Word returns the word of a key with used units. A log has no word in Redis.
func (w *Whole) Word(used int64, now policy.Instant) uint64 { return charged(w.Policy, 0, now, used) }

// Refund returns a word after all servers gave back as many units as one of them, n.
func (w *Whole) Refund(word uint64, now policy.Instant, n int64, servers int) uint64 {
	all := int64(math.MaxInt64)
	if times := max(int64(servers), 1); n <= all/times {
		all = n * times
	}
	return w.Policy.(policy.Refunder).Refund(word, now, all)
}

// Part is a server's part of a limit. It does not change.
type Part struct {
	Policy policy.Policy
	// Servers is the number of servers that divide the limit.
	Servers int
	whole   *Whole
	// shape is zero for an AtMost, the share of a log.
	shape shape.Shape
	per   time.Duration
}

// New returns a server's part, with windows bound to the wall clock counted from zero.
func New(whole *Whole, servers int, zero time.Time) (*Part, error) {
	divided, err := Of(whole.Policy, servers)
	if err != nil {
		return nil, err
	}
	if anchored, ok := divided.(policy.Anchored); ok {
		divided = anchored.Anchor(zero)
	}
	part := &Part{Policy: divided, Servers: servers, whole: whole, shape: shapeOf(divided)}
	if part.shape.Kind == shape.FixedWindow {
		part.per = time.Duration(part.shape.Length * part.shape.Step)
	}
	return part, nil
}

// State is a key's part. The zero State is unused.
type State struct {
	// Word is a word of the part's policy.
	Word uint64
	// Unpaid is the admitted units not yet charged to Redis.
	Unpaid int64
	// Unknown is since when the key of a window was unknown, or 0: see withheld.
	Unknown UnknownSince
}

// UnknownSince is the instant at which an unknown key's part begins to return. It is negated if the
// part began with no unit.
type UnknownSince int64

// Known is what a server knows beside a key's state. Zero instants are never.
type Known struct {
	HasWord bool
	// Word is Redis's word of the key, if HasWord.
	Word uint64
	// Said is when Redis said it, by its clock.
	Said policy.Instant
	// RedisNow is the present by Redis's clock.
	RedisNow policy.Instant
	// Heard is when Redis answered last, about any key.
	Heard policy.Instant
	// Lost is when a key with debts was evicted last.
	Lost policy.Instant
	// Start is when the server started.
	Start policy.Instant
	// Full has a key without a word begin unused. Otherwise its units return from Heard on.
	Full bool
}

// Begin returns the state by which a call of n units is decided, which is no less used than Redis
// said. kept reports whether the key has a state.
func (p *Part) Begin(state State, kept bool, n int64, known Known, now policy.Instant) State {
	// Drained units are not owed, whatever is added below.
	state.Unpaid = p.Owed(state, now)
	memory := policy.Instant(p.whole.Memory)
	switch {
	case known.HasWord && known.RedisNow < known.Said+memory:
		state.Word, state.Unknown = p.raise(state.Word, known.Word, known.RedisNow, now), 0
	case kept:
	case known.Full && known.Heard != 0 && (known.Lost == 0 || now >= known.Lost+memory):
	default:
		state.Word, state.Unknown = p.usedUp(n, known.Heard, known.Lost, known.Start)
	}
	return state
}

// Taken is the result of a take.
type Taken struct {
	policy.Decision
	N       int64
	Instant policy.Instant
	// Basis is the word that decided: before, with the units withheld from the key.
	Basis         uint64
	before, after uint64
	// charged means that after is not the word of the policy's Take.
	charged bool
}

// Take takes n units of a state that Begin returned. Units withheld from the key count as used.
func (p *Part) Take(state State, n int64, patience time.Duration, now policy.Instant) (State, Taken) {
	taken := Taken{N: n, Instant: now, before: state.Word}
	withheld := p.withheld(n, state.Unknown, now)
	taken.Basis = charged(p.Policy, state.Word, now, withheld)
	taken.after, taken.Decision = p.Policy.Take(taken.Basis, now, n, patience)
	switch {
	case !taken.Allowed || n == 0:
		return state, taken
	case withheld > 0 && taken.Wait == 0:
		taken.after, taken.charged = charged(p.Policy, state.Word, now, n), true
	default:
		state.Unknown = 0
	}
	state.Word = taken.after
	state.Unpaid += n
	return state, taken
}

// Keep leaves n units of a take used and gives the others back, as far as later calls keep what they
// were promised.
func (p *Part) Keep(state State, t Taken, n int64, now policy.Instant) State {
	used := p.Used(state.Word, now)
	state.Word = p.without(state.Word, t, t.N-max(n, 0), now)
	back := used - p.Used(state.Word, now)
	state.Unpaid = max(min(state.Unpaid, used)-back, 0)
	return state
}

// without returns a word without the last give units of the take.
func (p *Part) without(word uint64, taken Taken, give int64, now policy.Instant) uint64 {
	// Other returns are unknown.
	undone := int64(math.MaxInt64)
	if word == taken.after {
		if give == taken.N {
			return taken.before
		}
		next, decision := p.Policy.Take(taken.before, taken.Instant, taken.N-give, math.MaxInt64)
		if decision.Allowed && decision.Wait == taken.Wait && !taken.charged {
			// The word is as after a take of fewer units.
			return next
		}
		undone = 0
	}
	return p.Policy.(policy.Refunder).Cancel(word, taken.after, taken.Instant, now, give, undone)
}

// Refund gives n units back, or charges -n.
func (p *Part) Refund(state State, n int64, now policy.Instant) State {
	state.Word = p.Policy.(policy.Refunder).Refund(state.Word, now, n)
	state.Unpaid = max(state.Unpaid-max(n, -math.MaxInt64/2), 0)
	return state
}

// Carry converts the state of another part. The larger stays used: as many units, or as large a part.
// Without the other part the unpaid units count from now on.
func (p *Part) Carry(from *Part, state State, now policy.Instant) State {
	if from == nil {
		state.Word = charged(p.Policy, 0, now, state.Unpaid)
		return state
	}
	state.Unpaid = from.Owed(state, now)
	next, ok := p.Policy.(policy.Relative).Carry(from.Policy, state.Word, now)
	switch {
	case !ok:
		next = charged(p.Policy, 0, now, full(p.Policy))
	case paced(p.shape):
		next = max(next, state.Word)
	default:
		used, limit := from.Used(state.Word, now), from.Policy.Limit()
		next = charged(p.Policy, next, now, portion(p.Policy.Limit(), used, limit)-p.Used(next, now))
	}
	state.Word = next
	return state
}

// Used returns the units that count, rounded up, with debts as far as the policy tells.
func (p *Part) Used(word uint64, now policy.Instant) int64 {
	_, decision := p.Policy.Take(word, now, 0, 0)
	if !paced(p.shape) {
		return decision.Limit - decision.Remaining
	}
	return portion(ticks, int64(max(decision.ResetAfter, 0)), int64(p.shape.Interval))
}

// Owed returns the unpaid units that still count.
func (p *Part) Owed(state State, now policy.Instant) int64 {
	if state.Unpaid == 0 {
		return 0
	}
	return min(state.Unpaid, p.Used(state.Word, now))
}

// Fresh reports whether the state means nothing any more.
func (p *Part) Fresh(state State, now policy.Instant) bool {
	return p.Policy.FreshAt(state.Word) <= now
}

// usedUp returns the initial word of an unknown key whose call asks for n units: all units except
// a first call's are used at Redis's last answer. If the table evicted a key with debts later,
// all units are used at that time. start is the server's start.
func (p *Part) usedUp(n int64, heard, lost, start policy.Instant) (word uint64, unknown UnknownSince) {
	since, units := heard, full(p.Policy)-p.firstCall(n)
	unknown = UnknownSince(since)
	if heard <= lost {
		since, units = max(lost, start), full(p.Policy)
		unknown = -UnknownSince(since)
	}
	if paced(p.shape) {
		return charged(p.Policy, 0, since, units), 0
	}
	return 0, unknown
}

// firstCall returns how many of n units the first call of an unknown key finds at least: up to the
// share. A Bursty grants any call while a unit is left.
func (p *Part) firstCall(n int64) int64 {
	if p.shape.Kind == shape.Bursty {
		return 1
	}
	return min(max(n, 1), p.Policy.Limit())
}

// withheld returns the units of a window that an unknown key must not use yet: share x (memory - time
// since the key was unknown) / memory, rounded up. The first call of n units finds room, and a
// second does not.
func (p *Part) withheld(n int64, unknown UnknownSince, now policy.Instant) int64 {
	if unknown == 0 {
		return 0
	}
	units, maxWithheld, since := full(p.Policy)-1, full(p.Policy)-p.firstCall(n), policy.Instant(unknown)
	if unknown < 0 {
		units, maxWithheld, since = units+1, units+1, -since
	}
	memory := p.whole.Memory
	left := max(memory-time.Duration(now-since), 0)
	return min(portion(units, int64(min(left, memory)), int64(memory)), maxWithheld)
}

// raise returns a word at least as used as redisWord, the undivided limit's word at redisNow. A paced
// word is a debt of time, the same part of the share as of the limit. Of a window each server counts
// its part, rounded up.
func (p *Part) raise(word, redisWord uint64, redisNow, now policy.Instant) uint64 {
	_, decision := p.whole.Policy.Take(redisWord, redisNow, 0, 0)
	if paced(p.whole.shape) {
		if decision.ResetAfter <= 0 {
			return word
		}
		drained := min(uint64(now)+uint64(decision.ResetAfter), policy.MaxWord/ticks)
		return max(word, drained*ticks)
	}
	more := portion(p.Policy.Limit(), decision.Limit-decision.Remaining, decision.Limit) - p.Used(word, now)
	if more <= 0 {
		return word
	}
	opened := now
	if p.per > 0 && p.Policy.FreshAt(word) <= now {
		word = 0
		// The window ends with Redis's.
		opened = min(now, max(now+policy.Instant(decision.ResetAfter-p.per), 1))
	}
	return charged(p.Policy, word, opened, more)
}

// paced reports whether words are the tick at which all will have drained.
func paced(form shape.Shape) bool {
	return form.Kind == shape.Funnel || form.Kind == shape.Queue || form.Kind == shape.Bursty
}

// portion returns whole*some/all, rounded up.
func portion(whole, some, all int64) int64 {
	high, low := bits.Mul64(uint64(whole), uint64(some))
	result, rest := bits.Div64(high, low, uint64(all))
	if rest > 0 {
		result++
	}
	return int64(result)
}

// full is the least number of units after which no call is admitted.
func full(limit policy.Policy) int64 {
	if form := shapeOf(limit); form.Kind == shape.Bursty {
		// A call passes while nothing is owed.
		return form.Capacity + 1
	}
	return limit.Limit()
}

func charged(limit policy.Policy, word uint64, now policy.Instant, n int64) uint64 {
	if n <= 0 {
		return word
	}
	return limit.(policy.Refunder).Refund(word, now, -n)
}
