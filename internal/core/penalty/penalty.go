// Package penalty keeps a key's block, blocks in a row and late refusals in a word. A [Rule] is
// a policy.Policy: a take counts a refusal, and is refused while the key is blocked.
package penalty

import (
	"fmt"
	"time"

	"github.com/ral-limiter/ral/policy"
)

// Text is the String of every policy here.
const Text = "blocked keys 1"

const (
	// Longest is the longest time of a rule, and of a block: 4 years.
	Longest = 4 * 365 * 24 * time.Hour
	// MostRefusals is the most refusals that a rule can count.
	MostRefusals = 1 << countBits
	// MostDoublings is how often the time of a block can double.
	MostDoublings = 1<<levelBits - 1
	// Step is the precision of a window's opening: a window exceeds Within by less than Step.
	Step = 1 << stepBits
)

// A word is of two kinds, by the top of its 63 bits. The next four are the blocks in a row.
//
//	0 level:4 until:58            a key that is or was blocked until that nanosecond
//	1 level:4 count:10 opened:48  refusals in a window that opened at that Step
//
// Time ends 9 years after instant 0: no key is blocked from then on.
const (
	levelBits = 4
	countBits = 10
	stepBits  = 10
	timeBits  = 58

	levelShift = timeBits
	kindBit    = 1 << (timeBits + levelBits)
	timeMask   = 1<<timeBits - 1
	// The count has as many bits as an instant has in Steps.
	countShift = timeBits - countBits
	openedMask = 1<<countShift - 1

	// end keeps every word below policy.MaxWord.
	end = policy.Instant(timeMask) - 32*Step
)

// Rule is a policy by which refusals block a key. The zero Rule serves a [Lock] alone.
type Rule struct {
	// Refusals within Within of the first block the key.
	Refusals int64
	Within   time.Duration
	// For is the length of the first block. Each further doubles, up to Max.
	For, Max time.Duration
	// After Forget, at least Within, without a block or refusal the next block lasts For again.
	Forget time.Duration
}

// FillIn sets a zero Max to For, and a zero Forget to the longer of Max and Within.
func (r *Rule) FillIn() {
	if r.Max == 0 {
		r.Max = r.For
	}
	if r.Forget == 0 {
		r.Forget = max(r.Max, r.Within)
	}
}

// Check returns a *policy.FieldError if a rule that counts refusals, with defaults filled in, is
// not acceptable. of has the rule as its field Penalty.
func (r *Rule) Check(of string) error {
	bad := func(field string, value any, want string) error {
		return &policy.FieldError{Of: of, Field: "Penalty." + field, Value: value, Want: want}
	}
	switch {
	case r.Refusals < 1 || r.Refusals > MostRefusals:
		return bad("Refusals", r.Refusals, fmt.Sprintf("1 to %d", MostRefusals))
	case r.Within <= 0 || r.Within > Longest:
		return bad("Within", r.Within, fmt.Sprintf("1ns to %v", Longest))
	case r.For <= 0 || r.For > Longest:
		return bad("For", r.For, fmt.Sprintf("1ns to %v", Longest))
	case r.Max < r.For || r.Max > Longest || (r.Max-1)>>MostDoublings >= r.For:
		return bad("Max", r.Max, fmt.Sprintf("For, which is %v, to %d times as long, at most %v, or 0 for For", r.For, 1<<MostDoublings, Longest))
	case r.Forget < r.Within || r.Forget > Longest:
		return bad("Forget", r.Forget, fmt.Sprintf("Within, which is %v, to %v, or 0 for the longer of Max and Within", r.Within, Longest))
	}
	return nil
}

type state struct {
	// until is the instant at which the last block ends or ended, 0 if refusals were counted since.
	until policy.Instant
	// level is the number of blocks in a row.
	level int64
	// count is the number of refusals in the window, 0 if there is no window.
	count  int64
	opened policy.Instant
}

func read(word uint64) (state state) {
	state.level = int64(word >> levelShift & (1<<levelBits - 1))
	if word&kindBit == 0 {
		state.until = policy.Instant(word & timeMask)
		return state
	}
	state.count = int64(word >> countShift & (1<<countBits - 1))
	state.opened = policy.Instant(word&openedMask) * Step
	return state
}

func (s state) word() uint64 {
	word := uint64(s.level) << levelShift
	if s.count == 0 {
		return word | uint64(s.until)
	}
	return word | kindBit | uint64(s.count)<<countShift | uint64(s.opened/Step)
}

// BlockWord returns the word of a key that is or was blocked until an instant, times in a row.
func BlockWord(times int64, until policy.Instant) uint64 {
	return state{level: min(times, MostDoublings), until: min(until, end)}.word()
}

// CountWord returns the word of a key with count refusals since that Step, after times blocks.
func CountWord(times, count, step int64) uint64 {
	return state{level: min(times, MostDoublings), count: min(count, MostRefusals-1), opened: min(policy.Instant(min(step, openedMask))*Step, (end+Step-1)/Step*Step)}.word()
}

// counting returns the part of a state that counts at now: until is after now, or 0.
func (r *Rule) counting(s state, now policy.Instant) state {
	if s.count == 0 {
		switch {
		case s.until > now:
			return s
		case now >= s.until+policy.Instant(r.Forget):
			return state{}
		}
		return state{level: s.level}
	}
	if now < s.opened+policy.Instant(r.Within) {
		return s
	}
	if now >= s.opened+policy.Instant(r.Forget) {
		return state{}
	}
	return state{level: s.level}
}

// Take implements policy.Policy: it counts n refusals, unless the key is blocked. Remaining is
// the refusals left until it is, ResetAfter the time until the block ends, or 0.
func (r *Rule) Take(word uint64, now policy.Instant, n int64, _ time.Duration) (next uint64, decision policy.Decision) {
	now = min(max(now, 0), end)
	decision.Limit = r.Limit()
	s := r.counting(read(word), now)
	if left := time.Duration(s.until - now); left > 0 {
		decision.Allowed = n == 0
		decision.ResetAfter = left
		if decision.RetryAfter = left; decision.Allowed {
			decision.RetryAfter = 0
		}
		if n < 0 || n > decision.Limit {
			decision.RetryAfter = policy.Never
		}
		return word, decision
	}
	switch {
	case n < 0 || n > decision.Limit:
		decision.RetryAfter = policy.Never
		return word, decision
	case n == 0 || r.Refusals == 0:
		decision.Allowed, decision.Remaining = true, max(decision.Limit-s.count, 0)
		return word, decision
	}
	if s.count == 0 {
		s.opened = (now + Step - 1) / Step * Step
	}
	decision.Allowed = true
	if s.count += n; s.count < r.Refusals {
		decision.Remaining = r.Refusals - s.count
		return s.word(), decision
	}
	decision.ResetAfter = min(r.length(s.level), time.Duration(end-now))
	s = state{until: now + policy.Instant(decision.ResetAfter), level: min(s.level+1, MostDoublings)}
	return s.word(), decision
}

// length returns the length of a block after level in a row.
func (r *Rule) length(level int64) time.Duration {
	if r.For > r.Max>>level {
		return r.Max
	}
	return r.For << level
}

// FreshAt implements policy.Policy. It is over Firm from now exactly while the key is blocked.
func (r *Rule) FreshAt(word uint64) policy.Instant {
	switch state := read(word); {
	case word == 0:
		return 0
	case state.count == 0:
		return state.until + policy.Instant(r.Firm())
	case state.level == 0:
		return state.opened + policy.Instant(r.Within)
	default:
		return state.opened + policy.Instant(r.Forget)
	}
}

// Firm tells blocked keys from others: see FreshAt.
func (r *Rule) Firm() time.Duration { return r.Forget + Step }

// Limit implements policy.Policy.
func (r *Rule) Limit() int64 { return max(r.Refusals, 1) }

// Counts reports whether refusals are counted at all.
func (r *Rule) Counts() bool { return r.Refusals > 0 }

// Delays implements policy.Policy.
func (r *Rule) Delays() bool { return false }

func (r *Rule) String() string { return Text }

// Reads implements policy.Relative.
func (r *Rule) Reads(other policy.Policy) bool {
	switch other.(type) {
	case *Rule, Lock:
		return true
	}
	return false
}

// Carry implements policy.Relative.
func (r *Rule) Carry(from policy.Policy, word uint64, _ policy.Instant) (next uint64, ok bool) {
	return word, r.Reads(from)
}

// Lock is a policy: a take blocks the key for For, unless it is already blocked for longer.
type Lock struct {
	*Rule
	// For is at most Longest.
	For time.Duration
}

// Take implements policy.Policy. It is refused if time ends before the block would.
func (l Lock) Take(word uint64, now policy.Instant, n int64, _ time.Duration) (next uint64, decision policy.Decision) {
	now = min(max(now, 0), end)
	decision.Limit = l.Limit()
	s := l.counting(read(word), now)
	until := now + policy.Instant(l.For)
	switch {
	case n == 0:
		decision.Allowed = true
		return word, decision
	case n != 1 || until > end:
		decision.RetryAfter = policy.Never
		return word, decision
	}
	decision.Allowed = true
	return state{until: max(s.until, until), level: s.level}.word(), decision
}

var (
	_ policy.Relative = (*Rule)(nil)
	_ policy.Policy   = Lock{}
)
