package store

import (
	"fmt"
	"time"

	"github.com/ral-limiter/ral/policy"
)

// Taken is the result of a call.
type Taken struct {
	policy.Decision
	// Before and After are the key's words before and after the call. They are equal if nothing was taken. For a
	// SlidingLog, Before is 0, and After is the number of the first unit taken, or 0.
	Before, After uint64
	// At is the time of the decision, by Redis's clock.
	At policy.Instant
	// Emptied reports whether no unit in flight may enter yet, because Redis had lost its data.
	Emptied bool
	// Exact is set by Keep. It reports whether the word is as if the call had taken only the kept units.
	Exact bool
	// Block is the effect of the key's block. RetryAfter and ResetAfter are not before its end.
	Block Block
}

// Block is the effect of a block on a call of its key.
type Block struct {
	// Refused reports whether the call was refused because the key was blocked.
	Refused bool
	// Made reports whether the limit refused the call, and this refusal blocked the key.
	Made bool
	// Left is the time for which the key is blocked from now on, or 0.
	Left time.Duration
}

// TakeAsk asks for N units of a key.
type TakeAsk struct {
	Limit    *Limit
	Key      string
	N        int64
	Patience time.Duration
	// Returns reports whether the units may come back later by Keep. The take is then written to the log beside the
	// word: see note.go.
	Returns bool
	// ID is the name of the units in flight. It must not be empty under a limit in flight.
	ID string
}

func (a *TakeAsk) noted() bool { return a.Returns && a.Limit.notes() && a.Limit.canTake(a.N) }

// found is what a script found at a key, and what it decided.
type found struct {
	word  uint64
	now   policy.Instant
	taken bool
	// count is the number of calls that took, or of units leased.
	count int64
	// block is the word of the key's block.
	block uint64
	// counted reports whether an earlier refusal of the same calls has counted for the penalty. A later one then does
	// not count.
	counted bool
}

// decide decides by the policy, and returns ErrDisagrees if the script decided otherwise. It updates found.block.
func (l *Limit) decide(name string, found *found, n int64, patience time.Duration) (Taken, error) {
	next, decision := l.policy.Take(found.word, found.now, n, patience)
	blocked := l.rule.blockedFor(found.block, found.now) > 0
	if (decision.Allowed && !blocked) != found.taken && n != 0 {
		return Taken{}, fmt.Errorf("%w (%v, %s: word %d at %d, %d units, patience %v: the script says %t)",
			ErrDisagrees, l.policy, shown(name), found.word, found.now, n, patience, found.taken)
	}
	taken := Taken{Decision: decision, Before: found.word, After: next, At: found.now}
	if found.block != 0 || !decision.Allowed && l.rule.Refusals > 0 {
		l.obey(&taken, found, n)
	}
	return taken, nil
}

// obey applies the key's block to a decision: see rule.obey.
func (l *Limit) obey(t *Taken, found *found, n int64) {
	found.block = l.rule.obey(t, found.block, n, !found.counted, func() policy.Decision { return l.standing(found.word, found.now).Decision })
}

// standing returns the decision of a look at a word.
func (l *Limit) standing(word uint64, now policy.Instant) Taken {
	_, decision := l.policy.Take(word, now, 0, 0)
	return Taken{Decision: decision, Before: word, After: word, At: now}
}

// found reads {word, time, taken}, and the word of the key's block if that follows.
func (r *answer) found(limit *Limit) (f found, err error) {
	r.expect(3, 4)
	word, us, taken := r.word()
	f = found{word: word, now: instant(us), taken: taken > 0, count: taken}
	if r.err == nil && len(r.parts) > 0 {
		f.block = r.block(limit.blockName(r.name))
	}
	return f, r.err
}

// foundSet is a parsed logReply or inFlightReply, in microseconds.
type foundSet struct {
	used, us int64
	taken    bool
	block    uint64
	// start, newest and first are of a SlidingLog.
	start, newest, first int64
	// rest, reset and emptied are of units in flight.
	rest, reset int64
	emptied     bool
}

func (l *Limit) readSet(answer *answer) (found foundSet) {
	// An answer of 3 parts means that the value is no log.
	if l.log != nil && answer.err == nil && len(answer.parts) == 3 {
		member := answer.next()
		text, _ := member.ToString()
		answer.err = notAWord(answer.name, text)
	}
	answer.expect(6, 7)
	found.used, found.us, found.taken = answer.number(), answer.number(), answer.number() == 1
	found.start, found.newest, found.first = answer.number(), answer.number(), answer.number()
	found.rest, found.reset, found.emptied = found.start, found.newest, found.first == 1
	if answer.err == nil && len(answer.parts) > 0 {
		found.block = answer.block(l.blockName(answer.name))
	}
	return found
}

// obey applies a key's block to the limit's decision, taken, and returns the next word of the block. block is the word
// of the block, and standing returns the decision of a look. counts reports whether a refusal counts for the penalty.
func (r rule) obey(taken *Taken, block uint64, n int64, counts bool, standing func() policy.Decision) uint64 {
	if left := r.blockedFor(block, taken.At); left > 0 {
		retry := taken.RetryAfter
		if taken.Allowed && n != 0 {
			// The call took nothing.
			taken.Decision = standing()
		}
		taken.Allowed, taken.Remaining, taken.Wait, taken.After = false, 0, 0, taken.Before
		taken.RetryAfter, taken.ResetAfter = max(retry, left), max(taken.ResetAfter, left)
		taken.Block = Block{Refused: true, Left: left}
		return block
	}
	if r.Refusals == 0 || !counts || taken.Allowed || n == 0 || taken.RetryAfter == policy.Never || taken.Emptied {
		return block
	}
	next, decision := r.Take(block, taken.At, 1, 0)
	if decision.ResetAfter > 0 {
		taken.Block = Block{Made: true, Left: decision.ResetAfter}
		taken.RetryAfter, taken.ResetAfter = max(taken.RetryAfter, decision.ResetAfter), max(taken.ResetAfter, decision.ResetAfter)
	}
	return next
}
