package table

import (
	"sync/atomic"
	"weak"

	"github.com/ral-limiter/ral/policy"
)

// odd is the bit by which words of two successive policies are told apart. The
// table sets it in the words of every other one; policies never see it.
const odd = 1 << 63

// Terms are the policy by which the words of a table are read, and how to read
// those that its predecessor left. They never change; a change of policy makes new
// ones. Any number of goroutines may use them.
//
// Whoever reads a word takes the terms before it, makes sure after it that it is one of
// theirs or that they are still the same, and keeps them alive until he has advanced the
// word: see View.Read. The word was then left under these terms or the ones before.
// Should they be replaced before he is done, his swap fails once the writer has come to
// the entry: it flips the odd bit of every word before the policy can be replaced again.
//
// The replacement after that gives the bit its old value back, and the word may be
// what it was. So it waits until nobody holds terms any more that were taken before
// the first was over: the garbage collector tells. Do not keep terms in a structure,
// nor on the stack of a goroutine that waits.
type Terms struct {
	Policy policy.Policy
	// Choker is the policy's fast path, nil if it has none.
	Choker policy.Choker
	// Mark is or-ed to each word that is left under these terms.
	Mark uint64
	// Number is how often the policy had been replaced before these terms.
	Number uint64

	relative policy.Relative // the policy, nil if it is related to nobody
	before   policy.Policy   // whose words may still be met; nil if there are none
	since    policy.Instant  // when it was replaced
	by       *Change         // that made them; nil for the first ones
}

func newTerms(p policy.Policy, mark uint64, before policy.Policy, by *Change) *Terms {
	t := &Terms{Policy: p, Mark: mark, before: before, by: by}
	t.Choker, _ = p.(policy.Choker)
	t.relative, _ = p.(policy.Relative)
	return t
}

// State translates a word that was read from an entry into what the policy
// understands. One of the policy before is translated as it stood when that was
// replaced, so that it makes no difference when somebody comes to it. ok is false for
// the tombstone: look the key up again.
func (t *Terms) State(word uint64) (state uint64, ok bool) {
	state = word &^ odd
	switch {
	case state > policy.MaxWord:
		return 0, word == tentative
	case state == 0 || state|t.Mark == word:
		return state, true
	}
	// Left under the policy before. That they are related was seen to beforehand.
	state, _ = t.relative.Carry(t.before, state, t.since)
	return min(state, policy.MaxWord), true
}

// Current tells whether a word was left under these terms.
func (t *Terms) Current(word uint64) bool { return word&odd == t.Mark && word&^odd <= policy.MaxWord }

// Reads tells whether the words that these terms leave can be read, and left, by
// another policy for the length of a call.
func (t *Terms) Reads(other policy.Policy) bool { return t.relative != nil && t.relative.Reads(other) }

// Change asks the writer for another policy: see ChangeCommand.
type Change struct {
	policy policy.Policy
	at     policy.Instant
	answer chan ChangeResult
	given  atomic.Bool
}

// ChangeResult says what came of asking for another policy.
type ChangeResult int

const (
	// ChangeMade: the policy holds, for every call that begins from here on.
	ChangeMade ChangeResult = iota
	// ChangeLater: the previous change has not reached all keys yet. Ask again.
	ChangeLater
	// ChangeHeld: somebody may still be about to leave a word under the policy before
	// the present one. Ask again; runtime.GC tells the writer if it is not so.
	ChangeHeld
	// ChangeRefused: the policy is not of the family of the present one.
	ChangeRefused
)

// NewChange returns a change to p that is asked for at now. It is made then, or when
// Command.Begin says.
func NewChange(p policy.Policy, now policy.Instant) *Change {
	return &Change{policy: p, at: now, answer: make(chan ChangeResult, 1)}
}

// Answer gives the result, once.
func (c *Change) Answer() <-chan ChangeResult { return c.answer }

func (c *Change) give(r ChangeResult) {
	if c.given.CompareAndSwap(false, true) {
		c.answer <- r
	}
}

// By tells whether these terms are what came of c.
func (t *Terms) By(c *Change) bool { return t.by == c }

// May tells whether p may take over from these terms.
func (t *Terms) May(p policy.Policy) bool {
	related, ok := p.(policy.Relative)
	if ok {
		_, ok = related.Carry(t.Policy, 0, 0)
	}
	return ok
}

// Change replaces the policy. Keys are translated as callers come to them, and by
// the writer, which goes through all of them and orders them anew: it treats the
// index as after a crash.
func (t *Table[K]) Change(c *Change) {
	t.fault("change: begin")
	now := t.terms.Load()
	switch {
	case c.given.Load():
		return // who asked has gone on since, and others may have changed it again
	case now.by == c:
		// Carried out by a writer that died of it before it could say so.
	case t.changing:
		c.give(ChangeLater)
		return
	case t.held():
		c.give(ChangeHeld)
		return
	case !now.May(c.policy):
		c.give(ChangeRefused)
		return
	default:
		t.changing = true
		t.between("change: begun")
		next, before := newTerms(c.policy, now.Mark^odd, now.Policy, c), weak.Make(now)
		next.Number, next.since = now.Number+1, c.at
		t.terms.Store(next)
		t.before = before
		t.fault("change: made")
		t.Recover()
	}
	c.give(ChangeMade)
}

// changed ends a change: all words are those of the present policy. From here on
// callers take terms that have nothing to do with the policy before, so that it can
// be told who may still hold a word of it.
func (t *Table[K]) changed() {
	t.between("changed: all words")
	if now := t.terms.Load(); now.before != nil { // else a writer died of the rest
		settled := *now
		settled.before = nil
		t.during = weak.Make(now)
		t.terms.Store(&settled)
	}
	t.fault("change: over")
	t.changing = false
}

// held tells whether anybody may still hold a word that was left before the present
// policy: he took his terms before the last change was over.
func (t *Table[K]) held() bool {
	if t.holders != nil {
		return t.holders()
	}
	return t.before.Value() != nil || t.during.Value() != nil
}

// Read returns an entry's word together with the terms by which it is to be read.
// Who advances the word calls runtime.KeepAlive(terms) after that.
func (v View[K]) Read(e *Entry[K]) (word uint64, terms *Terms) {
	for {
		terms = v.t.terms.Load()
		v.t.between("read: the terms")
		word = e.word.Load()
		v.t.between("read: the word")
		if terms.Current(word) || v.t.terms.Load() == terms {
			return word, terms
		}
	}
}

// renew leaves an entry's word under the present terms, also one that was tentative: it
// has had its second look.
func (t *Table[K]) renew(e *Entry[K]) {
	for {
		word := e.word.Load()
		terms := t.terms.Load()
		state, alive := terms.State(word)
		if !alive || terms.Current(word) {
			return
		}
		t.between("renew: judged")
		if e.word.CompareAndSwap(word, state|terms.Mark) {
			return
		}
	}
}

// freshAt is the instant from which an entry with that word owes nothing.
func (t *Table[K]) freshAt(word uint64) policy.Instant {
	terms := t.terms.Load()
	state, _ := terms.State(word)
	return terms.Policy.FreshAt(state)
}
