package lease

import (
	"container/list"
	"math"
	"time"

	"github.com/ral-limiter/ral/policy"
)

// hold is units that were paid, and what is needed to know how long they may be used
// and to give them back. Without units it is nothing.
type hold struct {
	units  int64
	sent   time.Time      // when they were asked for
	end    time.Time      // when they lapse
	window policy.Instant // in which they were paid; 0 of a funnel
	word   uint64         // as of the grant
	at     policy.Instant
}

// live reports whether there is anything to use.
func (h hold) live(now time.Time) bool { return h.units > 0 && now.Before(h.end) }

// with adds units that were paid at another time: they all lapse when the first of them
// do, and count as old as the oldest.
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

// question is an account that the bank is to be asked for. The key is whole: the account
// may have its hash only.
type question struct {
	*account
	key string
}

// account holds what is known of a key apart from its word. Leases.mu guards it.
type account struct {
	name string // of the key: see Config.Name
	// current is the hold that was last written into the key's word. Its units are as of then.
	current hold
	// next is paid as well, and follows when current runs out. Leases of a funnel
	// cannot be added up: they end at different times.
	next hold
	// calls wait for an answer of the bank.
	calls []*call
	// asked is set from when the account is put into the channel until it is answered.
	asked bool

	// demand is measured from one ask to the next.
	demand struct {
		known bool // that there was an ask before
		since time.Time
		had   int64 // units that were there then
		got   int64 // units that came since, by grants
		low   int64 // units that will be used in a round trip, at the pace of then
	}
	// left is what was left of the limit when the bank last told, and when.
	left struct {
		units  int64
		at     time.Time
		window time.Time // when it ends, if the limit has windows
	}
	// refused is what the bank said last if it was no: so many units are not there
	// before until. times counts since it last said yes.
	refused struct {
		units int64
		until time.Time
		times int
	}

	// pace counts calls, those that leases answered included: few are not worth a lease.
	pace pace
	// saved is how many calls were answered by leases or wait for one, less the commands of
	// Redis that leases cost. widest is the most units that a call asked for, by
	// which units used are converted to calls.
	saved  float64
	widest int64

	touched time.Time
	place   *list.Element
}

// pace counts calls in two buckets of a term each, like a sliding window.
type pace struct {
	since       time.Time // when now began
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

// call is one that waits for an answer.
type call struct {
	n      int64
	answer chan answer // of one slot
	gone   bool        // it does not wait any more; guarded by Leases.mu
}

type answer struct {
	policy.Decision
	err error
}

// book is the accounts, those that were touched first in front. Leases.mu guards it.
type book struct {
	accounts map[string]*account
	order    *list.List
	most     int
}

func newBook(most int) book {
	return book{accounts: map[string]*account{}, order: list.New(), most: most}
}

// open returns the account of the key of that name, and makes one if there is none. It returns nil if
// there is no place for it, and old if another had to go.
func (b *book) open(name string, now time.Time) (a, old *account) {
	if a = b.accounts[name]; a != nil {
		return a, nil
	}
	if len(b.accounts) >= b.most {
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

// busy reports whether the account waits for the bank's answer, or calls wait for it.
func (a *account) busy() bool { return a.asked || len(a.calls) > 0 }

// first returns the account that was touched first, or nil.
func (b *book) first() *account {
	if front := b.order.Front(); front != nil {
		return front.Value.(*account)
	}
	return nil
}

// touch moves an account to the end.
func (b *book) touch(a *account, now time.Time) {
	a.touched = now
	b.order.MoveToBack(a.place)
}

func (b *book) remove(a *account) {
	b.order.Remove(a.place)
	delete(b.accounts, a.name)
}

// What leases are sized by.
const (
	// Units are to last for this part of a term at the pace of late, or for a round trip if
	// that is longer, when they come from the bank. Longer asks less often; shorter strands
	// less when the load goes elsewhere.
	horizon = 4
	// A refused key is not asked for again before this part of a term has passed: if several
	// servers want more than there is, each asks so often. The part is of the term before a
	// default one is shortened.
	pauses = 16
	// Two commands give units back.
	backCost = 2
	// A refusal holds for as long as the bank says, up to a term. The next one in a row
	// holds for up to twice that, and so on, so many times: others may give back.
	longest = 4
	// A key is worth leases from this many calls a term on. An ask costs Redis one command,
	// as a call that it decides does, and units that are given back cost two more. At random
	// calls, of 2 to 4 a term, keys that were leased from 2, 4 and 6 calls on cost up to 1.17,
	// 1.05 and 1.01 commands a call, and from 8 on 1.00: see TestFewCallsAreNotLeased.
	worthwhile = 8
)

// size returns how many units to ask for ahead of need, which waiting calls need: as many as
// will be used at the recent pace within a round trip and the horizon, at most twice what was
// used, less left, which are there still. At most half of what is left of the limit is spread
// over the servers that way.
func (a *account) size(p *Plan, now time.Time, left, need int64, servers int, trip time.Duration) int64 {
	d := &a.demand
	used := max(d.had+d.got-left, 0) + need
	span := now.Sub(d.since).Seconds()
	// Within a round trip no pace can be told. The shortest span that is believed is a
	// pause: more comes after that.
	rate := float64(used) / max(span, p.pause.Seconds())
	d.since, d.had, d.got = now, left, 0

	term := p.term(trip)
	trip = min(trip, term/horizon)
	ahead := int64(math.Ceil(1.25 * rate * (max(p.near/horizon, trip) + trip).Seconds()))
	d.low = int64(math.Ceil(1.5 * rate * trip.Seconds()))
	if ahead = min(ahead, 2*used); !d.known {
		ahead = 0 // a key's first ask may be its only one
	}
	d.known = true
	n := int64(max(servers, 1))
	share := a.remains(p, now) / (2 * n)
	share = max(share, int64(p.rate*max(p.pause, trip).Seconds())/n)
	return max(min(ahead, share, p.Most)-left, 0)
}

// remains is what is left of the limit, as far as can be known here.
func (a *account) remains(p *Plan, now time.Time) int64 {
	switch {
	case a.left.at.IsZero():
		return p.Limit()
	case !a.left.window.IsZero():
		if now.Before(a.left.window) {
			return a.left.units
		}
		return p.Limit()
	}
	return min(a.left.units+int64(p.rate*now.Sub(a.left.at).Seconds()), p.Limit())
}
