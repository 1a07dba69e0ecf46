package cell

import (
	"context"
	"hash/maphash"
	"time"

	"github.com/ral-limiter/ral/policy"
	"github.com/ral-limiter/ral/table"
)

// Held is the record of a take, to be given back by Keep. Its methods are for one goroutine at a
// time. The first call of Keep or Cancel ends it, and no copy of it may be ended too. The zero Held
// holds nothing.
type Held[K comparable] struct {
	cell *Cell[K]
	Receipt
}

// Reserve takes n units for the key if they can be used within patience, answers in decision, and holds
// the units in held. The decision's Wait is the time until the units may be used.
func (c *Cell[K]) Reserve(key K, n int64, patience time.Duration, decision *policy.Decision, held *Held[K]) {
	if entry, hash, now := c.locate(key); entry != nil && c.takeKnown(entry, hash, now, n, max(patience, 0), decision, held) {
		return
	}
	basis := c.reserve(key, &request{n: n, patience: max(patience, 0), choice: c.orChosen(nil, key)}, decision, held)
	if n != 0 {
		c.Count(key, decision, basis)
	}
}

// locate begins a call on a key: it returns the key's filed entry and the present instant, and the
// key's hash. The entry is nil if there is none, or if more than its word and the cell's own limit decide.
func (c *Cell[K]) locate(key K) (entry *table.Entry[K], hash uint64, now policy.Instant) {
	if c.guarded || c.policyFor != nil || c.warns != nil || c.blocks.Load() != nil || !c.lines.Empty() {
		return nil, 0, 0
	}
	hash = maphash.Comparable(c.seed, key)
	if c.clock == nil {
		now = policy.Instant(time.Since(c.epoch)) + c.first
	} else {
		now = c.clock()
	}
	return c.view.Load(hash, key), hash, now
}

// takeKnown takes n units by the word of an entry from locate, and counts the call. held, if not nil, holds the
// units. It returns false, and has taken nothing, if more steps decide: see take.
func (c *Cell[K]) takeKnown(
	entry *table.Entry[K], hash uint64, now policy.Instant, n int64, patience time.Duration, decision *policy.Decision, held *Held[K],
) bool {
	for {
		returned := entry.Returned()
		word, terms := c.view.Read(entry)
		state, ok := plain(terms, word)
		remember := remembers(nil, terms)
		if !ok || n <= 0 || entry.Returned() != returned || returned != 0 && held != nil && terms.Occupier != nil ||
			remember && held == nil && c.underway.Find(hash, &entry.Level) != nil {
			return false
		}
		next := terms.Take(state, now, n, max(patience, 0), decision)
		if !decision.Allowed || next > policy.MaxWord || patience == noDelay && decision.Wait > 0 {
			return false
		}
		c.seam.Step("known: decided")
		after := next | terms.EpochBit
		if held != nil {
			held.cell, held.level, held.n, held.wait = c, &entry.Level, n, decision.Wait
			held.epoch, held.before, held.after, held.takenAt, held.returned = terms.Epoch, word, after, now, returned
		}
		if held != nil && remember && decision.Wait == 0 {
			held.remembered, ok = c.Accept(&entry.Level, terms, word, after, returned, now, n, hash)
		} else {
			ok = entry.Advance(word, after)
		}
		if ok {
			c.tally.CountAdmitted()
			return true
		}
		if held != nil {
			*held = Held[K]{}
		}
	}
}

// reserve takes the units of q, and counts nothing. h must be zero before. Its level stays nil if
// nothing was taken.
func (c *Cell[K]) reserve(key K, q *request, decision *policy.Decision, h *Held[K]) Basis {
	basis := c.take(key, q, decision, &h.Receipt)
	h.cell, h.limit, h.n, h.wait = c, q.limit, q.n, decision.Wait
	return basis
}

// Held returns a Held for a receipt of this cell, so that its units can be given back.
func (c *Cell[K]) Held(receipt Receipt) Held[K] { return Held[K]{c, receipt} }

func (h *Held[K]) starts() policy.Instant { return h.takenAt + policy.Instant(h.wait) }

// Package engine composes the calls below for several keys. None counts its answer: see Count.

// TryTake takes n units at once, or refuses, even if the key's limit would delay the call. brief
// units are given back at once or never. limit is the limit that decided.
func (c *Cell[K]) TryTake(key K, n int64, brief bool, decision *policy.Decision, held *Held[K]) (limit policy.Policy, basis Basis) {
	q := request{n: n, patience: noDelay, brief: brief, choice: c.orChosen(nil, key)}
	basis = c.reserve(key, &q, decision, held)
	return q.limit, basis
}

// Await is AcquireWith without a count. With an error, decision is a refusal and held is zero.
func (c *Cell[K]) Await(
	ctx context.Context, limit policy.Policy, key K, n int64, patience time.Duration, decision *policy.Decision, held *Held[K],
) (waited time.Duration, basis Basis, err error) {
	waited, basis, err = c.acquire(ctx, key, &request{n: n, patience: noDelay, choice: c.orChosen(limit, key)}, patience, decision, held)
	if err != nil {
		*decision, *held = c.refusal(limit, key, n, err), Held[K]{}
	}
	return waited, basis, err
}

// HasWaiters reports whether a call waits for the key.
func (c *Cell[K]) HasWaiters(key K) bool { return c.lines.Has(key) }

// Closed reports whether the cell was closed.
func (c *Cell[K]) Closed() bool { return c.closed.Load() }
