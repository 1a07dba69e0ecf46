package cell

import (
	"iter"

	"github.com/ral-limiter/ral/policy"
	"github.com/ral-limiter/ral/table"
)

// Peek puts the answer that Take would give into d. It takes nothing, opens no key, never waits and
// is not counted.
func (c *Cell[K]) Peek(key K, n int64, d *policy.Decision) { c.ask(key, n, true, d) }

// Probe puts the answer that TryTake would give into d, under limit if that is not nil. used is the limit
// that decided. It takes nothing, opens no key and is not counted.
func (c *Cell[K]) Probe(limit policy.Policy, key K, n int64, d *policy.Decision) (used policy.Policy, basis Basis) {
	q := request{n: n, patience: noDelay, choice: c.orChosen(limit, key)}
	basis = c.probe(key, &q, d)
	return q.limit, basis
}

func (c *Cell[K]) probe(key K, request *request, decision *policy.Decision) Basis {
	return c.probeAt(c.now(), key, request, decision)
}

func (c *Cell[K]) probeAt(now policy.Instant, key K, request *request, decision *policy.Decision) Basis {
	if c.blocks.Load() != nil {
		if hash, ok := c.hash(key); ok {
			if basis, refused := c.refuseBlocked(hash, key, now, request, decision); refused {
				return basis
			}
		}
	}
	terms, state, _ := c.currentUnder(key, &request.choice)
	return c.probeState(terms, state, now, key, request, decision)
}

// refuseBehind refuses a call because other calls wait before it. If the limit refuses the call,
// the limit's answer stays.
func (c *Cell[K]) refuseBehind(key K, q *request, decision *policy.Decision) Basis {
	basis := c.probe(key, q, decision)
	if decision.Allowed {
		// The call has taken nothing, so its answer has the key's state.
		look := request{choice: q.choice}
		basis = c.probe(key, &look, decision)
		decision.Allowed, decision.RetryAfter = false, 1
		if c.occupied {
			decision.RetryAfter = max(decision.ResetAfter, 1)
		}
	}
	return basis
}

// probeState is probe for a key's state.
func (c *Cell[K]) probeState(
	terms *table.Terms, state uint64, now policy.Instant, key K, request *request, decision *policy.Decision,
) Basis {
	if state == 0 {
		now = max(now, c.view.Horizon())
	}
	request.decide(terms, state, now, decision)
	if request.n != 0 && decision.Allowed && state == 0 && c.unrecordable(key) {
		outcome := c.unavailableAnswer(request, *decision, true)
		*decision = outcome.Decision
		return outcome.Basis
	}
	return c.basis(request.limit, decision)
}

// unrecordable reports whether nothing can be recorded for the key, now or later.
func (c *Cell[K]) unrecordable(key K) bool {
	_, hashed := c.hash(key)
	return c.closed.Load() || !hashed || key != key //nolint:gocritic // true for NaN
}

func (c *Cell[K]) current(key K) (terms *table.Terms, state uint64) {
	terms, state, _ = c.currentOf(key)
	return terms, state
}

// currentOf returns the state of the key's word, known if there is a word, and its terms.
func (c *Cell[K]) currentOf(key K) (terms *table.Terms, state uint64, known bool) {
	for {
		entry := c.known(key)
		if entry == nil {
			return c.view.Terms(), 0, false
		}
		if reading, alive := c.view.State(entry); alive {
			return reading.Terms, reading.State, true
		}
		// The key was evicted meanwhile, and may be back.
	}
}

// currentUnder is currentOf for the key's limit. If the limit changes meanwhile, currentUnder chooses anew.
func (c *Cell[K]) currentUnder(key K, choice *choice) (terms *table.Terms, state uint64, known bool) {
	for {
		terms, state, known = c.currentOf(key)
		if !c.isOutdated(choice) {
			return terms, state, known
		}
		*choice = c.choose(key)
	}
}

func (c *Cell[K]) known(key K) *table.Entry[K] {
	hash, ok := c.hash(key)
	if !ok || c.closed.Load() {
		return nil
	}
	return c.view.Look(hash, key)
}

// All iterates over the keys in the table, in no order, with their states as for Peek. Keys that
// come or go meanwhile may be missed; a key that goes and comes back may be seen twice.
func (c *Cell[K]) All() iter.Seq2[K, policy.Decision] {
	return func(yield func(K, policy.Decision) bool) {
		if c.closed.Load() {
			return
		}
		for entry, reading := range c.view.All() {
			now := c.now()
			q := request{choice: c.orChosen(nil, entry.Key())}
			if q.switched != nil {
				reading.Terms, reading.State, _ = c.currentUnder(entry.Key(), &q.choice)
			}
			var decision policy.Decision
			if q.decide(reading.Terms, reading.State, now, &decision); c.blocks.Load() != nil {
				// A key in the table has a hash.
				hash, _ := c.hash(entry.Key())
				c.refuseBlocked(hash, entry.Key(), now, &q, &decision)
			}
			if !yield(entry.Key(), decision) {
				return
			}
		}
	}
}

// Len returns the number of keys in the table.
func (c *Cell[K]) Len() int {
	if c.closed.Load() {
		return 0
	}
	return c.view.Len()
}

// Limit returns the cell's own limit.
func (c *Cell[K]) Limit() policy.Policy { return c.view.Terms().Policy }

// LimitFor returns the key's present limit. It takes nothing and never waits.
func (c *Cell[K]) LimitFor(key K) policy.Policy {
	if limit := c.Chosen(key); limit != nil {
		return limit
	}
	return c.Limit()
}

func orOwn(limit policy.Policy, terms *table.Terms) policy.Policy {
	if limit == nil {
		return terms.Policy
	}
	return limit
}
