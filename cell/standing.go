package cell

import (
	"time"

	"github.com/ral-limiter/ral/policy"
)

// Standing is a key's word at a moment, and what else decides about its calls.
type Standing struct {
	// Limit is the limit by which the key is judged.
	Limit policy.Policy
	// Misfit reports whether Limit is of another family than the word.
	Misfit bool
	Word   uint64
	// Known means that there is a word.
	Known   bool
	Now     policy.Instant
	Blocked time.Duration
	// Waiting is the number of calls in the key's line.
	Waiting int
	// Turn is the time until a call behind them would have its turn, 0 if unknown.
	Turn time.Duration
	// Unrecorded is the answer to a call that the limit admits but that cannot be recorded. It is nil if the
	// call can be recorded, or if that is unknown.
	Unrecorded *Unrecorded
}

// Unrecorded is the answer to a call that cannot be recorded.
type Unrecorded struct {
	// Full means that the table is full. Otherwise nothing can be recorded for the key.
	Full    bool
	Allowed bool
	// RetryAfter is a guess, and 0 if Allowed.
	RetryAfter time.Duration
}

// Standing returns the standing of a key for a call of n units under a limit; nil means the key's
// own. It takes nothing, opens no key and is not counted.
func (c *Cell[K]) Standing(limit policy.Policy, key K, n int64) Standing {
	choice := c.orChosen(limit, key)
	standing := Standing{Now: c.now()}
	standing.Waiting, standing.Turn = c.lines.Behind(key, &waiter[K]{cell: c, key: key, n: n, choice: choice})
	terms, state, known := c.currentUnder(key, &choice)
	standing.Limit, standing.Word, standing.Known = terms.Policy, state, known
	if choice.limit != nil {
		standing.Limit, standing.Misfit = choice.limit, !terms.ReadsWordsOf(choice.limit)
	}
	if state == 0 {
		standing.Now = max(standing.Now, c.view.Horizon())
	}
	if blocks := c.blocks.Load(); blocks != nil {
		standing.Blocked = blocks.Blocked(key)
	}
	standing.Unrecorded = c.unrecorded(key, standing.Known, standing.Now)
	return standing
}

// unrecorded returns Standing.Unrecorded. A full table that evicts makes room, unless every key is in use.
func (c *Cell[K]) unrecorded(key K, known bool, now policy.Instant) *Unrecorded {
	isFull := false
	var o outcome
	switch entry := c.known(key); {
	case c.unrecordable(key) || !known && !c.writing():
		o = c.unavailableAnswer(&request{}, policy.Decision{Allowed: true}, true)
	case entry == nil && c.view.Full() && (c.whenFull != EvictLeastDebt || c.allInUse(now)):
		isFull = true
		o = c.withoutWord(&request{}, policy.Decision{Allowed: true}, c.whenFull == AdmitNew, c.idle, full)
	default:
		return nil
	}
	return &Unrecorded{isFull, o.Allowed, o.RetryAfter}
}

// allInUse reports whether every key of the table has units in use, so that none gives up its place. It reads
// keys until one has none, unless the writer has found that all have.
func (c *Cell[K]) allInUse(now policy.Instant) bool {
	if isOccupier := c.view.Terms().Occupier != nil; !isOccupier || c.view.Firm(now) {
		return isOccupier
	}
	for _, reading := range c.view.All() {
		if reading.Terms.Policy.FreshAt(reading.State) <= now {
			return false
		}
	}
	return true
}
