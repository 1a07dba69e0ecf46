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

// take answers q in d, records allowed units, and fills a non-nil r. It is the only loop that
// raises the word, except Choke's.
func (l *Limiter) take(q *request, d *policy.Decision, r *receipt) {
	t := l.terms.Load()
	if t == nil {
		*d = policy.Decision{RetryAfter: policy.Never}
		return
	}
	if t.inUse != nil && !q.inLine && q.n != 0 && l.hasWaiters() {
		*d = l.refusal(q.n)
		return
	}
	now := l.time.now()
	for {
		returned := t.returned.Load()
		word := t.word.Load()
		if t.inUse != nil {
			// The count is read after the word: see Limiter.vacate.
			returned = t.returned.Load()
		}
		if word == moved {
			t = l.after(t)
			continue
		}
		next := q.decide(t, word, now, d)
		switch {
		case q.n == 0 || !d.Allowed || q.charge && next == word:
			return
		case next > policy.MaxWord:
			// Survive a policy that breaks its contract.
			*d = policy.Decision{Limit: d.Limit, RetryAfter: policy.Never}
			return
		}
		// A successful swap hands the units to this call.
		var taken bool
		if r != nil && t.inUse != nil {
			taken = l.advanceIn(t, returned, word, next)
		} else {
			taken = t.word.CompareAndSwap(word, next)
		}
		if taken {
			if r != nil {
				*r = receipt{t, underway.Taken{Before: word, After: next, At: now, N: q.n, Wait: d.Wait, Returned: returned}}
			}
			return
		}
		// Another call was faster. Decide again, at the same instant.
	}
}

// advanceIn swaps the word for a take that may be released. It fails if a reset came since the count was read.
func (l *Limiter) advanceIn(t *terms, returned, word, next uint64) bool {
	if returned == 0 {
		// No word from before the first reset comes back.
		return t.word.CompareAndSwap(word, next)
	}
	// A policy that calls the limiter may hold the lock.
	if l.tryLock() {
		defer l.mu.Unlock()
	}
	return t.returned.Load() == returned && t.word.CompareAndSwap(word, next)
}

// tryLock locks mu if it is free soon. With the lock, takes are logged in the order of their swaps.
func (l *Limiter) tryLock() bool {
	return l.mu.TryLock() || seam.Seam{}.TryLock("", l.mu.TryLock, l.mu.Unlock)
}
