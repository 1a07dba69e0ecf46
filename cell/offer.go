package cell

import (
	"hash/maphash"

	"github.com/ral-limiter/ral/policy"
)

// Offer is the answer that TryTake would give, with its take prepared but not made. The
// zero Offer offers nothing. It is for one goroutine.
type Offer[K comparable] struct {
	policy.Decision
	Held Held[K]
}

// Offer puts the answer that TryTake would give now into o, without an allocation or a
// message. It returns false, and o says nothing, if that takes more than the word of a
// known key and the cell's own limit. Nothing is taken, and nothing is counted.
func (c *Cell[K]) Offer(key K, n int64, o *Offer[K]) bool {
	if c.guarded || c.policyFor != nil || n == 0 {
		return false
	}
	hash := maphash.Comparable(c.seed, key)
	now := c.now()
	e := c.view.Load(hash, key)
	if e == nil {
		return false
	}
	returned := e.Returned()
	word, terms := c.view.Read(e)
	state := word ^ terms.EpochBit
	if state-1 >= policy.MaxWord {
		return false // not used yet, of other terms, or dead
	}
	var next uint64
	next, o.Decision = terms.Policy.Take(state, now, n, 0)
	if !o.Allowed {
		return !terms.Policy.Delays() // one that delays has another RetryAfter for TryTake
	}
	h := &o.Held
	h.cell, h.n = c, n
	r := &h.receipt
	r.entry, r.epoch, r.before, r.after = e, terms.Epoch, word, next|terms.EpochBit
	r.at, r.returned = now, returned
	return o.Wait == 0 && next <= policy.MaxWord
}

// Accept takes what an allowed Offer has prepared. It returns false if another call was
// faster: the Offer does not hold any more, and holds nothing.
func (o *Offer[K]) Accept() bool {
	r := &o.Held.receipt
	taken := r.entry.Advance(r.before, r.after)
	if !taken {
		r.entry = nil
	}
	return taken
}
