package lease

import (
	"container/list"
	"math"
	"time"

	"github.com/ral-limiter/ral/policy"
)

// hold is paid units, and the data to use and return them. The zero value is none.
type hold struct {
	units   int64
	sent    time.Time      // when they were asked for
	end     time.Time      // when they lapse
	window  policy.Instant // that paid them; 0 for a funnel
	word    uint64         // at the grant
	instant policy.Instant
}

func (h hold) live(now time.Time) bool { return h.units > 0 && now.Before(h.end) }

// with adds units paid at another time. All lapse at the first end and are as old as the oldest.
func (h hold) with(other hold) hold {
	if other.sent.Before(h.sent) {
		h, other = other, h
	}
	h.units += other.units
	if other.end.Before(h.end) {
		h.end = other.end
	}
	return h
}

// question is an account to ask the bank for, and its whole key.
type question struct {
	*account
	key string
}

// account is the state of a key, except its word. Leases.mu guards it.
type account struct {
	name    string // see Config.Name
	current hold   // written into the key's word; units are as of then
	// next is paid too, and follows current. Leases of a funnel end apart, so they cannot be added.
	next    hold
	calls   []*call // wait for the bank's answer
	pending bool    // in the channel, or not yet answered

	demand struct {
		known bool // there was an ask before
		since time.Time
		had   int64 // units at that ask
		got   int64 // units granted since
		low   int64 // units for a round trip, at that pace
	}
	left struct {
		units  int64
		since  time.Time
		window time.Time // when it ends, for windows
	}
	// refused is the bank's last refusal: it will not grant that many units before until. times
	// counts the refusals since its last grant.
	refused struct {
		units int64
		until time.Time
		times int
	}

	pace pace // of all calls, also those that leases answered
	// saved is the calls that leases answer, less the Redis commands that leases cost. widest is
	// the most units of a call; it converts used units to calls.
	saved  float64
	widest int64

	touched time.Time
	place   *list.Element
}

// pace counts calls in two buckets of a term each, like a sliding window.
type pace struct {
	since       time.Time // start of now
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

type call struct {
	n      int64
	answer chan answer // has one slot
	gone   bool        // stopped waiting; guarded by Leases.mu
}

type answer struct {
	policy.Decision
	err error
}

// book has the accounts in order of their last touch, the oldest first. Leases.mu guards it.
type book struct {
	accounts    map[string]*account
	order       *list.List
	maxAccounts int
}

func newBook(most int) book {
	return book{accounts: map[string]*account{}, order: list.New(), maxAccounts: most}
}

// open returns the account of a name, and makes it if needed. It returns nil if there is no room,
// and old if another account had to go.
func (b *book) open(name string, now time.Time) (a, old *account) {
	if a = b.accounts[name]; a != nil {
		return a, nil
	}
	if len(b.accounts) >= b.maxAccounts {
		if old = b.first(); old.busy() {
			return nil, nil
		}
		b.remove(old)
	}
	a = &account{name: name}
	a.demand.since = now
	a.place = b.order.PushBack(a)
	a.touched = now
	b.accounts[name] = a
	return a, old
}

func (a *account) busy() bool { return a.pending || len(a.calls) > 0 }

func (b *book) first() *account {
	if front := b.order.Front(); front != nil {
		return front.Value.(*account)
	}
	return nil
}

func (b *book) touch(a *account, now time.Time) {
	a.touched = now
	b.order.MoveToBack(a.place)
}

func (b *book) remove(a *account) {
	b.order.Remove(a.place)
	delete(b.accounts, a.name)
}

// The figures that size leases.
const (
	// New units should last for a term divided by partsOfTerm at the recent pace, or for a round trip
	// if that is longer. A larger part asks less often; a smaller part leaves fewer unused units on a
	// server that lost its load.
	partsOfTerm = 4
	// A refused key is not asked for again before this part of a term has passed, since several
	// servers may want more than there is. A default term counts before it is shortened.
	pauses   = 16
	backCost = 2 // commands to return units
	// A refusal holds as long as the bank says, up to a term. Each further refusal doubles the bound,
	// at most maxDoublings times, since other servers may return units.
	maxDoublings = 4
	// A key is worth leases from this many calls a term on. An ask costs one Redis command, like a
	// call, and a return two more. At random calls, 2 to 4 a term, keys leased from 2, 4 and 6
	// calls on cost up to 1.17, 1.05 and 1.01 commands a call, and from 8 on 1.00: see
	// TestFewCallsAreNotLeased.
	worthwhile = 8
)

// size returns how many units to ask for beyond need, the waiting calls' units. It covers a round
// trip and a part of a term at the recent pace, and is at most twice the use. left, the units still
// held, is subtracted. At most half of the limit's rest is spread over the servers.
func (a *account) size(p *Plan, now time.Time, left, need int64, servers int, roundTrip time.Duration) int64 {
	d := &a.demand
	used := max(d.had+d.got-left, 0) + need
	span := now.Sub(d.since).Seconds()
	// The pace within a round trip is unknown. The shortest believed span is a pause.
	rate := float64(used) / max(span, p.pause.Seconds())
	d.since, d.had, d.got = now, left, 0

	term := p.term(roundTrip)
	roundTrip = min(roundTrip, term/partsOfTerm)
	extra := int64(math.Ceil(1.25 * rate * (max(p.near/partsOfTerm, roundTrip) + roundTrip).Seconds()))
	d.low = int64(math.Ceil(1.5 * rate * roundTrip.Seconds()))
	if extra = min(extra, 2*used); !d.known {
		extra = 0 // the key's first ask may be its only ask
	}
	d.known = true
	n := int64(max(servers, 1))
	share := a.remains(p, now) / (2 * n)
	share = max(share, int64(p.rate*max(p.pause, roundTrip).Seconds())/n)
	return max(min(extra, share, p.Most)-left, 0)
}

func (a *account) remains(p *Plan, now time.Time) int64 {
	switch {
	case a.left.since.IsZero():
		return p.Limit()
	case !a.left.window.IsZero():
		if now.Before(a.left.window) {
			return a.left.units
		}
		return p.Limit()
	}
	return min(a.left.units+int64(p.rate*now.Sub(a.left.since).Seconds()), p.Limit())
}
