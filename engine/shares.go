package engine

import (
	"fmt"
	"math/big"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ral-limiter/ral/cell"
	"github.com/ral-limiter/ral/internal/core/frequent"
	"github.com/ral-limiter/ral/internal/core/shape"
	"github.com/ral-limiter/ral/internal/core/underway"
	"github.com/ral-limiter/ral/internal/core/waitline"
	"github.com/ral-limiter/ral/policy"
	"github.com/ral-limiter/ral/supervisor"
)

// maxTenantUses bounds the tenants that Tenants returns, and the tenants whose calls are counted.
const maxTenantUses = 1000

// Shares holds the calls of all tenants together to one limit, and shares it among them. A tenant
// always gets its guarantee, what others leave idle is lent, and a guarantee that was lent is back at
// once. Call NewShares to make one; the zero value is of no use. Its methods are safe for concurrent
// use. It starts no goroutine.
//
// # How it decides
//
// The group has a funnel of capacity C that drains at the rate R. A part of it, a funnel (B, G), is
// reserved for guarantees. Each tenant's guarantee is a funnel out of that reserve. A call takes its
// units from the tenant's own funnel if that has room, and the group is charged with them in any
// case. Otherwise the call borrows, whole or not at all: from the group alone, if that holds at most
// C-B units afterwards, and from the tenant's ceiling if it has one. A call for more units than both
// the guarantee's capacity and C-B is refused with policy.Never.
//
// # The bound
//
// The group never holds more than C units. Consider an instant at which it is not empty, and the last
// loan before it, or the last instant before it at which the group was empty. The group held at most
// C-B then. In the time t since, only guaranteed units were added. A tenant's funnel with capacity b
// and rate g admits at most b + g*t in a time t, so all together admit at most B + G*t, as the
// guarantees' capacities and rates add up to no more. R*t has drained meanwhile, and G is at most R.
// So no call with room in its own funnel has to be refused, no unit is taken back from a tenant, and
// calls for up to C-B units use all of R.
//
// A call changes two words, its own funnel's first, both at the instant at which it began. If no call
// takes longer than d from that instant to its second word, the group may hold d*G units more: those of
// calls that began up to d before the last loan, and charged the group after it. Reserve takes a guarantee
// ahead by its patience p at the most, which adds p*G. So the bound is C + G*(p+d).
//
// A give-back keeps the bound for one of two reasons. If it was exact, both words are as if the call
// had not been made. Otherwise the group gives back first, and the own funnel at most as many units.
//
// # Units in use
//
// If Total is a policy.InFlight, all limits are, with its longest time. Guaranteed and borrowed units are counted apart: a guaranteed
// call takes from its guarantee alone, and at most C-B units are borrowed. So a guarantee does not wait, at most C units are in use,
// and guaranteed units that are not in use stay idle. Reserve, Acquire and Hold take units that Cancel and Keep release, all of them,
// where they were taken. Units of other verbs end after the longest time.
//
// # What it remembers
//
// A tenant with a guarantee has an entry of about 80 bytes, and its key. The entry leaves when another tenant
// needs an entry, Config.Idle after the tenant owes nothing or up to a sixteenth of that later, and the guarantee
// returns to the reserve with it. With more than 60,000 entries a second of Idle it may be later. A tenant without an entry only borrows, and needs no memory. A ceiling has an entry
// of its own, from the tenant's first loan.
type Shares[K comparable] struct {
	config SharesConfig[K]
	time   timeSource
	total  bucket
	// longest is the longest time of units in use, or 0.
	longest time.Duration
	// whole and lend read and write the group's word for guaranteed and for borrowed units. whole is nil for units in use: the
	// word has only borrowed units then.
	whole, lend bucket
	// groupTicks is the ticks of a unit of the group.
	groupTicks uint64

	// id is a claimer's.
	id uint64

	own      accounts[K]
	ceilings accounts[K]
	events   *supervisor.Mailbox[Event]
	closed   atomic.Bool

	turns shareTurns[K]
	ended chan struct{} // closed by Close

	// mu guards the reserve, and which tenants have accounts. It is locked after giving.
	mu      sync.Mutex
	reserve reserve

	// giving is held by calls that may give back, and by calls that do: see underway.Log. It guards
	// logs and groupLog.
	giving   sync.Mutex
	logs     underway.Logs[account]
	groupLog underway.EntryLog[account]

	_     [128]byte
	group account
	_     [128]byte

	// guaranteed also counts refused calls, and borrowed unguaranteed calls.
	guaranteed, borrowed cell.Tally
	unguaranteedSeen     atomic.Bool
	// lentBy and refusedBy are for Tenants.
	lentBy, refusedBy frequent.Sample[K]

	// misuse is nil without units in use.
	misuse     *misuse[K]
	overstayed atomic.Uint64
}

// SharesConfig configures Shares. Total is required.
type SharesConfig[K comparable] struct {
	// Config has the general settings: Name, Idle, MaxKeys (of tenants with a guarantee, and as many
	// with a ceiling), MaxWaiting (of a tenant), MaxWaitingTotal, Clock, PackageTime and OnEvent. Others must be
	// zero. Policy is Total's.
	Config Config

	// Total is the limit of all tenants together, a policy.Funnel that drains within 4 years, or a policy.InFlight. All other limits
	// are of the same kind.
	Total policy.Policy

	// Reserved is the part of Total out of which guarantees come. Its capacity must
	// be below Total's, and its rate not above Total's as that is rounded. nil is the sum of the
	// guarantees of Tenants.
	Reserved policy.Policy

	// Tenants are known in advance: NewShares takes their guarantees out of the reserve for good, and
	// refuses a configuration that has no room for them.
	Tenants []K

	// Guarantee returns a tenant's guarantee, or nil for none. It is asked when a
	// tenant without an entry calls, so it should be fast and safe for concurrent use. A tenant with an entry keeps its
	// guarantee, whatever the function would return now: see SetGuarantee. A tenant that is not
	// in Tenants gets its guarantee out of what is left of the reserve: that is, the capacity and
	// the rate, rounded as its constructor says. Otherwise it has none, and only borrows: see
	// SharesStats.Unguaranteed. OnEvent receives a supervisor.Notice when that begins. The guarantee returns
	// to the reserve when the tenant's entry leaves. A result of another kind than Total counts as none.
	Guarantee func(tenant K) policy.Policy

	// Ceiling returns a limit that holds the units that a tenant borrows, or nil for none.
	// It is asked when a tenant without an entry for it borrows. A tenant borrows nothing if the result is
	// of another kind than Total, or if MaxKeys others have entries.
	Ceiling func(tenant K) policy.Policy

	// Weight returns the weight of a tenant whose calls wait: while tenants wait, their loans are in the proportion
	// of their weights. In a round each may borrow as many units as its weight is. Small weights have
	// tenants take turns more often. A result that is not positive or not finite counts as 1. If Weight is nil, the weight is the
	// guarantee's part of Total's rate, and that of a tenant without a guarantee is the smallest guarantee's
	// so far.
	Weight func(tenant K) float64
}

// maxDrain is the longest time in which Total may drain. The whole depth of the group's word is twice
// as long: a call may be ahead by as much again.
const maxDrain = policy.Instant(1) << 57

// NewShares checks the configuration, and returns shares in which no unit is used. The error is a
// *policy.FieldError. Capacities and rates are compared exactly. Shares have none of the settings of an
// Option yet, so any is refused.
func NewShares[K comparable](config SharesConfig[K], more ...Option[K]) (*Shares[K], error) {
	if len(more) > 0 {
		return nil, &policy.FieldError{Of: "engine.NewShares", Field: "more", Value: len(more), Want: "no option: shares have no such settings"}
	}
	bad := func(field string, value any, want string) error {
		return &policy.FieldError{Of: "engine.SharesConfig", Field: field, Value: value, Want: want}
	}
	longest := policy.MaxTimeInUse(config.Total)
	total, ok := bucketOf(config.Total, longest)
	if !ok {
		return nil, bad("Total", config.Total, wanted(longest))
	}
	if field := unshared(config.Config); field != "" {
		return nil, bad("Config."+field, "set", "it unset: shares have no such setting, and Total is their policy")
	}
	config.Config.Policy = total
	config.Config = config.Config.withDefaults()
	if err := config.Config.validate(); err != nil {
		return nil, err
	}
	t, capacity := shapeOf(total), total.Limit()
	if t.Depth > uint64(maxDrain)*ticksPerNano {
		return nil, bad("Total", total, "a funnel that drains within 4 years")
	}
	shares := &Shares[K]{
		config: config, time: newTimeSource(config.Config, 1, 1), total: total, longest: longest, groupTicks: t.Interval,
		events: supervisor.NewEventMailbox(oneAtATime(config.Config.OnEvent)),
	}
	shares.id, shares.ended = claimers.Add(1), make(chan struct{})
	shares.turns.lines = waitline.New[K, struct{}](waitline.Options[K]{
		Hash: shares.own.hash, MaxPerKey: shares.config.Config.MaxWaiting, MaxTotal: shares.config.Config.MaxWaitingTotal, Done: shares.ended,
	})
	shares.turns.tenants = map[K]*shareTenant[K]{}
	shares.own.init(config.Config, config.Guarantee, &shares.mu, &shares.reserve)
	shares.ceilings.init(config.Config, config.Ceiling, &shares.mu, nil)
	now := int64(shares.now())
	shares.lentBy.Start(maxTenantUses, int64(time.Minute), now)
	shares.refusedBy.Start(maxTenantUses, int64(time.Minute), now)
	if longest > 0 {
		shares.misuse = newMisuse(&keyEvents[K]{config.Config.Name, shares.own.seed, shares.events})
	}
	shares.logs.MaxKeys = config.Config.MaxKeys
	shares.groupLog.Entry = &shares.group

	// The rate of units in use is not limited: a unit a tick.
	rate := new(big.Rat).SetFrac(big.NewInt(1), unsigned(max(t.Interval, 1)))
	shares.reserve.init(capacity-1, rate.Num(), rate.Denom())
	reserved := int64(0)
	if config.Reserved != nil {
		bucket, ok := bucketOf(config.Reserved, longest)
		if !ok {
			return nil, bad("Reserved", config.Reserved, wanted(longest))
		}
		reserved = bucket.Limit()
		part := shapeOf(bucket)
		count, ticks := big.NewInt(part.Count), new(big.Int).Mul(big.NewInt(int64(part.Per)), big.NewInt(ticksPerNano))
		if longest > 0 {
			count, ticks = rate.Num(), rate.Denom()
		}
		shares.reserve.init(reserved, count, ticks)
		if shares.reserve.limit.Cmp(rate) > 0 {
			return nil, bad("Reserved", bucket, "at most the rate of Total, which is rounded to "+paceText(t.Interval, 0))
		}
	}
	if err := shares.admitTenants(bad); err != nil {
		return nil, err
	}
	if config.Reserved == nil {
		reserved = capacity - 1 - shares.reserve.units
		// Nothing is left for other tenants.
		shares.reserve.units = 0
		shares.reserve.publish()
	}
	switch {
	case reserved >= capacity:
		return nil, bad("Reserved", reserved, fmt.Sprintf("a capacity below Total's, which is %d: the rest is lent", capacity))
	case config.Guarantee != nil && reserved == 0:
		return nil, bad("Reserved", "nil", "a funnel, as there is a Guarantee and no Tenants")
	}
	var err error
	shares.lend, err = withCapacity(total, capacity-reserved)
	if shares.group.limit = shares.lend; err == nil && longest == 0 {
		shares.whole, err = withCapacity(total, int64(2*uint64(maxDrain)*ticksPerNano/t.Interval))
		shares.group.limit = shares.whole
	}
	if err != nil {
		return nil, err
	}
	return shares, nil
}

// unshared returns the first field that is set and has no meaning for Shares.
func unshared(config Config) string {
	return shape.SetBesides(config, "Name", "Idle", "MaxKeys", "MaxWaiting", "MaxWaitingTotal", "Clock", "PackageTime", "OnEvent")
}

// admitTenants gives the tenants that are known in advance their guarantees.
func (s *Shares[K]) admitTenants(bad func(field string, value any, want string) error) error {
	if len(s.config.Tenants) > s.config.Config.MaxKeys {
		return bad("Tenants", len(s.config.Tenants), fmt.Sprintf("at most Config.MaxKeys, %d", s.config.Config.MaxKeys))
	}
	if len(s.config.Tenants) > 0 && s.config.Guarantee == nil {
		return bad("Guarantee", "nil", "a function, as there are Tenants")
	}
	for i, tenant := range s.config.Tenants {
		field := fmt.Sprintf("Guarantee(Tenants[%d])", i)
		p := s.config.Guarantee(tenant)
		if shape.IsNil(p) {
			continue
		}
		limit, ok := bucketOf(p, s.longest)
		switch {
		case !ok:
			return bad(field, p, wanted(s.longest))
		case !s.own.keeps(tenant):
			return bad(field, p, "a tenant that equals itself and can be hashed")
		case s.own.load(tenant) != nil:
			return bad(field, p, "each tenant once")
		case !s.reserve.take(grantOf(limit)):
			return bad(field, p, s.reserve.rest())
		}
		a := &account{limit: limit}
		s.own.pinned[a] = struct{}{}
		s.own.add(tenant, a, 0)
	}
	return nil
}

func (s *Shares[K]) now() policy.Instant {
	var m moment
	return s.time.readAnew(&m)
}

// Close ends the use of the shares. Later calls take nothing, and are refused with a RetryAfter that
// is a guess. Waiting calls end with ErrClosed. Close may be called more than once. It waits up to a second for
// OnEvent.
func (s *Shares[K]) Close() error {
	if !s.closed.Swap(true) {
		close(s.ended)
	}
	s.events.Flush()
	return nil
}

// SharesStats is a snapshot of the counters of Shares, read one after the other while calls go on.
type SharesStats struct {
	// Name is Config.Name.
	Name string

	// Guaranteed, Borrowed and Refused count calls, each once, for any number of units. A Peek and a
	// call for no units do not count.
	Guaranteed, Borrowed, Refused uint64

	// Unguaranteed counts calls of tenants that had no guarantee because nothing was left of the reserve,
	// MaxKeys tenants had entries, or the key cannot be kept. They are counted above, too.
	Unguaranteed uint64

	// Overstayed and Unheld are as in Stats.
	Overstayed, Unheld uint64

	// Tenants is the number of tenants with a guarantee, and Waiting of calls that wait now.
	Tenants, Waiting int

	// Used is the number of units in the group now, rounded up, of Total's capacity. Of units in use it counts those that are borrowed.
	Used int64

	// Reserved is the capacity of the reserve, and Unreserved is the part of it that no tenant has.
	Reserved, Unreserved int64
}

// Stats returns the counters. Its cost does not grow with the number of tenants.
func (s *Shares[K]) Stats() SharesStats {
	guaranteed, refused, _ := s.guaranteed.Sum()
	borrowed, unguaranteed, _ := s.borrowed.Sum()
	_, look := s.group.limit.Take(s.group.word.Load(), s.now(), 0, 0)
	waiting, _, _ := s.turns.lines.Count()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.own.returnAllOwed(s.now())
	return SharesStats{
		Name: s.config.Config.Name, Guaranteed: guaranteed, Borrowed: borrowed, Refused: refused, Unguaranteed: unguaranteed,
		Overstayed: s.overstayed.Load(), Unheld: s.misuse.count(), Tenants: s.own.all.Size(), Waiting: waiting, Used: look.Limit - look.Remaining,
		Reserved: s.total.Limit() - s.lend.Limit(), Unreserved: s.reserve.units,
	}
}

// SetGuarantee replaces a tenant's guarantee, and gives the tenant an entry that does not leave. Its used units
// count under the new guarantee, also above its capacity. What a larger guarantee needs comes out of
// what is left of the reserve. What a smaller one leaves returns to the reserve once the tenant owes nothing, in
// the first call that needs it, at most a millisecond later. nil leaves the tenant its guarantee until its entry leaves, as if the tenant had come
// by itself; after that SharesConfig.Guarantee is asked. Total and Reserved are fixed: make new Shares.
//
// The error is a *policy.FieldError if the guarantee is of another kind than Total, too little is left for it, or the
// tenant can have no entry. Otherwise it is ErrClosed. Nothing has changed then. Reservations from before
// give nothing back to the tenant's own funnel, but release units in use.
func (s *Shares[K]) SetGuarantee(tenant K, guarantee policy.Policy) error {
	defer s.turns.wake(tenant)
	return namedBy(s.config.Config.Name, s.set(&s.own, "SetGuarantee", tenant, guarantee))
}

// SetCeiling is SetGuarantee for the tenant's ceiling, which comes out of no reserve.
func (s *Shares[K]) SetCeiling(tenant K, ceiling policy.Policy) error {
	defer s.turns.wake(tenant)
	return namedBy(s.config.Config.Name, s.set(&s.ceilings, "SetCeiling", tenant, ceiling))
}

func (s *Shares[K]) set(accounts *accounts[K], function string, tenant K, p policy.Policy) error {
	var limit bucket
	if !shape.IsNil(p) {
		var ok bool
		if limit, ok = bucketOf(p, s.longest); !ok {
			return &policy.FieldError{Of: function, Field: "limit", Value: p, Want: wanted(s.longest)}
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	accounts.leave(now)
	old := accounts.load(tenant)
	switch {
	case s.closed.Load():
		return ErrClosed
	case !accounts.keeps(tenant):
		return &policy.FieldError{Of: function, Field: "tenant", Value: "no key", Want: "one that equals itself and can be hashed"}
	case limit != nil && old == nil && accounts.isFull():
		return &policy.FieldError{Of: function, Field: "tenant", Value: "new", Want: fmt.Sprintf("one with an entry, as %d tenants have theirs, by Config.MaxKeys", accounts.maxKeys)}
	case limit == nil:
		if _, pinned := accounts.pinned[old]; pinned {
			delete(accounts.pinned, old)
			accounts.file(now)
		}
		return nil
	}
	a := &account{limit: limit}
	if accounts.reserve != nil {
		need := grantOf(limit)
		var before grant
		if old != nil {
			before = accounts.granted(old)
			need = need.atLeast(before)
			s.reserve.release(before)
		}
		if !s.reserve.take(need) {
			rest := s.reserve.rest()
			if old != nil {
				s.reserve.take(before)
			}
			return &policy.FieldError{Of: function, Field: "limit", Value: p, Want: rest}
		}
		if need != grantOf(limit) {
			accounts.owed[a] = need
		}
	}
	if old != nil {
		old.replace(a, now)
		delete(accounts.pinned, old)
		delete(accounts.owed, old)
	}
	accounts.pinned[a] = struct{}{}
	accounts.add(tenant, a, now)
	if accounts.returnOwed(a, now); len(accounts.owed) > 0 {
		accounts.owedDue.Store(min(accounts.owedDue.Load(), int64(now+owedPause)))
	}
	return nil
}
