package cell

import (
	"github.com/ral-limiter/ral/policy"
	"github.com/ral-limiter/ral/table"
)

// Offer is a prepared take from a known key, for one goroutine. The zero Offer offers nothing.
type Offer[K comparable] struct {
	Entry         *table.Entry[K]
	Terms         *table.Terms
	Before, After uint64 // the key's word now and after the take
	Returned      uint64 // Entry.Returned before the word was read
}

// Offer prepares the take of n units that TryTake would make at now, without an allocation or a
// message, and puts the answer into d. hash is the key's. It takes and counts nothing. sure is
// false, and d and o are undefined, if more than a known key's word and the cell's own limit
// decides.
func (c *Cell[K]) Offer(
	key K, hash uint64, now policy.Instant, n int64, d *policy.Decision, o *Offer[K],
) (sure bool) {
	if n == 0 || !c.find(key, hash, now, o) {
		return false
	}
	next := o.Terms.Take(o.Before^o.Terms.EpochBit, now, n, 0, d)
	if !d.Allowed {
		return !o.Terms.Policy.Delays() // a policy that delays has another RetryAfter for TryTake
	}
	o.After = next | o.Terms.EpochBit
	return d.Wait == 0 && next <= policy.MaxWord
}

// OfferOne is Offer for one unit, without the rest of the answer.
func (c *Cell[K]) OfferOne(key K, hash uint64, now policy.Instant, o *Offer[K]) (allowed, sure bool) {
	if !c.find(key, hash, now, o) {
		return false, false
	}
	choker := o.Terms.Choker
	if choker == nil || o.Terms.Policy.Delays() {
		var d policy.Decision
		sure = c.Offer(key, hash, now, 1, &d, o)
		return d.Allowed, sure
	}
	next, allowed := choker.Choke(o.Before^o.Terms.EpochBit, now)
	o.After = next | o.Terms.EpochBit
	return allowed, next <= policy.MaxWord
}

// find puts a known key's word into o. It returns false if the word alone does not decide.
func (c *Cell[K]) find(key K, hash uint64, now policy.Instant, o *Offer[K]) bool {
	if c.guarded || c.policyFor != nil {
		return false
	}
	if blocks := c.blocks.Load(); blocks != nil && blocks.blockLeft(hash, key, now) > 0 {
		return false
	}
	if o.Entry = c.view.Load(hash, key); o.Entry == nil {
		return false
	}
	o.Returned = o.Entry.Returned()
	o.Before, o.Terms = c.view.Read(o.Entry)
	state := o.Before ^ o.Terms.EpochBit
	return state-1 < policy.MaxWord // else unused, of other terms, or dead: see Choke
}

// Accept makes the take of an allowed Offer. It returns false if the Offer is outdated.
func (o *Offer[K]) Accept() bool { return o.Entry.Advance(o.Before, o.After) }

// Plain is the record of an Offer's take, for any type of key.
type Plain struct {
	Before, After, Returned uint64
	Epoch                   uint64 // Terms.Epoch
	At                      policy.Instant
	N                       int64
}

// Plain returns the record of an Offer of n units at that instant, once accepted.
func (o *Offer[K]) Plain(at policy.Instant, n int64) Plain {
	return Plain{Before: o.Before, After: o.After, Returned: o.Returned, Epoch: o.Terms.Epoch, At: at, N: n}
}

// Held returns the held units of an accepted Offer on an entry.
func (c *Cell[K]) Held(e *table.Entry[K], p Plain) Held[K] {
	return Held[K]{cell: c, n: p.N, receipt: receipt[K]{
		entry: e, epoch: p.Epoch, before: p.Before, after: p.After, at: p.At, returned: p.Returned,
	}}
}
