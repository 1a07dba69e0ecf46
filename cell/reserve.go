package cell

import (
	"context"
	"time"

	"github.com/ral-limiter/ral/policy"
)

// Reservation is what was taken, with the decision about it.
type Reservation[K comparable] struct {
	policy.Decision
	// Waited is how long Acquire stood in line.
	Waited time.Duration
	Held[K]
}

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

// Reserve takes n units for the key if they can be used within patience. The decision's
// Wait is the time after which to use them.
func (c *Cell[K]) Reserve(key K, n int64, patience time.Duration) Reservation[K] {
	r, basis := c.reserve(key, &request{n: n, patience: max(patience, 0), limit: c.chosen(key)})
	if n != 0 {
		c.Count(r.Allowed, basis)
	}
	return r
}

// reserve takes as q asks, and counts nothing.
func (c *Cell[K]) reserve(key K, q *request) (Reservation[K], Basis) {
	r := Reservation[K]{Held: Held[K]{cell: c, limit: q.limit, n: q.n}}
	basis := c.take(key, q, &r.Decision, &r.receipt)
	r.wait = r.Wait
	return r, basis
}

// starts returns the instant of its turn, by the cell's clock.
func (h *Held[K]) starts() policy.Instant { return h.receipt.at + policy.Instant(h.wait) }

// What follows is for calls on several keys at once, which package engine composes. None
// of these calls counts its answer: see Count.

// TryTake takes n units at once, or refuses, also where the limit would delay the call.
func (c *Cell[K]) TryTake(key K, n int64) (Reservation[K], Basis) {
	return c.reserve(key, &request{n: n, patience: noDelay, limit: c.chosen(key)})
}

// Await is Acquire. If there is an error, the reservation is a refusal.
func (c *Cell[K]) Await(ctx context.Context, key K, n int64, patience time.Duration) (Reservation[K], Basis, error) {
	r, basis, err := c.acquire(ctx, key, n, patience)
	if err != nil {
		r = Reservation[K]{Decision: c.refusal(key, n, err), Waited: r.Waited}
	}
	return r, basis, err
}

// HasWaiters reports whether a call waits for the key.
func (c *Cell[K]) HasWaiters(key K) bool { return c.lines.Has(key) }

// Closed reports whether the cell was closed.
func (c *Cell[K]) Closed() bool { return c.closed.Load() }

// ID tells cells apart. Those made earlier have smaller ones.
func (c *Cell[K]) ID() uint64 { return c.id }
