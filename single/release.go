package single

import (
	"github.com/ral-limiter/ral/internal/core/rewrites"
	"github.com/ral-limiter/ral/policy"
)

// This file releases units in use, of a policy.Occupier, and extends their use.

// inUse is the part of terms for units in use.
type inUse struct {
	occupier policy.Occupier
	// epoch is the number of policies before these terms.
	epoch uint64
	// rewrites are the changes that translated words.
	rewrites rewrites.Log
}

// change is Occupier.Release or Occupier.Extend.
type change func(o policy.Occupier, word, taken uint64, now policy.Instant, n int64) (next uint64, ok bool)

// swap makes a change of the word. swap returns false, and changes nothing, if the units no longer
// count.
func (h *held) swap(change change) (ok bool) {
	limiter, receipt := h.limiter, h.receipt
	limiter.mu.Lock()
	defer limiter.mu.Unlock()
	terms := limiter.terms.Load()
	taken := terms.inUse.rewrites.Carried(receipt.After, receipt.terms.inUse.epoch)
	if taken == 0 || terms.returned.Load() != receipt.Returned {
		return false
	}
	for {
		word := terms.word.Load()
		now := limiter.time.now()
		next, ok := change(terms.inUse.occupier, word, taken, now, receipt.N)
		if !ok {
			return false
		}
		if terms.word.CompareAndSwap(word, next) {
			h.receipt.terms, h.receipt.After, h.receipt.At = terms, next, now
			return true
		}
	}
}

// vacate is Reset for units in use. terms.returned counts the resets, and so names the generation of the
// word: a release of another generation takes nothing. A take that comes between the count and the swap makes
// the swap fail, so that the take is of a generation before the last count. After a reset the word may come
// back, so a take that may be released holds the lock from the first reset on.
func (l *Limiter) vacate() (used bool) {
	defer l.wake()
	l.mu.Lock()
	defer l.mu.Unlock()
	terms := l.terms.Load()
	for {
		word, now := terms.word.Load(), l.time.now()
		if word == 0 {
			return false
		}
		terms.returned.Add(1)
		if terms.word.CompareAndSwap(word, terms.inUse.occupier.Vacate(word, now)) {
			return terms.policy.FreshAt(word) > now
		}
	}
}

// wake has the first call in line look again. A caller must not hold Limiter.mu.
func (l *Limiter) wake() {
	if lines := l.lines.Load(); lines != nil {
		lines.Wake(struct{}{})
	}
}
