package cell

import (
	"hash/maphash"
	"sync/atomic"
	"time"

	"github.com/ral-limiter/ral/cmdqueue"
	"github.com/ral-limiter/ral/policy"
	"github.com/ral-limiter/ral/table"
)

// Cell answers for keys of type K. Its zero value is of no use: an engine has
// one. All its methods may be called by any number of goroutines.
//
// Reach for Choke when yes or no is all you need, for Take when a call costs
// more than one or the answer must say how long to wait, for Peek to look.
//
// A key is any comparable value. Keys that cannot be found again, such as a
// floating-point NaN or an interface holding a slice, are never recorded and
// are answered as the configuration says for when the table is unavailable.
type Cell[K comparable] struct {
	// choker is the policy's fast path, nil if it has none or may not be used.
	choker policy.Choker
	view   table.View[K]
	seed   maphash.Seed
	epoch  time.Time
	clock  func() policy.Instant
	// guarded keys may hold what cannot be hashed.
	guarded bool

	policy          policy.Policy
	queue           *cmdqueue.Queue[table.Command[K]]
	admission       Admission
	whenFull        WhenFull
	whenUnavailable WhenUnavailable
	openTimeout     time.Duration
	idle            time.Duration
	writing         func() bool

	closed      atomic.Bool
	unavailable atomic.Uint64
	full        atomic.Uint64

	_     [stripeSize]byte
	tally tally
}

// New returns a cell, and its control for the owner.
func New[K comparable](o Options[K]) (*Cell[K], Control[K]) {
	c := &Cell[K]{
		view:            o.View,
		seed:            o.View.Seed(),
		epoch:           o.Epoch,
		clock:           o.Clock,
		guarded:         mayNotHash[K](),
		policy:          o.Policy,
		queue:           o.Queue,
		admission:       o.Admission,
		whenFull:        o.WhenFull,
		whenUnavailable: o.WhenUnavailable,
		openTimeout:     o.OpenTimeout,
		idle:            o.Idle,
		writing:         o.Writing,
	}
	if c.admission == Exact && !c.guarded {
		c.choker, _ = o.Policy.(policy.Choker)
	}
	return c, Control[K]{c}
}

// Choke tells whether the key may act now, and if so, records that it did: true
// passes. It is Take(key, 1).Allowed, and the fastest way to it.
//
// For a key that is known it never waits and never allocates. For a new one it
// waits only if the table is full, up to the open timeout.
func (c *Cell[K]) Choke(key K) bool {
	if c.choker == nil {
		return c.Take(key, 1).Allowed
	}
	// What follows is take for one unit, with hash and now written out. The order
	// is measured: reading the clock waits for all that went before, and what
	// comes after it goes on beside it. Hash, clock, map took 1.23 times the bare
	// map load and clock read; clock, hash, map 1.32; hash, map, clock 1.28.
	hash := maphash.Comparable(c.seed, key)
	now := policy.Instant(time.Since(c.epoch)) + 1
	if c.clock != nil {
		now = c.clock()
	}
	if e := c.view.Load(hash, key); e != nil {
		for {
			word := e.Word()
			if word == 0 || word > policy.MaxWord {
				break // not used yet, or dead: evicted while we looked
			}
			next, allowed := c.choker.Choke(word, now)
			if next > policy.MaxWord {
				break // a policy that breaks its contract: takeFrom deals with it
			}
			if !allowed {
				c.tally.mine().refused.Add(1)
				return false
			}
			if e.Advance(word, next) {
				c.tally.mine().admitted.Add(1)
				return true
			}
		}
	}
	return c.takeUnfiled(hash, true, key, now, 1, 0).Allowed
}

// Take asks for n units for the key now, and records them if they are allowed.
// More than the limit, and less than nothing, is refused with policy.Never;
// n == 0 looks without taking. It waits and allocates no more than Choke does.
//
// RetryAfter of a refusal is exact if the key is in the table. If it could not be
// recorded there is nothing to be exact about: it is the idle time under
// RefuseNew, and the open timeout under Refuse.
func (c *Cell[K]) Take(key K, n int64) policy.Decision { return c.take(key, n, 0) }

// Peek tells how the key stands. It takes nothing, opens no key, never waits
// and is not counted. The decision is always Allowed: it asked for nothing.
func (c *Cell[K]) Peek(key K) policy.Decision { return c.take(key, 0, 0) }

// Len returns the number of keys in the table, never above the configured most.
func (c *Cell[K]) Len() int {
	if c.closed.Load() {
		return 0
	}
	return c.view.Len()
}

func (c *Cell[K]) now() policy.Instant {
	if c.clock != nil {
		return c.clock()
	}
	return policy.Instant(time.Since(c.epoch)) + 1
}

func (c *Cell[K]) take(key K, n int64, patience time.Duration) policy.Decision {
	hash, ok := c.hash(key)
	now := c.now()
	if ok {
		if e := c.view.Load(hash, key); e != nil {
			if d, ok := c.takeFrom(e, now, n, patience); ok {
				return d
			}
		}
	}
	return c.takeUnfiled(hash, ok, key, now, n, patience)
}

// takeFrom takes from an entry. The answer is false if the entry is dead: nothing
// has been taken then, and the key must be looked up again.
func (c *Cell[K]) takeFrom(
	e *table.Entry[K], now policy.Instant, n int64, patience time.Duration,
) (policy.Decision, bool) {
	for {
		word := e.Word()
		state, alive := table.State(word)
		if !alive {
			return policy.Decision{}, false
		}
		if state == 0 && n != 0 {
			// The key may have been used, drained and forgotten since now was
			// read. This entry does not remember what it took then, so that a
			// take dated back to then would be free. It remembers from now on.
			now = max(c.now(), c.view.Horizon())
		}
		next, d := c.policy.Take(state, now, n, patience)
		switch {
		case n == 0:
			return d, true
		case d.Allowed && next > policy.MaxWord:
			// A policy that breaks its contract must not break the table.
			return c.count(policy.Decision{Limit: d.Limit, RetryAfter: policy.Never}), true
		case !d.Allowed:
			return c.count(d), true
		case c.admission == Queued && c.writing():
			// Only a landed entry may be charged later on.
			if word != state && !e.Advance(word, state) {
				continue
			}
			if c.queue.Send(table.TakeCommand(e, now, n, patience), c.openTimeout) != nil {
				return c.unrecorded(d, c.whenUnavailable == Admit, c.openTimeout, &c.unavailable), true
			}
			return c.count(d), true
		case e.Advance(word, next):
			return c.count(d), true
		}
		// Somebody else took meanwhile. Decide again, at the same instant.
	}
}

// count counts an answer that took the key's word into account.
func (c *Cell[K]) count(d policy.Decision) policy.Decision {
	if d.Allowed {
		c.tally.mine().admitted.Add(1)
	} else {
		c.tally.mine().refused.Add(1)
	}
	return d
}
