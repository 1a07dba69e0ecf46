package single

import (
	"github.com/ral-limiter/ral/internal/core/seam"
	"github.com/ral-limiter/ral/internal/core/underway"
	"github.com/ral-limiter/ral/policy"
)

// receipt records a take's effect on the word. The zero receipt recorded nothing.
type receipt struct {
	terms *terms
	underway.Taken
}

// held records a take, to be given back. The zero held holds nothing.
type held struct {
	limiter *Limiter
	receipt receipt
}

// take answers request in decision, records allowed units, and fills a non-nil r. take has the only
// loop that raises the word, except Choke's.
func (l *Limiter) take(request *request, decision *policy.Decision, r *receipt) {
	terms := l.terms.Load()
	if terms == nil {
		*decision = policy.Decision{RetryAfter: policy.Never}
		return
	}
	if terms.inUse != nil && !request.inLine && request.n != 0 && l.hasWaiters() {
		*decision = l.refusal(request.n)
		return
	}
	now := l.time.now()
	for {
		returned := terms.returned.Load()
		word := terms.word.Load()
		if terms.inUse != nil {
			// The count is read after the word: see Limiter.vacate.
			returned = terms.returned.Load()
		}
		if word == moved {
			terms = l.after(terms)
			continue
		}
		next := request.decide(terms, word, now, decision)
		switch {
		case request.n == 0 || !decision.Allowed || request.charge && next == word:
			return
		case next > policy.MaxWord:
			// Survive a policy that breaks its contract.
			*decision = policy.Decision{Limit: decision.Limit, RetryAfter: policy.Never}
			return
		}
		// A successful swap hands the units to this call.
		var taken bool
		if r != nil && terms.inUse != nil {
			taken = l.advanceIn(terms, returned, word, next)
		} else {
			taken = terms.word.CompareAndSwap(word, next)
		}
		if taken {
			if r != nil {
				*r = receipt{terms, underway.Taken{Before: word, After: next, At: now, N: request.n, Wait: decision.Wait, Returned: returned}}
			}
			return
		}
		// Another call was faster. Decide again, at the same instant.
	}
}

// advanceIn swaps the word for a take that may be released. advanceIn fails if a reset came since
// the count was read.
func (l *Limiter) advanceIn(terms *terms, returned, word, next uint64) bool {
	if returned == 0 {
		// No word from before the first reset comes back.
		return terms.word.CompareAndSwap(word, next)
	}
	// A policy that calls the limiter may hold the lock.
	if l.tryLock() {
		defer l.mu.Unlock()
	}
	return terms.returned.Load() == returned && terms.word.CompareAndSwap(word, next)
}

// tryLock locks mu if mu is free soon. With the lock, takes are logged in the order of their swaps.
func (l *Limiter) tryLock() bool {
	return l.mu.TryLock() || seam.Seam{}.TryLock("", l.mu.TryLock, l.mu.Unlock)
}
