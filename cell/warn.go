package cell

import (
	"sync/atomic"

	"github.com/ral-limiter/ral/internal/core/shape"
	"github.com/ral-limiter/ral/internal/core/warn"
	"github.com/ral-limiter/ral/policy"
	"github.com/ral-limiter/ral/table"
)

// warner warns of keys that pass a share of their limit. A call passes a share if more units than
// the share leaves remained before the call, and not after it. Most calls need one comparison for
// that, and do not read the table of earlier warnings.
type warner[K comparable] struct {
	shares warn.Shares
	hook   func(key K, share float64, d policy.Decision)
	own    atomic.Pointer[ownLevels]
	table  warn.Table
}

// ownLevels are the levels of the cell's own limit under the terms.
type ownLevels struct {
	terms *table.Terms
	// most is the most units that can remain.
	most int64
	warn.Levels
}

func (w *warner[K]) levels(terms *table.Terms) *ownLevels {
	if levels := w.own.Load(); levels != nil && levels.terms == terms {
		return levels
	}
	return w.renew(terms)
}

func (w *warner[K]) renew(terms *table.Terms) *ownLevels {
	most := shape.AtOnce(terms.Policy)
	levels := &ownLevels{terms: terms, most: most, Levels: warn.NewLevels(w.shares, terms.Policy, most)}
	w.own.Store(levels)
	return levels
}

// passed returns the shares that a take of n units from state at now passed, by its decision. limit is the
// call's; nil means the cell's own.
func (w *warner[K]) passed(
	terms *table.Terms, limit policy.Policy, state uint64, now policy.Instant, n int64, decision *policy.Decision,
) warn.Set {
	var most int64
	if limit == nil {
		own := w.levels(terms)
		if decision.Remaining > own.Bounds[0] || terms.OnCredit == nil && n > 0 && !own.MayHavePassed(decision.Remaining, n) {
			return 0
		}
		limit, most = terms.Policy, own.most
	} else if most = shape.AtOnce(limit); decision.Remaining > w.shares.First(most) {
		return 0
	}
	_, before := limit.Take(state, now, 0, 0)
	return w.shares.Passed(most, before.Remaining, decision.Remaining)
}

// passedByOffer returns the shares that an accepted Offer passed, and the key's state after it if there are any.
func (w *warner[K]) passedByOffer(offer *Offer) (passed warn.Set, decision policy.Decision) {
	next := offer.After &^ offer.Terms.EpochBit
	if w.levels(offer.Terms).Below(next, offer.At) {
		return 0, decision
	}
	offer.Terms.Take(next, offer.At, 0, 0, &decision)
	return w.passed(offer.Terms, nil, offer.Before&^offer.Terms.EpochBit, offer.At, 0, &decision), decision
}

// warnByWord warns of the shares that a take of one unit passed which led from state to next.
func (c *Cell[K]) warnByWord(key K, terms *table.Terms, state, next uint64, now policy.Instant) {
	var decision policy.Decision
	terms.Take(next, now, 0, 0, &decision)
	c.warn(key, c.warns.passed(terms, nil, state, now, 1, &decision), &decision)
}

// warn calls the hook for each share that a call passed, unless it was called for that share since
// the key was last unused. decision is the call's decision. A warning counts until all units that count
// after it are gone. Another policy of the cell begins anew.
func (c *Cell[K]) warn(key K, passed warn.Set, decision *policy.Decision) {
	if passed == 0 {
		return
	}
	// Only a key with a hash is recorded.
	hash, _ := c.hash(key)
	hash += c.view.Terms().Epoch * 0xd6e8feb86659fd93
	now := int64(c.now())
	for share := range c.warns.table.Fresh(c.warns.shares, passed, hash, now, now+int64(decision.ResetAfter)) {
		c.warns.hook(key, share, *decision)
	}
}

// Warns reports whether the cell warns of keys.
func (c *Cell[K]) Warns() bool { return c.warns != nil }

// OfferBasis returns the basis of the answer of an accepted Offer.
func (c *Cell[K]) OfferBasis(offer *Offer) (basis Basis) {
	if c.warns != nil {
		basis.passed, _ = c.warns.passedByOffer(offer)
	}
	return basis
}

// WarnOfOffer warns of the shares that an accepted Offer passed. Callers ask Warns first, so that a call costs
// nothing without Options.WarnAt.
func (c *Cell[K]) WarnOfOffer(key K, offer *Offer) {
	passed, decision := c.warns.passedByOffer(offer)
	c.warn(key, passed, &decision)
}
