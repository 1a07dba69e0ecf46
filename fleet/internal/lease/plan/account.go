package plan

import (
	"math"
	"time"

	"github.com/ral-limiter/ral/fleet/internal/store"
	"github.com/ral-limiter/ral/policy"
)

// Hold is paid units, and the data to use and return them. The zero Hold is none.
type Hold struct {
	Units int64
	// Sent is when the units were asked for.
	Sent time.Time
	// End is when the units lapse.
	End time.Time
	// Window is the window that paid the units, or 0 for a funnel.
	Window policy.Instant
	// Word is the word at the grant.
	Word    uint64
	Instant policy.Instant
}

// Live reports whether there are units to use.
func (h Hold) Live(now time.Time) bool { return h.Units > 0 && now.Before(h.End) }

// with adds units paid at another time. All lapse at the first end and are as old as the oldest.
func (h Hold) with(other Hold) Hold {
	if other.Sent.Before(h.Sent) {
		h, other = other, h
	}
	h.Units += other.Units
	if other.End.Before(h.End) {
		h.End = other.End
	}
	return h
}

// Account is what a server knows of a key beside its word. NewAccount makes it.
type Account struct {
	// Current is the hold in the key's word. Its Units are as of the last Use, or of the write if that
	// was later.
	Current Hold
	// Next is a paid hold that goes into the word after Current. Leases of a funnel end apart, so they
	// cannot be added.
	Next Hold

	demand struct {
		// known reports whether there was an ask before.
		known bool
		since time.Time
		// had is the units at that ask.
		had int64
		// got is the units granted since.
		got int64
		// low is the units for a round trip, at that pace.
		low int64
	}
	// left is what the bank had left, as it said last.
	left struct {
		units int64
		since time.Time
		// window is when the window ends, for windows.
		window time.Time
	}
	// refused is the bank's last refusal: it will not grant that many units before until. times
	// counts the refusals since its last grant.
	refused struct {
		units int64
		until time.Time
		times int
	}

	// pace is the pace of all calls, also of those that leases answered.
	pace pace
	// saved is the calls that leases answer, less the Redis commands that leases cost. widest is
	// the most units of a call; it converts used units to calls.
	saved  float64
	widest int64
}

// NewAccount returns the account of a key that is first called now.
func NewAccount(now time.Time) (account Account) {
	account.demand.since = now
	return account
}

// The figures that size leases.
const (
	// New units should last for a term divided by PartsOfTerm at the recent pace, or for a round trip
	// if that is longer. With a larger part of a term, a server asks less often. With a smaller part,
	// fewer unused units stay on a server that lost its load.
	PartsOfTerm = 4
	// backCost is the number of commands to return units.
	backCost = 2
	// A refusal holds as long as the bank says, up to a term. Each further refusal doubles the bound,
	// at most maxDoublings times, since other servers may return units.
	maxDoublings = 4
	// A key is worth leases from this many calls a term on. An ask costs one Redis command, like a
	// call, and a return two more. At random calls, 2 to 4 a term, keys leased from 2, 4 and 6
	// calls on cost up to 1.17, 1.05 and 1.01 commands a call, and from 8 on 1.00: see
	// TestFewCallsAreNotLeased.
	worthwhile = 8
)

// Worthwhile counts a call of n units that needs the bank, and the calls that the key's word has
// answered since. left is the number of the word's remaining units. It reports whether to lease the key. It returns true also from
// a refusal to the next grant, since remembered refusals answer calls.
func (a *Account) Worthwhile(n, left int64, now time.Time, term time.Duration) bool {
	a.widest = max(a.widest, n)
	return a.pace.add(1+a.Use(left), now, term) >= worthwhile || a.refused.times > 0
}

// Use returns a lower bound of the calls that the word has answered since the last Use. left is its
// units, ended or not.
func (a *Account) Use(left int64) (calls float64) {
	if a.Current.Units == 0 || a.widest == 0 {
		return 0
	}
	calls = float64(max(a.Current.Units-left, 0)) / float64(a.widest)
	a.Current.Units = left
	a.saved += calls
	return calls
}

// CountAnswered counts a call that a lease answers, beside those that the word has answered.
func (a *Account) CountAnswered() { a.saved++ }

// Afford returns how many units to ask for at most beyond the waiting calls', and counts the ask: no
// more than leases were of use so far, so that little is lost if no more calls come. left is as for
// Use.
func (a *Account) Afford(left int64) int64 {
	a.Use(left)
	a.saved--
	return int64(max(2*a.saved, 1)) * max(a.widest, 1)
}

// Earned reports whether leases saved the commands of a return, and spends them.
func (a *Account) Earned() bool {
	if a.saved < backCost {
		return false
	}
	a.saved -= backCost
	return true
}

// Size returns how many units to ask for beyond need, the waiting calls' units. It covers a round
// trip and a part of a term at the recent pace, and is at most twice the use. left, the units still
// held, is subtracted. At most half of the limit's rest is spread over the servers.
func (a *Account) Size(plan *Plan, now time.Time, left, need int64, servers int, roundTrip time.Duration) int64 {
	d := &a.demand
	used := max(d.had+d.got-left, 0) + need
	span := now.Sub(d.since).Seconds()
	// The pace within a round trip is unknown. The shortest believed span is a pause.
	rate := float64(used) / max(span, plan.Pause.Seconds())
	d.since, d.had, d.got = now, left, 0

	term := plan.TermAt(roundTrip)
	roundTrip = min(roundTrip, term/PartsOfTerm)
	extra := int64(math.Ceil(1.25 * rate * (max(plan.near/PartsOfTerm, roundTrip) + roundTrip).Seconds()))
	d.low = int64(math.Ceil(1.5 * rate * roundTrip.Seconds()))
	if extra = min(extra, 2*used); !d.known {
		// The key's first ask may be its only ask.
		extra = 0
	}
	d.known = true
	n := int64(max(servers, 1))
	share := a.remains(plan, now) / (2 * n)
	share = max(share, int64(plan.rate*max(plan.Pause, roundTrip).Seconds())/n)
	return max(min(extra, share, plan.Most)-left, 0)
}

func (a *Account) remains(plan *Plan, now time.Time) int64 {
	switch {
	case a.left.since.IsZero():
		return plan.Limit()
	case !a.left.window.IsZero():
		if now.Before(a.left.window) {
			return a.left.units
		}
		return plan.Limit()
	}
	return min(a.left.units+int64(plan.rate*now.Sub(a.left.since).Seconds()), plan.Limit())
}

// Learn records the bank's answer: how many units it has left.
func (a *Account) Learn(plan *Plan, leaseReply store.LeaseReply, now time.Time) {
	a.left.units, a.left.since = leaseReply.Decision.Remaining, now
	if end := plan.window(leaseReply); end != 0 {
		a.left.window = now.Add(time.Duration(end - leaseReply.At))
	}
}

// Granted returns the units of a grant that was asked for at sent, and forgets refusals.
func (a *Account) Granted(plan *Plan, leaseReply store.LeaseReply, sent time.Time, term time.Duration) Hold {
	a.ForgetRefusals()
	a.demand.got += leaseReply.Granted
	return Hold{
		Units: leaseReply.Granted, Sent: sent, End: sent.Add(plan.lasts(leaseReply, term)),
		Window: plan.window(leaseReply), Word: leaseReply.After, Instant: leaseReply.At,
	}
}

// Exhausted records that the bank has no more units. To ask for each unit that drains from now on
// would be exact mode.
func (a *Account) Exhausted(until time.Time) { a.refused.units, a.refused.until = 1, until }

// Refuse records that the bank refused need units, and returns how long the refusal holds: as long
// as the bank says, between pause and the bound of maxDoublings.
func (a *Account) Refuse(need int64, retry, term, pause time.Duration, now time.Time) (wait time.Duration) {
	r := &a.refused
	r.times++
	wait = max(min(retry, term<<min(r.times-1, maxDoublings)), pause)
	r.units, r.until = need, now.Add(wait)
	return wait
}

// ForgetRefusals forgets the bank's refusals.
func (a *Account) ForgetRefusals() { a.refused.units, a.refused.times = 0, 0 }

// Refused returns until when the bank's last refusal refuses n units, and whether it does.
func (a *Account) Refused(n int64, now time.Time) (until time.Time, refused bool) {
	r := &a.refused
	return r.until, r.units > 0 && n >= r.units && now.Before(r.until)
}

// RefusedLately reports whether the bank's last answer was a refusal, which ended less than a term ago.
func (a *Account) RefusedLately(now time.Time, term time.Duration) bool {
	return a.refused.times > 0 && now.Before(a.refused.until.Add(term))
}

// Queue keeps hold as Next and returns true if the key's word has units left and hold cannot be
// added to them.
func (a *Account) Queue(hold Hold, left int64, now time.Time) bool {
	if left == 0 || a.Adds(hold) {
		return false
	}
	if a.Next.Live(now) {
		hold = hold.with(a.Next)
	}
	a.Next = hold
	return true
}

// Adds reports whether units are added to those in the key's word: they are of one window.
func (a *Account) Adds(hold Hold) bool { return hold.Window != 0 && hold.Window == a.Current.Window }

// Low returns the number of units left at which to ask for more, for a word of the given units.
func (a *Account) Low(units int64) int64 {
	return min(max(a.demand.low, units/4), units/2)
}

// Forget forgets the units of a key whose word was deleted, and what the bank said of it.
func (a *Account) Forget() {
	a.Current, a.Next = Hold{}, Hold{}
	a.ForgetRefusals()
	a.left.since = time.Time{}
}

// pace counts calls in two buckets of a term each, like a sliding window.
type pace struct {
	// since is the start of now.
	since       time.Time
	now, before float64
}

// add counts calls, and returns how many came in about the last term.
func (p *pace) add(calls float64, now time.Time, term time.Duration) float64 {
	switch age := now.Sub(p.since); {
	case age >= 2*term:
		p.since, p.now, p.before = now, 0, 0
	case age >= term:
		p.since, p.now, p.before = p.since.Add(term), 0, p.now
	}
	p.now += calls
	return p.now + p.before*float64(term-now.Sub(p.since))/float64(term)
}
