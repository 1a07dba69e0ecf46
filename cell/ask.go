package cell

import (
	"context"
	"errors"
	"time"

	"github.com/ral-limiter/ral/internal/core/underway"
	"github.com/ral-limiter/ral/policy"
	"github.com/ral-limiter/ral/table"
)

// This file has the calls that bring a limit, or pass held units on as words. A nil limit means the
// key's own.

// ErrDelays reports that the limit may delay calls, so that Admit decides nothing.
var ErrDelays = errors.New("ral: the limit delays calls")

// Admit is Take if the key's limit delays no calls. recorded is Basis.Recorded. The error is ErrDelays.
func (c *Cell[K]) Admit(key K, n int64, decision *policy.Decision) (recorded bool, err error) {
	if c.policyFor != nil {
		return c.admitChosen(key, n, decision)
	}
	if c.view.Terms().Delays {
		return false, ErrDelays
	}
	return c.Take(key, n, decision).Recorded(), nil
}

func (c *Cell[K]) admitChosen(key K, n int64, decision *policy.Decision) (recorded bool, err error) {
	q := request{n: n, choice: c.choose(key)}
	if q.limit == nil && c.view.Terms().Delays || q.limit != nil && q.limit.Delays() {
		return false, ErrDelays
	}
	return c.takeCounted(key, &q, decision).Recorded(), nil
}

// ReserveWith is Reserve, and returns the basis of the answer.
func (c *Cell[K]) ReserveWith(
	limit policy.Policy, key K, n int64, patience time.Duration, decision *policy.Decision, held *Held[K],
) Basis {
	basis := c.reserve(key, &request{n: n, patience: max(patience, 0), choice: c.orChosen(limit, key)}, decision, held)
	if n != 0 {
		c.Count(key, decision, basis)
	}
	return basis
}

// LookWith puts the answer that ReserveWith would give into decision. It takes and counts nothing and
// opens no key. ok is false if the key is new and the table is full.
func (c *Cell[K]) LookWith(
	limit policy.Policy, key K, n int64, patience time.Duration, decision *policy.Decision,
) (basis Basis, ok bool) {
	if n != 0 && c.view.Full() {
		if _, _, known := c.currentOf(key); !known {
			return Basis{}, false
		}
	}
	return c.probe(key, &request{n: n, patience: max(patience, 0), choice: c.orChosen(limit, key)}, decision), true
}

// AcquireWith is Acquire, and returns the basis of the answer.
func (c *Cell[K]) AcquireWith(
	ctx context.Context, limit policy.Policy, key K, n int64, patience time.Duration, decision *policy.Decision, held *Held[K],
) (waited time.Duration, basis Basis, err error) {
	waited, basis, err = c.Await(ctx, limit, key, n, max(patience, 0), decision, held)
	if n != 0 {
		c.Count(key, decision, basis)
	}
	return waited, basis, err
}

// Words are a Receipt without its pointers.
type Words = [8]int64

// Pack takes r apart. ref is the log that remembers the take, which names its level, or else the level, or
// nil if nothing was recorded.
func (r *Receipt) Pack(to *Words) (ref any, limit policy.Policy) {
	to[0], to[1], to[2] = r.n, int64(r.wait), int64(r.takenAt)
	to[3], to[4], to[5], to[6] = int64(r.before), int64(r.after), int64(r.returned), int64(r.epoch)
	to[7] = int64(r.remembered.ID)
	switch {
	case r.remembered.Log != nil:
		ref = r.remembered.Log
	case r.level != nil:
		ref = r.level
	}
	return ref, r.limit
}

// Unpack restores a take that Pack took apart, of the cell's key.
func (c *Cell[K]) Unpack(ref any, limit policy.Policy, from *Words) Held[K] {
	receipt := Receipt{
		limit: limit, n: from[0], wait: time.Duration(from[1]), takenAt: policy.Instant(from[2]),
		before: uint64(from[3]), after: uint64(from[4]), returned: uint64(from[5]), epoch: uint64(from[6]),
	}
	switch ref := ref.(type) {
	case *underway.EntryLog[table.Level]:
		receipt.remembered = underway.Receipt[table.Level]{Log: ref, ID: uint64(from[7])}
		receipt.level = ref.Entry
	case *table.Level:
		receipt.level = ref
	}
	return Held[K]{c, receipt}
}

// Key returns the key of a recorded take.
func (h *Held[K]) Key() (key K, recorded bool) {
	if h.level == nil {
		return key, false
	}
	return table.EntryOf[K](h.level).Key(), true
}
