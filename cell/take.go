package cell

import (
	"time"

	"github.com/ral-limiter/ral/internal/core/decide"
	"github.com/ral-limiter/ral/internal/core/underway"
	"github.com/ral-limiter/ral/policy"
	"github.com/ral-limiter/ral/table"
)

// request is what one call asks of a key.
type request struct {
	n int64
	// patience bounds how late an allowed call may have to start. noDelay refuses
	// every call that would have to start later, also under a policy that delays its
	// callers.
	patience time.Duration
	// limit is the limit that came with the call, or was chosen for its key. nil is the
	// cell's own.
	limit policy.Policy
	// notBefore refuses a call that would start before that instant. 0 sets no bound.
	notBefore policy.Instant
	// charge records -n units, although the limit may not allow them.
	charge bool
	// brief is a take that is given back at once or never: it is not remembered.
	brief bool
	// noRoomWait refuses a new key for which a full table has no room at once.
	noRoomWait bool
}

const (
	// noDelay is the patience of a call that must start at once if it is allowed.
	noDelay = decide.NoDelay
	// forever is the patience of a call that waits until its context ends.
	forever = policy.Never
)

// outcome is the answer to a request. Nothing has counted it yet: see Cell.Count.
type outcome struct {
	policy.Decision
	Basis
}

// Basis records that an answer does not rest on the key's word alone, and why. The zero Basis
// is that of an answer that does, or that needs no word.
type Basis struct {
	missing missing
	lost    bool // nothing can be recorded for the key, now or later
}

// missing is the reason for an answer without the key's word, or of a call that waits.
type missing uint8

const (
	_           missing = iota
	full                // the table was full, and Config.WhenFull decided
	unavailable         // there was no writer, or not in time, or the key cannot be recorded
	misfit              // the limit is of another family than the cell's own
	blocked             // the key is blocked
	ended               // the call's context ended while it waited
	shut                // the engine was closed, and the call would have waited

	// These rest on the key's word and on how long the call would wait.
	crowded // ErrCrowded
	late    // ErrDeadline

	reasons = iota
)

// byWord reports whether an answer is the limit's, by the key's word or for a key never used.
// Only such a refusal may block the key. It excludes full, unavailable, misfit, blocked,
// ended, shut and lost.
func (b Basis) byWord() bool { return (b.missing == 0 || b.missing >= crowded) && !b.lost }

// Recorded reports whether an answer rests on the key's word, or needs none. It excludes only
// full, unavailable and shut. Unlike byWord it includes misfit, blocked, ended and lost.
func (b Basis) Recorded() bool {
	return b.missing != full && b.missing != unavailable && b.missing != shut
}

// receipt is what a take did to the word of its key. The zero receipt recorded nothing.
type receipt[K comparable] struct {
	entry         *table.Entry[K]
	epoch         uint64 // of the terms under which it took
	before, after uint64
	at            policy.Instant
	returned      uint64 // Entry.Returned before the take
	id            uint64 // in Cell.underway; 0 if it is not there
}

// plain reports whether the cell's own limit decides, and no more than n and patience
// matter to it.
func (q *request) plain() bool { return q.limit == nil && q.notBefore == 0 && !q.charge }

// decide puts the answer for a key whose word reads as state into d, and returns the
// state to be recorded if it is allowed.
func (q *request) decide(terms *table.Terms, state uint64, now policy.Instant, d *policy.Decision) (next uint64) {
	p := terms.Policy
	if q.limit != nil {
		if p = q.limit; !terms.ReadsWordsOf(p) {
			*d = policy.Decision{RetryAfter: policy.Never}
			return state
		}
	}
	if q.charge {
		refunder, _ := p.(policy.Refunder)
		return decide.Refund(p, refunder, state, now, q.n, d)
	}
	return decide.Take(p, state, now, q.n, q.patience, q.notBefore, d)
}

// take answers q for the key in d, and records what is allowed. r, if not nil, is the
// receipt for that.
//
// Decisions are handed on through a pointer: a struct of more than four words that is
// returned is copied at each return, and each copy waits for the stores before it.
func (c *Cell[K]) take(key K, q *request, d *policy.Decision, r *receipt[K]) Basis {
	hash, ok := c.hash(key)
	now := c.now()
	if ok {
		if c.blocks.Load() != nil {
			if basis, refused := c.refuseBlocked(hash, key, now, q, d); refused {
				return basis
			}
		}
		if e := c.view.Load(hash, key); e != nil {
			if basis, alive := c.takeFrom(e, hash, now, q, d, r); alive {
				return basis
			}
		}
	}
	return c.takeNew(hash, ok, key, now, q, d, r)
}

// takeFrom is takeEntry, and remembers a take that may be given back later. It does so under
// the lock that gives back, so that the takes are remembered in the order of their swaps. A
// take does not wait for that lock as long as a give-back does: a policy that calls the engine
// may hold it.
func (c *Cell[K]) takeFrom(
	e *table.Entry[K], hash uint64, now policy.Instant, q *request, d *policy.Decision, r *receipt[K],
) (b Basis, alive bool) {
	if r == nil || q.brief || !c.tryLockReturn(e) {
		return c.takeEntry(e, now, q, d, r)
	}
	defer e.UnlockReturn()
	b, alive = c.takeEntry(e, now, q, d, r)
	if terms := c.view.Terms(); r.entry == e && r.epoch == terms.Epoch && d.Wait == 0 {
		limit := q.limit
		if limit == nil {
			limit = terms.Policy
		}
		m := underway.Mark{Word: r.after &^ terms.EpochBit, Epoch: r.epoch, Returned: e.Returned()}
		r.id = c.underway.Add(e, hash, limit, r.before&^terms.EpochBit, m, r.at, q.n)
	}
	return b, alive
}

// takeEntry answers q in d by the entry's word, and advances the word by
// compare-and-swap. It is the one loop in which a word rises, except Choke's, which is
// this one for one unit, written out since sharing it cost Choke 4 to 5 ns; Offer.Accept
// swaps once, without a loop. r, if not nil, is the
// receipt for what was recorded. alive is false if the entry is dead: nothing was taken
// then, and the key must be looked up again.
func (c *Cell[K]) takeEntry(
	e *table.Entry[K], now policy.Instant, q *request, d *policy.Decision, r *receipt[K],
) (b Basis, alive bool) {
	for {
		returned := e.Returned()
		word, terms := c.view.Read(e)
		state := word ^ terms.EpochBit
		if state-1 >= policy.MaxWord { // not used yet, of other terms, or dead: see Choke
			if state, alive = terms.State(word); !alive {
				return Basis{}, false
			}
			if state == 0 && q.n != 0 {
				// The key may have been used, drained and forgotten since now was
				// read. This entry does not remember what it took then, so that a
				// take dated back to then would be free.
				now = max(now, c.view.Horizon())
			}
		}
		var next uint64
		plain := q.plain()
		if plain {
			next, *d = terms.Policy.Take(state, now, q.n, max(q.patience, 0))
			plain = q.patience != noDelay || d.Allowed && d.Wait == 0
		}
		if !plain {
			next = q.decide(terms, state, now, d)
		}
		switch {
		case q.n == 0 || !d.Allowed || q.charge && next == state:
			if q.limit == nil {
				return Basis{}, true
			}
			return c.basis(q.limit, d), true
		case next > policy.MaxWord:
			// A policy that breaks its contract must not break the table.
			*d = policy.Decision{Limit: d.Limit, RetryAfter: policy.Never}
			return Basis{}, true
		}
		if q.limit != nil && d.Wait > 0 {
			e.MarkForeignTurn()
		}
		after := next | terms.EpochBit
		// A swap that succeeds hands the units to this call. Nothing else has to agree.
		// A tentative entry lands by this swap.
		taken := e.Advance(word, after)
		if taken {
			if r != nil {
				r.entry, r.epoch, r.before, r.after = e, terms.Epoch, state|terms.EpochBit, after
				r.at, r.returned = now, returned
			}
			return Basis{}, true
		}
		// Another call was faster. Decide again, at the same instant.
	}
}

// basis returns the basis of an answer that was given under a limit, by the key's word or
// by none as the key was never used. It reports the first limit of another family to
// Options.OnMisfit.
func (c *Cell[K]) basis(limit policy.Policy, d *policy.Decision) Basis {
	// Only such a limit has a decision without a Limit, except for a policy that is not
	// of package policy: that may have a Limit of 0.
	if limit == nil || d.Allowed || d.Limit != 0 || c.view.Terms().ReadsWordsOf(limit) {
		return Basis{}
	}
	if c.onMisfit != nil && c.misfitSeen.CompareAndSwap(false, true) {
		c.onMisfit(limit)
	}
	return Basis{missing: misfit}
}

// Count counts a call's answer. Each verb does so once it is final. A refusal by the key's
// word may block the key: d says so then. A refusal for ever is not the key's doing.
func (c *Cell[K]) Count(key K, d *policy.Decision, b Basis) {
	if due := c.CountOnly(d.Allowed, b); due != (Due{}) {
		c.Finish(key, d, due)
	}
}

// Due is what is left to do for an answer that was counted, with its key. The zero Due is
// nothing.
type Due struct {
	weight uint64 // of a refusal that is in the sample of refused keys; 0 if it is not
	punish bool
}

// CountOnly is Count for callers that have key and decision in another form. Unless due is
// the zero Due, a call of Finish is to follow.
func (c *Cell[K]) CountOnly(allowed bool, b Basis) (due Due) {
	switch {
	case allowed:
		c.tally.mine().admitted.Add(1)
		if b.missing != 0 {
			c.admittedBy[b.missing].Add(1)
		}
		return Due{}
	case b.missing == 0:
		mine := c.tally.mine()
		if number, mayBe := mine.refuse(); mayBe {
			due.weight = c.drawRefusal(mine, number)
		}
	case b.missing == blocked:
		c.tally.mine().blocked.Add(1)
		due.weight = c.drawOne()
	default:
		c.refusedBy[b.missing].Add(1)
		due.weight = c.drawOne()
	}
	due.punish = b.byWord() && c.blocks.Load() != nil
	return due
}

// Finish does what is due for an answer that CountOnly has counted.
func (c *Cell[K]) Finish(key K, d *policy.Decision, due Due) {
	if due.weight != 0 {
		c.addRefusal(key, due.weight)
	}
	if due.punish {
		c.Punish(key, d)
	}
}

// countBlocked counts a call that was refused as its key is blocked.
func (c *Cell[K]) countBlocked(key K) {
	c.tally.mine().blocked.Add(1)
	if weight := c.drawOne(); weight != 0 {
		c.addRefusal(key, weight)
	}
}
