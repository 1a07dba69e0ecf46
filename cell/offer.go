package cell

import (
	"github.com/ral-limiter/ral/internal/core/underway"
	"github.com/ral-limiter/ral/policy"
	"github.com/ral-limiter/ral/table"
)

// Offer is a prepared take from a known key of any type, for one goroutine. Known fills in all but
// At and After.
type Offer struct {
	Level *table.Level
	Terms *table.Terms
	// Before and After are the key's word now and after the take.
	Before, After uint64
	// Returned is Level.Returned before the word was read.
	Returned uint64
	At       policy.Instant
}

// Known finds the word of a known key, for an Offer at now. hash is the key's. It allocates nothing
// and sends no message. The level is nil if anything else decides: a block, a line, or PolicyFor.
func (c *Cell[K]) Known(key K, hash uint64, now policy.Instant) (
	level *table.Level, terms *table.Terms, word, returned uint64,
) {
	if c.guarded || c.policyFor != nil {
		return nil, nil, 0, 0
	}
	if blocks := c.blocks.Load(); blocks != nil && blocks.blockLeft(hash, key, now) > 0 {
		return nil, nil, 0, 0
	}
	if c.occupied && c.lines.Has(key) {
		return nil, nil, 0, 0
	}
	entry := c.view.Load(hash, key)
	if entry == nil {
		return nil, nil, 0, 0
	}
	returned = entry.Returned()
	terms = c.view.Terms()
	word = entry.Word()
	if _, ok := plain(terms, word); !ok {
		return nil, nil, 0, 0
	}
	if terms.Occupier != nil {
		// The count is read after the word, and a take of a key that was reset holds a lock: see release.
		if returned = entry.Returned(); returned != 0 {
			return nil, nil, 0, 0
		}
	}
	return &entry.Level, terms, word, returned
}

// Take prepares the take of n units that TryTake would make, and puts the answer into decision. It takes
// and counts nothing. sure is false if more than the word decides.
func (o *Offer) Take(n int64, decision *policy.Decision) (sure bool) {
	if n == 0 {
		return false
	}
	next := o.Terms.Take(o.Before^o.Terms.EpochBit, o.At, n, 0, decision)
	if !decision.Allowed {
		// A policy that delays has another RetryAfter for TryTake.
		return !o.Terms.Delays
	}
	o.After = next | o.Terms.EpochBit
	return decision.Wait == 0 && next <= policy.MaxWord
}

// Look puts the key's state before the take into d.
func (o *Offer) Look(d *policy.Decision) { o.Terms.Take(o.Before^o.Terms.EpochBit, o.At, 0, 0, d) }

// TakeOne is Take for one unit, without the rest of the answer.
func (o *Offer) TakeOne() (allowed, sure bool) {
	choker := o.Terms.Choker
	if choker == nil || o.Terms.Delays {
		var decision policy.Decision
		sure = o.Take(1, &decision)
		return decision.Allowed, sure
	}
	next, allowed := choker.Choke(o.Before^o.Terms.EpochBit, o.At)
	o.After = next | o.Terms.EpochBit
	return allowed, next <= policy.MaxWord
}

// Accept makes the take of an allowed Offer, for units that are given back at once or never. It
// returns false if the Offer is outdated.
func (o *Offer) Accept() bool { return o.Level.Advance(o.Before, o.After) }

// Receipt returns the receipt of an accepted Offer of n units.
func (o *Offer) Receipt(receipt Remembered, n int64) Receipt {
	return Receipt{
		n: n, level: o.Level, epoch: o.Terms.Epoch, before: o.Before, after: o.After, takenAt: o.At, returned: o.Returned,
		remembered: receipt,
	}
}

// Accept makes the take of an allowed Offer of n units, and remembers the take if its Receipt needs
// that: see remembers. hash is the key's. The parameters are the Offer's fields, since a copied
// Offer waits for earlier stores.
func (c *Cell[K]) Accept(
	level *table.Level, terms *table.Terms, before, after, returned uint64, now policy.Instant, n int64, hash uint64,
) (receipt Remembered, ok bool) {
	var log *underway.EntryLog[table.Level]
	if remembers(nil, terms) {
		log = c.lockLog(level, hash, false)
	}
	if ok = level.Advance(before, after); log != nil {
		if ok {
			mark := underway.Mark{Word: after &^ terms.EpochBit, Epoch: terms.Epoch, Returned: returned}
			receipt = Remembered{Log: log, ID: log.Add(terms.Policy, before&^terms.EpochBit, mark, now, n)}
		}
		level.UnlockReturn()
	}
	return receipt, ok
}
