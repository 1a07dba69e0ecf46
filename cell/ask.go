package cell

import (
	"context"
	"time"

	"github.com/ral-limiter/ral/policy"
	"github.com/ral-limiter/ral/table"
)

// What is in this file is for calls that bring their limit with them, or hand what they hold
// through an interface. nil is the limit that holds for the key without it.

// Recorded reports whether an answer rests on the key's word, or needs none.
func (b Basis) Recorded() bool { return b.missing != full && b.missing != unavailable }

// Asked is what Ask did.
type Asked uint8

const (
	// NotAsked: the limit was chosen for the key, or may delay calls. Nothing was decided.
	NotAsked Asked = iota
	// AskedWord: the answer rests on the key's word, or needs none.
	AskedWord
	// AskedNoWord: the key could not be recorded.
	AskedNoWord
)

// Ask is Take under the cell's own limit, if that delays no calls.
func (c *Cell[K]) Ask(key K, n int64, d *policy.Decision) Asked {
	if c.policyFor != nil || c.view.Terms().Delays {
		return NotAsked
	}
	// What follows is take and Count, written out: each call costs 1 or 2 ns.
	q := request{n: n}
	hash, ok := c.hash(key)
	now := c.now()
	if c.blocks.Load() != nil {
		return c.asked(key, n, d, c.take(key, &q, d, nil))
	}
	if ok {
		if e := c.view.Load(hash, key); e != nil {
			if _, alive := c.takeEntry(e, now, &q, d, nil); alive {
				switch mine := c.tally.mine(); {
				case n == 0:
				case d.Allowed:
					mine.admitted.Add(1)
				default:
					mine.refused.Add(1)
				}
				return AskedWord
			}
		}
	}
	return c.asked(key, n, d, c.takeNew(hash, ok, key, now, &q, d, nil))
}

// asked counts what Ask decided.
func (c *Cell[K]) asked(key K, n int64, d *policy.Decision, basis Basis) Asked {
	if n != 0 {
		c.Count(key, d, basis)
	}
	if basis.Recorded() {
		return AskedWord
	}
	return AskedNoWord
}

// ReserveWith is Reserve, and returns the basis of the answer.
func (c *Cell[K]) ReserveWith(
	limit policy.Policy, key K, n int64, patience time.Duration, d *policy.Decision, h *Held[K],
) Basis {
	basis := c.reserve(key, &request{n: n, patience: max(patience, 0), limit: c.orChosen(limit, key)}, d, h)
	if n != 0 {
		c.Count(key, d, basis)
	}
	return basis
}

// AcquireWith is Acquire, and returns the basis of the answer.
func (c *Cell[K]) AcquireWith(
	ctx context.Context, limit policy.Policy, key K, n int64, patience time.Duration, d *policy.Decision, h *Held[K],
) (waited time.Duration, basis Basis, err error) {
	waited, basis, err = c.acquire(ctx, limit, key, n, max(patience, 0), d, h)
	if err != nil {
		*d, *h = c.refusal(limit, key, n, err), Held[K]{}
	}
	if n != 0 {
		c.Count(key, d, basis)
	}
	return waited, basis, err
}

// Parts returns what is held, apart from its cell. entry is nil if nothing was recorded.
func (h *Held[K]) Parts() (entry *table.Entry[K], p Plain, limit policy.Policy, wait time.Duration) {
	r := &h.receipt
	p = Plain{Before: r.before, After: r.after, Returned: r.returned, Epoch: r.epoch, At: r.at, N: h.n}
	return r.entry, p, h.limit, h.wait
}

// Whole puts together what Parts returned.
func (c *Cell[K]) Whole(entry *table.Entry[K], p Plain, limit policy.Policy, wait time.Duration) Held[K] {
	h := c.Held(entry, p)
	h.limit, h.wait = limit, wait
	return h
}
