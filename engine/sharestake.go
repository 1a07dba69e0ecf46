package engine

import (
	"errors"
	"time"

	"github.com/ral-limiter/ral/internal/core/escape"
	"github.com/ral-limiter/ral/internal/core/frequent"
	"github.com/ral-limiter/ral/internal/core/underway"
	"github.com/ral-limiter/ral/policy"
	"github.com/ral-limiter/ral/supervisor"
)

// ShareDecision is the answer to a call of Shares. Limit, Remaining and ResetAfter are those of the tenant's
// guarantee. A call may borrow more than Limit. Without a guarantee Limit is the most units that a
// call can borrow, and Remaining and ResetAfter are 0. RetryAfter is the time until the guarantee or a loan
// has room, whichever is earlier. For a loan that is no promise, as other tenants borrow.
type ShareDecision struct {
	policy.Decision
	// Borrowed reports whether the units are lent.
	Borrowed bool
}

// Choke reports whether the tenant may act now, and takes a unit if so. It is Take(tenant, 1).Allowed.
func (s *Shares[K]) Choke(tenant K) bool { return s.Take(tenant, 1).Allowed }

// Take takes n units of the tenant's guarantee, or else borrows n units. n below 0, and n above both
// the guarantee's capacity and what the group lends, are refused with policy.Never. n == 0 looks, and is
// not counted. It never waits, except for a moment if the tenant has no entry. For a tenant with a guarantee it
// allocates nothing.
func (s *Shares[K]) Take(tenant K, n int64) (shareDecision ShareDecision) {
	call := shareCall[K]{shares: s, tenant: tenant, n: n, now: s.now()}
	call.take(&shareDecision)
	return shareDecision
}

// Reserve is Take for units that may be given back. With patience, and if it cannot borrow now, it takes
// the guarantee's units for a turn within patience, of at most 4 years: use them after
// Decision.Wait. Nothing is borrowed ahead.
func (s *Shares[K]) Reserve(tenant K, n int64, patience time.Duration) (shareReservation ShareReservation[K]) {
	patience = min(max(patience, 0), time.Duration(maxDrain))
	call := shareCall[K]{shares: s, tenant: tenant, n: n, now: s.now(), patience: patience, held: escape.Hide(&shareReservation.held)}
	call.take(&shareReservation.ShareDecision)
	return shareReservation
}

// ShareReservation has the units that Reserve took. If it is Allowed, act after Wait, and call Keep if
// less was needed, or Cancel; the first call ends it. Its methods are for one goroutine at a time. Do
// not end a copy as well. The zero ShareReservation is a refusal.
type ShareReservation[K comparable] struct {
	ShareDecision
	// Waited is the time that Acquire waited in line.
	Waited time.Duration
	held   shareHeld[K]
}

// Cancel gives the units back to the group, and to the tenant's guarantee or its ceiling. It is as if the call had
// never been made, except that turns promised to other calls stand, and under the conditions of
// Reservation.Cancel: the calls since, of all tenants, are Reserve, Cancel and Keep. If other calls
// took units, less may come back, and the guarantee gets at most as many units as the group. After
// SetGuarantee, SetCeiling, or the end of the tenant's entry, only the group gets units back. A
// give-back never refuses a call.
func (r *ShareReservation[K]) Cancel() { r.Keep(0) }

// Keep ends the reservation with n of its units used, and gives the others back on the terms of
// Cancel. n below 0 is 0. All units, or more, give nothing back.
func (r *ShareReservation[K]) Keep(n int64) {
	shares, tenant := r.held.shares, r.held.tenant
	if r.held.keep(n); shares != nil {
		shares.turns.wake(tenant)
	}
}

// Extend lets units in use of a policy.InFlight begin their longest time anew: see Reservation.Extend.
func (r *ShareReservation[K]) Extend() bool {
	return r.held.shares != nil && r.held.shares.longest > 0 && r.held.change(policy.Occupier.Extend)
}

// shareCall is a call of a tenant.
type shareCall[K comparable] struct {
	shares   *Shares[K]
	tenant   K
	n        int64
	patience time.Duration
	now      policy.Instant
	// held is nil if nothing is given back.
	held *shareHeld[K]

	// own and ceiling are nil if there is none.
	own, ceiling *account
	// barred reports whether the tenant must not borrow, as its ceiling cannot be kept.
	barred bool
	// turn is not nil if the call is the first in its tenant's line.
	turn *shareTurn[K]
}

// take answers the call in d, and counts it.
func (c *shareCall[K]) take(d *ShareDecision) {
	c.decide(d)
	c.count(d)
}

func (c *shareCall[K]) count(shareDecision *ShareDecision) {
	shares := c.shares
	switch {
	case c.n == 0:
	case !shareDecision.Allowed:
		shares.guaranteed.CountRefused()
		c.sampleIn(&shares.refusedBy)
	case shareDecision.Borrowed:
		shares.borrowed.CountAdmitted()
		c.sampleIn(&shares.lentBy)
	default:
		shares.guaranteed.CountAdmitted()
	}
	if c.held == nil && shareDecision.Allowed {
		shares.countUnheld(c.tenant, c.n)
	}
}

// countUnheld counts an admitted call whose units in use, if it took any, nothing releases.
func (s *Shares[K]) countUnheld(tenant K, n int64) {
	if s.misuse != nil && n > 0 {
		s.misuse.unheldUnits(tenant)
	}
}

// decide is take, without a count.
func (c *shareCall[K]) decide(shareDecision *ShareDecision) {
	shares := c.shares
	for alive := false; !alive; {
		if shares.closed.Load() {
			*shareDecision = shares.closedDecision()
			break
		}
		c.findOwn()
		if c.held == nil {
			alive = c.takeOnce(shareDecision)
			continue
		}
		// Functions of the program run before the lock is taken.
		c.findCeiling()
		shares.giving.Lock()
		alive = c.takeOnce(shareDecision)
		shares.giving.Unlock()
	}
}

func (s *Shares[K]) closedDecision() (decision ShareDecision) {
	decision.Limit, decision.RetryAfter = s.lend.Limit(), s.config.Config.OpenTimeout
	return decision
}

// takeOnce decides the call. alive is false if an account has left meanwhile: nothing was
// taken.
func (c *shareCall[K]) takeOnce(shareDecision *ShareDecision) (alive bool) {
	if alive = c.takeOwn(0, &shareDecision.Decision); !alive || shareDecision.Allowed {
		return alive
	}
	var loan policy.Decision
	if alive = c.borrow(&loan); !alive {
		return false
	}
	if !loan.Allowed && c.patience > 0 {
		if alive = c.takeOwn(c.patience, &shareDecision.Decision); !alive || shareDecision.Allowed {
			return alive
		}
	}
	shareDecision.answer(loan, c.n)
	return true
}

// answer completes the refusal of the guarantee by the answer about a loan of n units.
func (d *ShareDecision) answer(loan policy.Decision, n int64) {
	if d.RetryAfter = min(d.RetryAfter, loan.RetryAfter); loan.Allowed {
		d.Allowed, d.RetryAfter, d.Borrowed = true, 0, n > 0
	}
}

// takeOwn takes the units from the tenant's guarantee, or refuses.
func (c *shareCall[K]) takeOwn(patience time.Duration, decision *policy.Decision) (alive bool) {
	shares := c.shares
	if c.own == nil {
		*decision = shares.unguaranteed(c.n)
		return true
	}
	return c.takeBoth(c.own, shares.own.from(c.own, c.now), patience, shares.whole, decision)
}

// unguaranteed returns the answer of a guarantee to a tenant that has none: a refusal, or a look.
func (s *Shares[K]) unguaranteed(n int64) policy.Decision {
	decision := policy.Decision{Allowed: n == 0, Limit: s.lend.Limit()}
	if n != 0 {
		decision.RetryAfter = policy.Never
	}
	return decision
}

// barred returns the refusal of a loan whose ceiling cannot be kept. RetryAfter is a guess.
func (s *Shares[K]) barred() policy.Decision {
	return policy.Decision{RetryAfter: s.config.Config.Idle}
}

// borrow takes the units from the group alone, and from the tenant's ceiling, or refuses.
func (c *shareCall[K]) borrow(decision *policy.Decision) (alive bool) {
	shares := c.shares
	if c.held == nil {
		c.findCeiling()
	}
	waiting := c.turn != nil || shares.turns.active.Load() > 0
	if c.ceiling == nil && !c.barred && !waiting {
		c.borrowOfGroup(decision)
		return true
	}
	// All is looked at first, so that a refused call nearly never changes the ceiling.
	instant, ceiling := c.now, policy.Decision{Allowed: true}
	if *decision = shares.lendWord(c.now).look(c.n); c.barred {
		ceiling = shares.barred()
	} else if c.ceiling != nil {
		instant = shares.ceilings.from(c.ceiling, c.now)
		_, ceiling = c.ceiling.limit.Take(min(c.ceiling.word.Load(), policy.MaxWord), instant, c.n, 0)
	}
	if waiting && !shares.turns.has(c.turn, decision, &ceiling) || !decision.Allowed || !ceiling.Allowed {
		decision.Allowed, decision.RetryAfter = false, max(decision.RetryAfter, ceiling.RetryAfter)
		return true
	}
	if c.ceiling == nil {
		c.borrowOfGroup(decision)
		alive = true
	} else {
		alive = c.takeBoth(c.ceiling, instant, 0, shares.lend, decision)
	}
	if alive && decision.Allowed && c.turn != nil {
		shares.turns.serve(c.turn)
	}
	return alive
}

func (c *shareCall[K]) borrowOfGroup(decision *policy.Decision) {
	var taken underway.Taken
	c.shares.group.take(c.shares.lend, c.now, c.n, 0, decision, &taken)
	if c.held != nil && decision.Allowed {
		c.held.hold(c, c.shares.lend, &taken)
	}
}

// lendWord returns the group's word for loans.
func (s *Shares[K]) lendWord(now policy.Instant) accountWord {
	return accountWord{s.lend, s.group.word.Load(), now}
}

// takeBoth takes the units from a tenant's account, and then, at the same instant, from the group under
// a limit, or from none.
func (c *shareCall[K]) takeBoth(account *account, now policy.Instant, patience time.Duration, limit bucket, decision *policy.Decision) (alive bool) {
	shares := c.shares
	var first, second underway.Taken
	if !account.take(account.limit, now, c.n, patience, decision, &first) {
		return false
	}
	if !decision.Allowed || c.n == 0 {
		return true
	}
	group := policy.Decision{Allowed: true}
	if limit != nil {
		shares.group.take(limit, now, c.n, 0, &group, &second)
	}
	switch {
	// Another call has borrowed since the look, or time stands still.
	case !group.Allowed:
		if c.held == nil {
			shares.giving.Lock()
			defer shares.giving.Unlock()
		}
		shares.giveBack(account, nil, &first, 0)
		decision.Allowed, decision.Wait, decision.RetryAfter = false, 0, group.RetryAfter
	case c.held != nil:
		c.held.hold(c, limit, &second)
		c.held.holdFirst(c.hash(), account, &first, limit == shares.whole)
	}
	return true
}

func (c *shareCall[K]) hash() uint64 {
	// A tenant with an account has a hash.
	hash, _ := c.shares.own.hash(c.tenant)
	return hash
}

// shareHeld has the units of a reservation. The zero shareHeld has none. Its methods need Shares.giving,
// except keep.
type shareHeld[K comparable] struct {
	shares *Shares[K]
	tenant K
	group  underway.Taken
	// account, of the guarantee or the ceiling, is nil if only the group was taken from.
	account *account
	first   underway.Taken
	log     *underway.EntryLog[account]
	hash    uint64
	// guaranteed reports whether account is the guarantee's.
	guaranteed bool
}

func (h *shareHeld[K]) hold(shareCall *shareCall[K], limit bucket, taken *underway.Taken) {
	if shareCall.shares.longest == 0 {
		taken.ID = shareCall.shares.groupLog.Add(limit, taken.Before, underway.Mark{Word: taken.After, Returned: taken.Returned}, taken.At, shareCall.n)
	}
	h.shares, h.tenant, h.group = shareCall.shares, shareCall.tenant, *taken
}

func (h *shareHeld[K]) holdFirst(hash uint64, account *account, taken *underway.Taken, guaranteed bool) {
	h.account, h.first, h.hash, h.guaranteed = account, *taken, hash, guaranteed
	if h.shares.longest > 0 || taken.Wait > 0 {
		// Only the policy knows the room that a give-back must leave to the turn.
		return
	}
	h.log = h.shares.logs.Open(hash, account)
	h.first.ID = h.log.Add(account.limit, taken.Before, underway.Mark{Word: taken.After, Returned: taken.Returned}, taken.At, taken.N)
}

func (h *shareHeld[K]) keep(used int64) {
	shares := h.shares
	if shares != nil && shares.longest > 0 {
		h.change(policy.Occupier.Release)
		used = h.group.N
	}
	h.shares = nil
	used = max(used, 0)
	if shares == nil || used >= h.group.N {
		return
	}
	shares.giving.Lock()
	defer shares.giving.Unlock()
	lowered, exact := shares.groupLog.GiveBack(&shares.group.word, &shares.group.returned, shares.whole, &h.group, used, shares.now)
	if h.account == nil {
		return
	}
	if h.guaranteed && !exact {
		// The guarantee could give out at once what the group still has.
		used = max(used, h.group.N-int64(lowered/shares.groupTicks))
	}
	if used >= h.group.N {
		return
	}
	log := h.log
	if log == nil {
		log = shares.logs.Find(h.hash, h.account)
	}
	shares.giveBack(h.account, log, &h.first, used)
}

// change releases or extends the units of a reservation, which are in use, where they were taken. It returns false, and counts
// the call, if any no longer count.
func (h *shareHeld[K]) change(change occupierChange) (ok bool) {
	if ok = h.changeWords(change); !ok {
		h.shares.overstayed.Add(1)
		h.shares.misuse.overstayed(h.tenant)
	}
	return ok
}

func (h *shareHeld[K]) changeWords(change occupierChange) (ok bool) {
	shares := h.shares
	if ok = true; h.group.N > 0 {
		ok, _ = shares.group.change(change, &h.group, shares.now)
	}
	if h.account == nil {
		return ok
	}
	first, alive := h.account.change(change, &h.first, shares.now)
	if !alive {
		accounts := &shares.ceilings
		if h.guaranteed {
			accounts = &shares.own
		}
		// The account may have been replaced. Then the units are in the new account.
		shares.mu.Lock()
		defer shares.mu.Unlock()
		if account := accounts.load(h.tenant); account != nil {
			first, _ = account.change(change, &h.first, shares.now)
		}
	}
	return ok && first
}

// giveBack lowers the word of a tenant's account. log may be nil. It needs giving.
func (s *Shares[K]) giveBack(account *account, log *underway.EntryLog[account], taken *underway.Taken, used int64) {
	if s.longest > 0 {
		account.change(policy.Occupier.Release, taken, s.now)
		return
	}
	var takes *underway.Log
	if log != nil {
		takes = &log.Log
	}
	takes.GiveBack(&account.word, &account.returned, account.limit, taken, used, s.now)
}

func (c *shareCall[K]) findOwn() {
	limited := false
	if c.own, limited = c.shares.own.open(c.tenant, c.now); limited && c.own == nil {
		c.shares.noteUnguaranteed()
	}
}

func (c *shareCall[K]) findCeiling() {
	limited := false
	c.ceiling, limited = c.shares.ceilings.open(c.tenant, c.now)
	c.barred = limited && c.ceiling == nil
}

// noteUnguaranteed counts a call of a tenant that has to do without its guarantee, and reports the first.
func (s *Shares[K]) noteUnguaranteed() {
	s.borrowed.CountRefused()
	if !s.unguaranteedSeen.Swap(true) {
		s.events.Post(Event{Kind: supervisor.Notice, Supervisor: s.config.Config.Name, Err: errUnguaranteed, Time: time.Now()})
	}
}

var errUnguaranteed = errors.New("a tenant has to do without its guarantee: nothing is left of the reserve, too many tenants have an entry, its key cannot be kept, or the guarantee is of another kind than Total. See SharesStats.Unguaranteed")

// sampleIn counts the call for Tenants.
func (c *shareCall[K]) sampleIn(sample *frequent.Sample[K]) {
	weight := sample.Draw()
	if weight == 0 {
		return
	}
	if hash, ok := c.shares.own.hash(c.tenant); ok {
		sample.Turn(int64(c.now))
		sample.Add(hash, c.tenant, weight)
	}
}
