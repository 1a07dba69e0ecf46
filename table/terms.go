package table

import (
	"math"
	"sync/atomic"
	"time"

	"github.com/ral-limiter/ral/internal/core/rewrites"
	"github.com/ral-limiter/ral/internal/core/shape"
	"github.com/ral-limiter/ral/policy"
)

// epochBit tells the words of successive policies apart: every other policy has it. Policies never
// see it.
const epochBit = 1 << 63

// Terms hold the policy by which a table's words are read, and translate the words of its
// predecessor. They are immutable; a change of policy makes new terms. Any number of goroutines may
// use them.
//
// To use a word: find the entry, load the terms, load the word, and check that the word was written
// under them or that they have not changed. View.Read does all except the first, in this order, on
// which the package comment's argument rests. The word was then left under these terms or the terms
// before, and a swap of the word succeeds only while that is so.
type Terms struct {
	Policy policy.Policy
	// Choker, Refunder and Restorer are nil if the policy is none.
	Choker   policy.Choker
	Refunder policy.Refunder
	Restorer policy.Restorer
	// Delays is the policy's.
	Delays bool
	// OnCredit is nil if Remaining counts up to the Limit.
	OnCredit shape.OnCredit
	// EpochBit is or-ed to each word left under these terms.
	EpochBit uint64
	// Epoch is the number of policies before these terms.
	Epoch uint64

	// decider is Policy, or nil if Policy is none.
	decider decider
	// relative is Policy, or nil if Policy has no family.
	relative policy.Relative
	// before is the policy before these terms, whose words may remain, or nil for the first terms.
	before policy.Policy
	// since is the instant at which before was replaced.
	since policy.Instant
	// by is the change that made these terms, or nil for the first terms.
	by *Change
	// Occupier is nil if the policy is none. Here it moves no field that each call reads.
	Occupier policy.Occupier
	// LayoutMask has the bits in which two words of an Occupier must agree for a release to bring back the word
	// before its take: those that name the layout, and the epoch's. They are all bits, which agree never, if the
	// policy tells none.
	LayoutMask uint64
	// Rewrites are the changes that translated words of an Occupier.
	Rewrites rewrites.Log
	// left tells in which slots of the nursery a key has left since these terms were made: see
	// View.Successor. The first terms have none.
	left []atomic.Bool
}

func newTerms(limit policy.Policy, bit uint64, before policy.Policy, by *Change) *Terms {
	terms := &Terms{Policy: limit, Delays: limit.Delays(), EpochBit: bit, before: before, by: by}
	terms.Choker, _ = limit.(policy.Choker)
	terms.decider, _ = limit.(decider)
	terms.OnCredit, _ = limit.(shape.OnCredit)
	terms.Refunder, _ = limit.(policy.Refunder)
	terms.Restorer, _ = limit.(policy.Restorer)
	terms.Occupier, _ = limit.(policy.Occupier)
	if terms.LayoutMask = math.MaxUint64; terms.Occupier != nil {
		if l, ok := limit.(interface{ LayoutMask() uint64 }); ok {
			terms.LayoutMask = l.LayoutMask() | epochBit
		}
	}
	terms.relative, _ = limit.(policy.Relative)
	return terms
}

// decider is implemented by policies of package policy. A result in parts stays in registers. A
// Decision is written to memory, and read from it in pairs of words before they have arrived there.
type decider interface {
	Decide(word uint64, now policy.Instant, n int64, patience time.Duration) (
		next uint64, allowed bool, limit, remaining int64, wait, retryAfter, resetAfter time.Duration,
	)
}

// Take is Policy.Take with the decision in decision, up to 15 ns faster.
func (t *Terms) Take(state uint64, now policy.Instant, n int64, patience time.Duration, decision *policy.Decision) (next uint64) {
	if t.decider == nil {
		next, *decision = t.Policy.Take(state, now, n, patience)
		return next
	}
	next, decision.Allowed, decision.Limit, decision.Remaining, decision.Wait, decision.RetryAfter, decision.ResetAfter = t.decider.Decide(state, now, n, patience)
	return next
}

// State translates a word of an entry into a word of the policy. A word of the policy before is
// translated as it stood when that policy was replaced, whenever it is read. ok is false for the
// tombstone: the key must be looked up again.
func (t *Terms) State(word uint64) (state uint64, ok bool) {
	state = word &^ epochBit
	switch {
	case state > policy.MaxWord:
		return 0, word == tentative
	case state == 0 || state|t.EpochBit == word:
		return state, true
	}
	// Left under the policy before. Change has checked that both are of the same family.
	state, _ = t.relative.Carry(t.before, state, t.since)
	return min(state, policy.MaxWord), true
}

// Current reports whether a word was left under these terms.
func (t *Terms) Current(word uint64) bool {
	return word&epochBit == t.EpochBit && word&^epochBit <= policy.MaxWord
}

// ReadsWordsOf reports whether other can read and write the words of these terms for a call.
func (t *Terms) ReadsWordsOf(other policy.Policy) bool {
	return t.relative != nil && t.relative.Reads(other)
}

// Change requests another policy from the writer: see ChangeCommand.
type Change struct {
	policy policy.Policy
	now    policy.Instant
	answer chan ChangeResult
	given  atomic.Bool
}

// ChangeResult is the result of a Change.
type ChangeResult int

const (
	// ChangeMade: the policy applies to every call that begins from here on.
	ChangeMade ChangeResult = iota
	// ChangeLater: the previous change has not reached all keys. Ask again.
	ChangeLater
	// ChangeRefused: the policy is of another family.
	ChangeRefused
)

// NewChange returns a change to p. The change takes effect at the later of now and Command.Begin.
func NewChange(p policy.Policy, now policy.Instant) *Change {
	return &Change{policy: p, now: now, answer: make(chan ChangeResult, 1)}
}

// Answer returns the channel on which the result is sent once.
func (c *Change) Answer() <-chan ChangeResult { return c.answer }

func (c *Change) give(result ChangeResult) {
	if c.given.CompareAndSwap(false, true) {
		c.answer <- result
	}
}

// MadeBy reports whether change c made these terms.
func (t *Terms) MadeBy(c *Change) bool { return t.by == c }

// CanReplace reports whether p may replace the policy of these terms.
func (t *Terms) CanReplace(p policy.Policy) bool {
	related, ok := p.(policy.Relative)
	if ok {
		_, ok = related.Carry(t.Policy, 0, 0)
	}
	return ok
}

// Change replaces the policy. Callers translate the words that they meet. The writer replaces all
// entries and rebuilds the index as after a crash.
func (t *Table[K]) Change(change *Change) {
	t.fault("change: begin")
	now := t.terms.Load()
	switch {
	case change.given.Load():
		// The change was answered already, and the policy may have changed again since.
		return
	case now.by == change: // carried out by a writer that died before it could answer
	case t.changing:
		change.give(ChangeLater)
		return
	case !now.CanReplace(change.policy):
		change.give(ChangeRefused)
		return
	default:
		t.changing = true
		t.stepPoint("change: begun")
		next := newTerms(change.policy, now.EpochBit^epochBit, now.Policy, change)
		next.Epoch, next.since, next.left = now.Epoch+1, change.now, make([]atomic.Bool, len(t.nursery))
		if next.Rewrites = now.Rewrites; next.Occupier != nil {
			next.Rewrites = next.Rewrites.Add(next.Epoch, next.since, next.before, next.relative)
		}
		t.terms.Store(next)
		t.fault("change: made")
		t.Recover()
	}
	change.give(ChangeMade)
}

func (t *Table[K]) finishChange() {
	t.stepPoint("finishChange: all entries")
	t.fault("change: over")
	t.changing = false
}

// land ends the tentative stage of an entry after its second look.
func (t *Table[K]) land(entry *Entry[K]) {
	entry.word.CompareAndSwap(tentative, t.terms.Load().EpochBit)
}

// freshAt returns the instant from which an entry with that word owes nothing.
func (t *Table[K]) freshAt(word uint64) policy.Instant {
	terms := t.terms.Load()
	state, _ := terms.State(word)
	return terms.Policy.FreshAt(state)
}
