package cell

import (
	"hash/maphash"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/ral-limiter/ral/cmdqueue"
	"github.com/ral-limiter/ral/internal/seam"
	"github.com/ral-limiter/ral/policy"
	"github.com/ral-limiter/ral/table"
)

// Cell answers for keys of type K. Its zero value is of no use: an engine has
// one. All its methods may be called by any number of goroutines.
//
// Reach for Choke when yes or no is all you need, for Take when a call costs
// more than one or the answer must say how long to wait, for Peek to look. Wait
// and Reserve are for callers who would rather come later than not at all, TakeWith
// is for limits that come with the call, TakeAll for several keys at once.
//
// A key is any comparable value. Keys that cannot be found again, such as a
// floating-point NaN or an interface holding a slice, are never recorded and
// are answered as the configuration says for when the table is unavailable.
type Cell[K comparable] struct {
	view  table.View[K]
	seed  maphash.Seed
	epoch time.Time
	clock func() policy.Instant
	// fast allows Choke to go by the policy's own fast path.
	fast bool
	// guarded keys may hold what cannot be hashed.
	guarded bool

	policyFor       func(K) policy.Policy
	queue           *cmdqueue.Queue[table.Command[K]]
	admission       Admission
	whenFull        WhenFull
	whenUnavailable WhenUnavailable
	openTimeout     time.Duration
	idle            time.Duration
	maxWaiting      int
	writing         func() bool
	order           uint64 // tells cells apart: see TakeAll
	seam            seam.Scheduler

	closed      atomic.Bool
	done        chan struct{} // closed with it
	unavailable atomic.Uint64
	full        atomic.Uint64
	lines       lines[K]

	_     [stripeSize]byte
	tally tally
}

// cells counts the cells that were made.
var cells atomic.Uint64

// New returns a cell, and its control for the owner.
func New[K comparable](o Options[K]) (*Cell[K], Control[K]) {
	c := &Cell[K]{
		view:            o.View,
		seed:            o.View.Seed(),
		epoch:           o.Epoch,
		clock:           o.Clock,
		guarded:         mayNotHash[K](),
		policyFor:       o.PolicyFor,
		queue:           o.Queue,
		admission:       o.Admission,
		whenFull:        o.WhenFull,
		whenUnavailable: o.WhenUnavailable,
		openTimeout:     o.OpenTimeout,
		idle:            o.Idle,
		maxWaiting:      o.MaxWaiting,
		writing:         o.Writing,
		order:           cells.Add(1),
		seam:            o.Seam,
		done:            make(chan struct{}),
	}
	c.fast = c.admission == Exact && !c.guarded && c.policyFor == nil
	return c, Control[K]{c}
}

// Choke tells whether the key may act now, and if so, records that it did: true
// passes. It is Take(key, 1).Allowed, and the fastest way to it.
//
// For a key that is known it never waits and never allocates. For a new one it
// waits only if the table is full, up to the open timeout.
func (c *Cell[K]) Choke(key K) bool {
	if !c.fast {
		return c.Take(key, 1).Allowed
	}
	// What follows is take for one unit, with hash, now and View.Read written out.
	// The order is measured: reading the clock waits for all that went before, and what
	// comes after it goes on beside it. Hash, clock, map took 1.23 times the bare
	// map load and clock read; clock, hash, map 1.32; hash, map, clock 1.28.
	hash := maphash.Comparable(c.seed, key)
	var now policy.Instant
	if c.clock == nil {
		now = policy.Instant(time.Since(c.epoch)) + 1
	} else {
		now = c.clock()
	}
	if e := c.view.Load(hash, key); e != nil {
		for {
			terms := c.view.Terms()
			word := e.Word()
			state := word ^ terms.EpochBit
			if state-1 >= policy.MaxWord || terms.Choker == nil {
				break // not used yet, of other terms, or dead: evicted while we looked
			}
			next, allowed := terms.Choker.Choke(state, now)
			if next > policy.MaxWord {
				break // a policy that breaks its contract: takeFrom deals with it
			}
			if !allowed {
				c.tally.mine().refused.Add(1)
				return false
			}
			done := e.Advance(word, next|terms.EpochBit)
			runtime.KeepAlive(terms)
			if done {
				c.tally.mine().admitted.Add(1)
				return true
			}
		}
	}
	d, _ := c.takeUnfiled(hash, true, key, now, &ask{n: 1})
	return d.Allowed
}

// Take asks for n units for the key now, and records them if they are allowed.
// More than the limit, and less than nothing, is refused with policy.Never;
// n == 0 looks without taking. It waits and allocates no more than Choke does.
//
// RetryAfter of a refusal is exact if the key is in the table. If it could not be
// recorded there is nothing to be exact about: it is the idle time under
// RefuseNew, and the open timeout under Refuse.
func (c *Cell[K]) Take(key K, n int64) policy.Decision {
	d, _ := c.take(key, &ask{n: n})
	return d
}

// TakeWith is Take under a limit that comes with the call, as in redis-cell's
// CL.THROTTLE. p must be of the family of the engine's own policy, and read its
// words: each policy's constructor tells which do, and how what the key has used
// under one limit counts under another. A policy that does not is refused with
// policy.Never, and nothing is recorded; nil is the engine's own.
//
// Make the policies once, and keep them: making one costs more than a call.
func (c *Cell[K]) TakeWith(p policy.Policy, key K, n int64) policy.Decision {
	d, _ := c.take(key, &ask{n: n, with: p})
	return d
}

// Peek tells how the key stands. It takes nothing, opens no key, never waits
// and is not counted. The decision is always Allowed, as it asked for nothing, unless
// engine.PolicyFor chose a policy of another family.
func (c *Cell[K]) Peek(key K) policy.Decision {
	d, _ := c.take(key, &ask{})
	return d
}

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
