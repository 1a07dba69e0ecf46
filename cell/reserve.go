package cell

import (
	"context"
	"time"

	"github.com/ral-limiter/ral/policy"
)

// Held is what a take recorded, to be given back by Keep. Its methods are for one
// goroutine at a time, and the first call ends it. A copy must not be ended as well. The
// zero Held holds nothing.
type Held[K comparable] struct {
	cell    *Cell[K]
	limit   policy.Policy // as in the request
	n       int64
	wait    time.Duration
	receipt receipt[K]
}

// Reserve takes n units for the key if they can be used within patience, answers in d,
// and holds in h what it took. The decision's Wait is the time after which to use the
// units.
func (c *Cell[K]) Reserve(key K, n int64, patience time.Duration, d *policy.Decision, h *Held[K]) {
	basis := c.reserve(key, &request{n: n, patience: max(patience, 0), limit: c.Chosen(key)}, d, h)
	if n != 0 {
		c.Count(key, d, basis)
	}
}

// reserve takes as q asks, and counts nothing. h is zero before, and stays so if nothing
// was taken.
func (c *Cell[K]) reserve(key K, q *request, d *policy.Decision, h *Held[K]) Basis {
	basis := c.take(key, q, d, &h.receipt)
	h.cell, h.limit, h.n, h.wait = c, q.limit, q.n, d.Wait
	return basis
}

// starts returns the instant of its turn, by the cell's clock.
func (h *Held[K]) starts() policy.Instant { return h.receipt.at + policy.Instant(h.wait) }

// What follows is for calls on several keys at once, which package engine composes. None
// of these calls counts its answer: see Count.

// TryTake takes n units at once, or refuses, also where the limit would delay the call.
// limit is what Chosen returned.
func (c *Cell[K]) TryTake(limit policy.Policy, key K, n int64, d *policy.Decision, h *Held[K]) Basis {
	return c.reserve(key, &request{n: n, patience: noDelay, limit: limit, brief: true}, d, h)
}

// Await is AcquireWith, and counts nothing. If there is an error, the decision is a refusal
// and nothing is held.
func (c *Cell[K]) Await(
	ctx context.Context, limit policy.Policy, key K, n int64, patience time.Duration, d *policy.Decision, h *Held[K],
) (waited time.Duration, basis Basis, err error) {
	waited, basis, err = c.acquire(ctx, key, &request{n: n, patience: noDelay, limit: c.orChosen(limit, key)}, patience, d, h)
	if err != nil {
		*d, *h = c.refusal(limit, key, n, err), Held[K]{}
	}
	return waited, basis, err
}

// HasWaiters reports whether a call waits for the key.
func (c *Cell[K]) HasWaiters(key K) bool { return c.lines.Has(key) }

// Closed reports whether the cell was closed.
func (c *Cell[K]) Closed() bool { return c.closed.Load() }

// ID tells cells apart. Those made earlier have smaller ones.
func (c *Cell[K]) ID() uint64 { return c.id }
