package cell

import (
	"time"

	"github.com/ral-limiter/ral/internal/core/decide"
	"github.com/ral-limiter/ral/internal/core/underway"
	"github.com/ral-limiter/ral/internal/core/warn"
	"github.com/ral-limiter/ral/policy"
	"github.com/ral-limiter/ral/table"
)

// request is a call on a key.
type request struct {
	n int64
	// patience bounds how late an allowed call may start. noDelay refuses every delayed call.
	patience time.Duration
	choice
	// notBefore refuses a call that would start before it. 0 sets no bound.
	notBefore policy.Instant
	// charge records -n units, even if the limit forbids it.
	charge bool
	// brief means that the take is given back at once or never, so that underway.Logs need not remember
	// it.
	brief bool
	// noRoomWait refuses a new key if the table is full.
	noRoomWait bool
	// inLine means that the call is the head of the key's line.
	inLine bool
}

const (
	// noDelay is the patience to start at once.
	noDelay = decide.NoDelay
	// forever is the patience to wait until the context ends.
	forever = policy.Never
)

// outcome is an answer not yet counted: see Cell.Count.
type outcome struct {
	policy.Decision
	Basis
}

// Basis is the reason that an answer rests on more than the key's word. The zero Basis means that
// the word alone decided.
type Basis struct {
	reason missing
	// lost means that nothing can be recorded for the key, now or later.
	lost bool
	// passed has the shares of the limit that the call passed, to be warned of if it is allowed.
	passed warn.Set
}

// missing is the reason for an answer without the key's word, or for the end of a wait.
type missing uint8

const (
	_ missing = iota
	// The table was full, and Config.WhenFull decided.
	full
	// There was no writer, or not in time, or the key cannot be recorded.
	unavailable
	// The limit is of another family than the cell's own.
	misfit
	// The key is blocked.
	blocked
	// The call's context ended while it waited.
	ended
	// The engine was closed, and the call would have waited.
	shut

	// These rest on the key's word and the length of the wait.
	// The error is ErrCrowded.
	crowded
	// The error is ErrDeadline.
	late

	reasons = iota
)

// byWord reports whether the limit itself gave the answer, from the key's word or as for an unused
// key. Only such a refusal may block the key.
func (b Basis) byWord() bool { return (b.reason == 0 || b.reason >= crowded) && !b.lost }

// Recorded reports whether an answer rests on the key's word, or needs none. Unlike byWord it
// includes misfit, blocked, ended and lost.
func (b Basis) Recorded() bool {
	return b.reason != full && b.reason != unavailable && b.reason != shut
}

// Receipt records a take of a key of any type, and its effect on the key's word. The zero Receipt has no
// effect.
type Receipt struct {
	// limit is the request's.
	limit policy.Policy
	n     int64
	wait  time.Duration

	// level is nil without an effect.
	level *table.Level
	// epoch is the epoch of the terms under which it took.
	epoch         uint64
	before, after uint64
	takenAt       policy.Instant
	// returned is Level.Returned before the take.
	returned   uint64
	remembered underway.Receipt[table.Level]
}

// plain reports whether the cell's own limit decides by n and patience alone.
func (q *request) plain() bool { return q.limit == nil && q.notBefore == 0 && !q.charge }

// decide puts the answer for a word's state into decision, and returns the next state if it is allowed.
func (q *request) decide(terms *table.Terms, state uint64, now policy.Instant, decision *policy.Decision) (next uint64) {
	if q.plain() {
		next = terms.Take(state, now, q.n, max(q.patience, 0), decision)
		if q.patience != noDelay || decision.Allowed && decision.Wait == 0 {
			return next
		}
	}
	return q.decideOther(terms, state, now, decision)
}

// decideOther is decide for calls that Terms.Take does not answer.
func (q *request) decideOther(terms *table.Terms, state uint64, now policy.Instant, decision *policy.Decision) (next uint64) {
	limit := terms.Policy
	if q.limit != nil {
		if limit = q.limit; !terms.ReadsWordsOf(limit) {
			*decision = policy.Decision{RetryAfter: policy.Never}
			return state
		}
	}
	if q.charge {
		refunder, _ := limit.(policy.Refunder)
		return decide.Refund(limit, refunder, state, now, q.n, decision)
	}
	return decide.Take(limit, state, now, q.n, q.patience, q.notBefore, decision)
}

// take decides request, puts the answer into decision, and takes the units that are allowed. A
// receipt that is not nil records the take.
//
// Decisions are passed by pointer: a returned struct of more than four words is copied at each
// return, and each copy waits for the stores before it.
func (c *Cell[K]) take(key K, request *request, decision *policy.Decision, receipt *Receipt) Basis {
	hash, ok := c.hash(key)
	now := c.now()
	if ok {
		if c.blocks.Load() != nil {
			if basis, refused := c.refuseBlocked(hash, key, now, request, decision); refused {
				return basis
			}
		}
		if c.occupied && !request.inLine && request.n != 0 && c.lines.Has(key) {
			return c.refuseBehind(key, request, decision)
		}
		if entry := c.view.Load(hash, key); entry != nil {
			if basis, alive := c.takeEntry(entry, hash, now, request, decision, receipt); alive {
				return basis
			}
		}
	}
	return c.takeNew(hash, ok, key, now, request, decision, receipt)
}

// remembers reports whether takes under the limit, or the terms' own if it is nil, have to be remembered to
// be given back exactly.
func remembers(limit policy.Policy, terms *table.Terms) bool {
	return terms.Occupier == nil && restorerOf(limit, terms) == nil
}

// restorerOf returns the limit as a policy.Restorer, or the terms' own limit if the limit is nil. Takes
// under other limits have to be remembered.
func restorerOf(limit policy.Policy, terms *table.Terms) policy.Restorer {
	if limit == nil {
		return terms.Restorer
	}
	restorer, _ := limit.(policy.Restorer)
	return restorer
}

// plain returns the state of a word that was used under these terms. ok is false if the word is unused, of
// other terms, or dead. It is Choke's comparison.
func plain(terms *table.Terms, word uint64) (state uint64, ok bool) {
	state = word ^ terms.EpochBit
	return state, state-1 < policy.MaxWord
}

// takeEntry answers request in decision by the entry's word, and advances the word by
// compare-and-swap. receipt, if not nil, is the receipt. alive is false if the entry is dead:
// nothing was taken, and the key must be looked up again. The loops of Choke, ask and takeKnown
// also raise a word. Each Accept swaps once.
//
// A take that may be given back is remembered, and so is a charge beside remembered takes. The log of the entry is
// locked from before the swap, so that takes are remembered in the order of their swaps.
func (c *Cell[K]) takeEntry(
	entry *table.Entry[K], hash uint64, now policy.Instant, request *request, decision *policy.Decision, receipt *Receipt,
) (basis Basis, alive bool) {
	for {
		returned := entry.Returned()
		word, terms := c.view.Read(entry)
		if terms.Occupier != nil {
			// The count is read after the word: see release.
			returned = entry.Returned()
		}
		if c.isOutdated(&request.choice) {
			// The word may be of another limit than the choice: see switching.
			request.choice = c.choose(entry.Key())
			continue
		}
		state, ok := plain(terms, word)
		if !ok {
			if state, alive = terms.State(word); !alive {
				return Basis{}, false
			}
			if state == 0 && request.switched != nil && word != terms.EpochBit {
				// The entry must land first, since SwitchLimit does not find a tentative entry.
				entry.Advance(word, terms.EpochBit)
				continue
			}
			if state == 0 && request.n != 0 {
				// The key may have been used, drained and forgotten since now was read. This entry
				// does not remember those takes, so a take dated back to then would be free.
				now = max(now, c.view.Horizon())
			}
		}
		// These are the steps of decide, written out: Reserve and Cancel then take 160 ns, not 177.
		var next uint64
		plain := request.plain()
		if plain {
			next = terms.Take(state, now, request.n, max(request.patience, 0), decision)
			plain = request.patience != noDelay || decision.Allowed && decision.Wait == 0
		}
		if !plain {
			next = request.decideOther(terms, state, now, decision)
		}
		switch {
		case request.n == 0 || !decision.Allowed || request.charge && next == state:
			if request.limit == nil {
				return Basis{}, true
			}
			return c.basis(request.limit, decision), true
		case next > policy.MaxWord:
			// A policy that breaks its contract must not break the table.
			*decision = policy.Decision{Limit: decision.Limit, RetryAfter: policy.Never}
			return Basis{}, true
		}
		if request.limit != nil && decision.Wait > 0 {
			entry.MarkForeignTurn()
		}
		after := next | terms.EpochBit
		// Success hands the units to this call; nothing else has to agree. A tentative entry lands
		// by this swap.
		var log *underway.EntryLog[table.Level]
		if (request.charge || receipt != nil && !request.brief) && decision.Wait == 0 && remembers(request.limit, terms) {
			log = c.lockLog(&entry.Level, hash, request.charge)
		}
		var taken bool
		if returned != 0 && receipt != nil && terms.Occupier != nil {
			taken = c.advanceIn(entry, returned, word, after)
		} else {
			taken = entry.Advance(word, after)
		}
		if taken && receipt != nil {
			receipt.level, receipt.epoch, receipt.before, receipt.after = &entry.Level, terms.Epoch, state|terms.EpochBit, after
			receipt.takenAt, receipt.returned = now, returned
		}
		if log != nil {
			if taken {
				mark := underway.Mark{Word: next, Epoch: terms.Epoch, Returned: returned}
				id := log.Add(orOwn(request.limit, terms), state, mark, now, request.n)
				if receipt != nil {
					receipt.remembered = Remembered{Log: log, ID: id}
				}
			}
			entry.UnlockReturn()
		}
		if taken {
			if c.warns != nil {
				basis.passed = c.warns.passed(terms, request.limit, state, now, request.n, decision)
			}
			return basis, true
		}
		// Another call was faster. Decide again, at the same instant.
	}
}

// basis returns the basis of an answer under limit, by the key's word or for an unused key. It
// reports the first limit of another family to Options.OnMisfit.
func (c *Cell[K]) basis(limit policy.Policy, decision *policy.Decision) Basis {
	// Only a misfit is refused with a Limit of 0, except by policies outside package policy.
	if limit == nil || decision.Allowed || decision.Limit != 0 || c.view.Terms().ReadsWordsOf(limit) {
		return Basis{}
	}
	if c.onMisfit != nil && c.misfitSeen.CompareAndSwap(false, true) {
		c.onMisfit(limit)
	}
	return Basis{reason: misfit}
}

// Count counts a call's final answer. A refusal by the key's word may block the key, and d then
// includes the time of the block. A refusal for ever does not count toward a block.
func (c *Cell[K]) Count(key K, d *policy.Decision, basis Basis) {
	if due := c.CountOnly(d.Allowed, basis); due != (Due{}) {
		c.Finish(key, d, due)
	}
}

// Tally returns the cell's counts.
func (c *Cell[K]) Tally() *Tally { return &c.tally }

// Due is the work left for a counted answer. The zero Due is none.
type Due struct {
	// weight is the weight of a sampled refusal, and 0 if the refusal is not sampled.
	weight uint64
	punish bool
	passed warn.Set
}

// CountOnly is Count for callers without key and decision. Unless due is zero, the caller must call
// Finish next.
func (c *Cell[K]) CountOnly(allowed bool, basis Basis) (due Due) {
	switch {
	case allowed:
		c.tally.CountAdmitted()
		if basis.reason != 0 {
			c.admittedBy[basis.reason].Add(1)
		}
		return Due{passed: basis.passed}
	case basis.reason == 0:
		mine := c.tally.mine()
		if number, mayBe := mine.refuse(); mayBe {
			due.weight = c.drawRefusal(mine, number)
		}
	case basis.reason == blocked:
		c.tally.mine().blocked.Add(1)
		due.weight = c.refused.sample.Draw()
	default:
		c.refusedBy[basis.reason].Add(1)
		due.weight = c.refused.sample.Draw()
	}
	due.punish = basis.byWord() && c.blocks.Load() != nil
	return due
}

// Finish does the work that CountOnly left for a key and its decision.
func (c *Cell[K]) Finish(key K, decision *policy.Decision, due Due) {
	if due.passed != 0 {
		c.warn(key, due.passed, decision)
	}
	if due.weight != 0 {
		c.addRefusal(key, due.weight)
	}
	if due.punish {
		c.Punish(key, decision)
	}
}

func (c *Cell[K]) countBlocked(key K) {
	c.tally.mine().blocked.Add(1)
	if weight := c.refused.sample.Draw(); weight != 0 {
		c.addRefusal(key, weight)
	}
}

// advanceIn is Entry.Advance for a take that may be released, on a key that was reset before. It
// fails if another reset came since the count was read, after which the word may have come back. A
// policy that calls the engine may hold the lock.
func (c *Cell[K]) advanceIn(entry *table.Entry[K], returned, word, next uint64) bool {
	if entry.LockReturn() || c.seam.TryLock("takes: locked", entry.LockReturn, entry.UnlockReturn) {
		defer entry.UnlockReturn()
	}
	return entry.Returned() == returned && entry.Advance(word, next)
}

// Remembered names the take of an Offer in the log of its entry.
type Remembered = underway.Receipt[table.Level]

// lockLog returns the log of a level, for a take or a charge that is remembered, and acquires the level's return
// lock. It returns nil if a charge finds no log, or if the lock is not free soon: a policy that calls the engine may
// hold it.
func (c *Cell[K]) lockLog(level *table.Level, hash uint64, charge bool) (log *underway.EntryLog[table.Level]) {
	if !charge {
		log = c.underway.Open(hash, level)
	} else if log = c.underway.Find(hash, level); log == nil {
		return nil
	}
	if !level.LockReturn() && !c.seam.TryLock("takes: locked", level.LockReturn, level.UnlockReturn) {
		return nil
	}
	return log
}
