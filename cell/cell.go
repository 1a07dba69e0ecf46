package cell

import (
	"hash/maphash"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ral-limiter/ral/cmdqueue"
	"github.com/ral-limiter/ral/internal/core/decide"
	"github.com/ral-limiter/ral/internal/core/seam"
	"github.com/ral-limiter/ral/internal/core/underway"
	"github.com/ral-limiter/ral/internal/core/waitline"
	"github.com/ral-limiter/ral/policy"
	"github.com/ral-limiter/ral/table"
)

// Cell answers for keys of type K. Call New to make one; the zero value is not usable. Any number
// of goroutines may call its methods.
//
// Keys that do not equal themselves or cannot be hashed, such as a floating-point NaN or an
// interface holding a slice, are never recorded. They are answered as for an unavailable table.
type Cell[K comparable] struct {
	view table.View[K]
	seed maphash.Seed
	// tieSeed is the seed of the hashes in Ranks, which leave the process.
	tieSeed maphash.Seed
	// epoch is the time of the instant first, unless there is a clock.
	epoch time.Time
	first policy.Instant
	clock func() policy.Instant
	// guarded means that keys may be impossible to hash.
	guarded bool
	// occupied is set if the policy is a policy.Occupier. While calls wait for a key, other calls on it are
	// then refused: units that are released one by one would never suffice for a call that waits for several.
	occupied bool
	// warns is nil without Options.WarnAt.
	warns *warner[K]

	policyFor func(K) policy.Policy
	switched  atomic.Pointer[switching]
	// switches is held by a change from before it stores itself in switched until it is over.
	switches sync.Mutex
	// anchor is nil if limits need none.
	anchor   func(policy.Policy) policy.Policy
	queue    *cmdqueue.Queue[table.Command[K]]
	whenFull WhenFull
	// blocks is the cell that holds the blocked keys, or nil without BlockBy.
	blocks atomic.Pointer[Cell[K]]
	// refusals is Options.Refusals.
	refusals      *Refusals
	refuseUnfiled bool
	refuseClosed  bool
	openTimeout   time.Duration
	idle          time.Duration
	writing       func() bool
	seam          seam.Seam

	closed atomic.Bool
	// done is closed with closed.
	done chan struct{}
	// admittedBy counts the admitted calls, which are also in tally, by reason.
	admittedBy [reasons]atomic.Uint64
	// refusedBy counts the refused calls by reason. The calls of blocked keys are in tally alone.
	refusedBy [reasons]atomic.Uint64
	// misfitSeen reports whether onMisfit was called.
	misfitSeen atomic.Bool
	onMisfit   func(policy.Policy)
	lines      *waitline.Lines[K, standing]
	underway   underway.Logs[table.Level]
	// overstayed counts releases that came after their units had ended.
	overstayed atomic.Uint64
	// onOverstay and onUnheld are as in Options.
	onOverstay, onUnheld func(key K)

	_       [stripeSize]byte
	tally   Tally
	refused refusedKeys[K]
}

// New returns a cell, and its control for the owner.
func New[K comparable](options Options[K]) (*Cell[K], Control[K]) {
	cell := &Cell[K]{
		view:          options.View,
		seed:          options.View.Seed(),
		tieSeed:       maphash.MakeSeed(),
		epoch:         options.Epoch,
		first:         options.First,
		clock:         options.Clock,
		guarded:       MayNotHash[K](),
		occupied:      options.View.Terms().Occupier != nil,
		policyFor:     options.PolicyFor,
		anchor:        options.Anchor,
		queue:         options.Queue,
		whenFull:      options.WhenFull,
		refuseUnfiled: options.RefuseUnavailable,
		refuseClosed:  options.RefuseClosed,
		openTimeout:   options.OpenTimeout,
		idle:          options.Idle,
		writing:       options.Writing,
		onMisfit:      options.OnMisfit,
		onOverstay:    options.OnOverstay,
		onUnheld:      options.OnUnheld,
		refusals:      options.Refusals,
		done:          make(chan struct{}),
	}
	cell.underway.MaxKeys = options.MaxKeys
	if len(options.WarnAt) > 0 {
		cell.warns = &warner[K]{shares: options.WarnAt, hook: options.OnWarn}
	}
	cell.switched.Store(new(switching))
	cell.startRefused(options.RefusedKeys)
	if options.PolicyFor != nil && options.Anchor != nil {
		cell.policyFor = func(key K) policy.Policy { return options.Anchor(options.PolicyFor(key)) }
	}
	cell.lines = waitline.New[K, standing](waitline.Options[K]{
		Hash: cell.hash, MaxPerKey: options.MaxWaiting, MaxTotal: options.MaxWaitingTotal, Done: cell.done,
	})
	return cell, Control[K]{cell}
}

// Choke reports whether the key may act now, and records the act if so. A call of Choke is a Take of one unit.
func (c *Cell[K]) Choke(key K) bool {
	var q choice
	var choker policy.Choker
	if c.policyFor != nil {
		q = c.choose(key)
		choker = c.chokerOf(q.limit)
	}
	limit := q.limit
	if c.needsTake() || limit != nil && choker == nil {
		var decision policy.Decision
		c.takeCounted(key, &request{n: 1, choice: q}, &decision)
		return decision.Allowed
	}
	// take for one unit, with hash, now and View.Read written out: sharing takeEntry's loop cost 4
	// to 5 ns. The order is measured: reading the clock waits for all before it, and later work
	// overlaps it. Hash, clock, map took 1.23 times the bare map load and clock read; clock, hash,
	// map 1.32; hash, map, clock 1.28.
	hash := maphash.Comparable(c.seed, key)
	var now policy.Instant
	if c.clock == nil {
		now = policy.Instant(time.Since(c.epoch)) + c.first
	} else {
		now = c.clock()
	}
	if blocks := c.blocks.Load(); blocks != nil && blocks.blockLeft(hash, key, now) > 0 {
		c.countBlocked(key)
		return false
	}
	if entry := c.view.Load(hash, key); entry != nil {
		for {
			terms := c.view.Terms()
			word := entry.Word()
			state := word ^ terms.EpochBit
			if limit == nil {
				choker = terms.Choker
			}
			// After the XOR, only a used word of these terms is 1 to MaxWord. A state of 0 wraps round in
			// the comparison. So the second load of the terms in View.Read is not needed.
			if state-1 >= policy.MaxWord || choker == nil {
				// The word is unused, of other terms, or dead: evicted since it was loaded.
				break
			}
			if q.switched != nil && c.switched.Load() != q.switched {
				// The limit changes: takeEntry chooses anew.
				break
			}
			next, allowed := choker.Choke(state, now)
			if next > policy.MaxWord {
				// takeEntry deals with a policy that breaks its contract.
				break
			}
			if !allowed {
				mine := c.tally.mine()
				if number, mayBe := mine.refuse(); mayBe {
					c.sampleRefusal(key, mine, number)
				}
				if c.blocks.Load() != nil {
					c.Punish(key, &policy.Decision{})
				}
				return false
			}
			taken := entry.Advance(word, next|terms.EpochBit)
			if taken {
				c.tally.CountAdmitted()
				if c.warns != nil && c.warns.levels(terms).MayPass(next, now) {
					c.warnByWord(key, terms, state, next, now)
				}
				return true
			}
		}
	}
	var decision policy.Decision
	basis := c.takeNew(hash, true, key, now, &request{n: 1, choice: q}, &decision, nil)
	c.Count(key, &decision, basis)
	return decision.Allowed
}

// needsTake reports whether every call of the cell needs the steps of take, because keys may be
// impossible to hash or the policy is a policy.Occupier.
func (c *Cell[K]) needsTake() bool { return c.guarded || c.occupied }

// chokerOf returns the fast path of a limit other than the cell's own. It is nil if the limit is of
// another family, or delays calls, since turns under another limit leave a mark. It is also nil if
// the cell warns of keys, since a warning needs the Decision.
func (c *Cell[K]) chokerOf(limit policy.Policy) policy.Choker {
	if limit == nil || c.warns != nil || limit.Delays() || !c.view.Terms().ReadsWordsOf(limit) {
		return nil
	}
	choker, _ := limit.(policy.Choker)
	return choker
}

// Take takes n units for the key now if the limit allows it, and answers in d. n == 0 looks without
// taking and is not counted. It waits and allocates no more than Choke does.
func (c *Cell[K]) Take(key K, n int64, d *policy.Decision) Basis { return c.ask(key, n, false, d) }

// ask is Take or, if look is set, Peek.
func (c *Cell[K]) ask(key K, n int64, look bool, decision *policy.Decision) Basis {
	q := request{n: n}
	if c.needsTake() || c.policyFor != nil || c.blocks.Load() != nil {
		if q.choice = c.orChosen(nil, key); look {
			return c.probe(key, &q, decision)
		}
		return c.takeCounted(key, &q, decision)
	}
	// These steps are written out here and in Choke: with a function for each, Take took 60 ns, not 42.
	// TestKnownKeysAreDecidedAlike holds the copies together.
	hash := maphash.Comparable(c.seed, key)
	var now policy.Instant
	if c.clock == nil {
		now = policy.Instant(time.Since(c.epoch)) + c.first
	} else {
		now = c.clock()
	}
	if entry := c.view.Load(hash, key); entry != nil {
		for {
			terms := c.view.Terms()
			word := entry.Word()
			state, ok := plain(terms, word)
			if !ok {
				break
			}
			next := terms.Take(state, now, n, 0, decision)
			if look || n == 0 {
				return Basis{}
			}
			if !decision.Allowed {
				mine := c.tally.mine()
				if number, mayBe := mine.refuse(); mayBe {
					c.sampleRefusal(key, mine, number)
				}
				return Basis{}
			}
			if next > policy.MaxWord {
				// takeEntry deals with a policy that breaks its contract.
				break
			}
			if entry.Advance(word, next|terms.EpochBit) {
				c.tally.CountAdmitted()
				if c.warns != nil {
					if passed := c.warns.passed(terms, nil, state, now, n, decision); passed != 0 {
						c.warn(key, passed, decision)
					}
				}
				return Basis{}
			}
		}
	}
	if look {
		if c.view.Seek(hash, key) == nil {
			return c.probeState(c.view.Terms(), 0, now, key, &q, decision)
		}
		return c.probeAt(now, key, &q, decision)
	}
	basis := c.takeNew(hash, true, key, now, &q, decision, nil)
	if n != 0 {
		c.Count(key, decision, basis)
	}
	return basis
}

func (c *Cell[K]) takeCounted(key K, request *request, decision *policy.Decision) Basis {
	basis := c.take(key, request, decision, nil)
	if request.n != 0 {
		c.Count(key, decision, basis)
		c.noteUnheld(key, decision.Allowed && basis.Recorded())
	}
	return basis
}

// noteUnheld calls onUnheld if a call has taken units but returns nothing with which to release
// them.
func (c *Cell[K]) noteUnheld(key K, taken bool) {
	if taken && c.onUnheld != nil {
		c.onUnheld(key)
	}
}

// TakeWith is Take under another limit of the family; nil means the key's own.
func (c *Cell[K]) TakeWith(limit policy.Policy, key K, n int64, decision *policy.Decision) {
	c.takeCounted(key, &request{n: n, choice: c.orChosen(limit, key)}, decision)
}

// TakeUpTo takes as many of n units as remain, puts the answer for them into decision, and returns
// their number.
func (c *Cell[K]) TakeUpTo(key K, n int64, decision *policy.Decision) (taken int64) {
	var basis Basis
	q := request{choice: c.orChosen(nil, key)}
	taken = decide.UpTo(n, decision, func(n int64) {
		q.n = n
		basis = c.take(key, &q, decision, nil)
	})
	if n != 0 {
		c.Count(key, decision, basis)
		c.noteUnheld(key, taken > 0 && basis.Recorded())
	}
	return taken
}

func (c *Cell[K]) now() policy.Instant {
	if c.clock != nil {
		return c.clock()
	}
	return policy.Instant(time.Since(c.epoch)) + c.first
}

// choose returns the choice of a key. It waits while the key's limit changes.
func (c *Cell[K]) choose(key K) choice {
	switching := c.switched.Load()
	for switching.over != nil && c.isOf(switching, key) {
		seam.Receive[struct{}](c.seam, "choose: the limit changes", seam.Forever, nil, nil, switching.over)
		switching = c.switched.Load()
	}
	return choice{c.policyFor(key), switching}
}

func (c *Cell[K]) isOf(switching *switching, key K) bool {
	hash, ok := c.hash(key)
	return ok && hash == switching.hash
}

// Chosen returns the limit that engine.PolicyFor chooses for the key; nil means the cell's own.
func (c *Cell[K]) Chosen(key K) policy.Policy { return c.orChosen(nil, key).limit }

// orChosen returns limit, anchored if need be, or the chosen limit if it is nil.
func (c *Cell[K]) orChosen(limit policy.Policy, key K) (choice choice) {
	switch {
	case limit == nil && c.policyFor != nil:
		return c.choose(key)
	case limit != nil && c.anchor != nil:
		choice.limit = c.anchor(limit)
	default:
		choice.limit = limit
	}
	return choice
}

// isOutdated reports whether a limit has changed since PolicyFor chose the call's.
func (c *Cell[K]) isOutdated(choice *choice) bool {
	return choice.switched != nil && c.switched.Load() != choice.switched
}
