package cell

import (
	"iter"
	"time"

	"github.com/ral-limiter/ral/policy"
	"github.com/ral-limiter/ral/table"
)

// Every call on a blocked key is refused, whatever its word says. Another cell keeps the blocked
// keys: its policy refuses a blocked key, and a take there records a refusal. See BlockBy.

// BlockBy makes the cell refuse the keys that blocks refuses. blocks must have the seed and the
// clock of the cell.
func (c *Cell[K]) BlockBy(blocks *Cell[K]) { c.blocks.Store(blocks) }

// Block takes from the key under limit, of the family of the blocking cell c. It returns ErrClosed,
// ErrUnavailable, ErrFull, or ErrNever if limit refuses. Nothing has changed then.
func (c *Cell[K]) Block(limit policy.Policy, key K) error {
	var decision policy.Decision
	basis := c.take(key, &request{n: 1, choice: choice{limit: limit}}, &decision, nil)
	switch {
	case decision.Allowed:
		return nil
	case basis.reason == 0:
		return ErrNever
	case c.closed.Load():
		return ErrClosed
	case basis.lost:
		return ErrUnavailable
	}
	return ErrFull
}

// Blocked returns how long the blocking cell c still blocks the key.
func (c *Cell[K]) Blocked(key K) time.Duration {
	hash, ok := c.hash(key)
	if !ok {
		return 0
	}
	return c.blockLeft(hash, key, c.now())
}

// Unblock lifts the key's block and forgets its refusals. It reports whether there was anything.
// Calls that wait for the end of the block look again.
func (c *Cell[K]) Unblock(key K) bool {
	blocks := c.blocks.Load()
	if blocks == nil || !blocks.Reset(key) {
		return false
	}
	c.lines.Wake(key)
	return true
}

func blockIn(reading table.Reading, now policy.Instant) time.Duration {
	_, decision := reading.Terms.Policy.Take(reading.State, now, 1, 0)
	return decision.RetryAfter
}

// AllBlocked iterates over the blocked keys, as All does, with the time left.
func (c *Cell[K]) AllBlocked() iter.Seq2[K, time.Duration] {
	return func(yield func(K, time.Duration) bool) {
		for entry, reading := range c.view.All() {
			if left := blockIn(reading, c.now()); left > 0 && !yield(entry.Key(), left) {
				return
			}
		}
	}
}

func (c *Cell[K]) blockLeft(hash uint64, key K, now policy.Instant) time.Duration {
	if c.view.Len() == 0 {
		return 0
	}
	for {
		entry := c.view.Seek(hash, key)
		if entry == nil {
			return 0
		}
		if reading, alive := c.view.State(entry); alive {
			return blockIn(reading, now)
		}
		if c.closed.Load() {
			return 0
		}
	}
}

// refuseBlocked refuses q in decision if the key is blocked at now. It takes nothing. RetryAfter is
// the later of the end of the block and the limit's RetryAfter, and as exact as the latter.
func (c *Cell[K]) refuseBlocked(hash uint64, key K, now policy.Instant, q *request, decision *policy.Decision) (basis Basis, refused bool) {
	blocks := c.blocks.Load()
	if blocks == nil {
		return Basis{}, false
	}
	left := blocks.blockLeft(hash, key, now)
	if left == 0 || q.charge {
		return Basis{}, false
	}
	terms, state := c.current(key)
	if state == 0 {
		now = max(now, c.view.Horizon())
	}
	q.decide(terms, state, now, decision)
	if basis := c.basis(q.limit, decision); basis.reason != 0 {
		// A limit of another family refuses for ever.
		return basis, true
	}
	retry := decision.RetryAfter
	if decision.Allowed && q.n != 0 {
		// The call has taken nothing, so its answer has the key's state.
		(&request{choice: q.choice}).decide(terms, state, now, decision)
	}
	decision.Allowed, decision.Remaining, decision.Wait = false, 0, 0
	decision.RetryAfter, decision.ResetAfter = max(retry, left), max(decision.ResetAfter, left)
	return Basis{reason: blocked}, true
}

// Punish counts a refusal of the key, unless it is for ever, and adds the resulting block, if any,
// to decision.
func (c *Cell[K]) Punish(key K, decision *policy.Decision) {
	blocks := c.blocks.Load()
	if blocks == nil || blocks.refusals == nil || decision.RetryAfter == policy.Never {
		return
	}
	var counted policy.Decision
	basis := blocks.take(key, &request{n: 1, noRoomWait: true}, &counted, nil)
	// If the key is blocked already, by another call's refusal or by Block, that block holds.
	left := counted.RetryAfter
	switch {
	case basis.reason != 0:
		blocks.refusals.Uncounted.Add(1)
		return
	case counted.Allowed && counted.Remaining == 0:
		blocks.refusals.Blocks.Add(1)
		left = counted.ResetAfter
	}
	decision.RetryAfter, decision.ResetAfter = max(decision.RetryAfter, left), max(decision.ResetAfter, left)
}
