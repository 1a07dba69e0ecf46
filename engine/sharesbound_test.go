package engine

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/internal/testkit/testenv"
	"github.com/ral-limiter/ral/policy"
)

func newShares[K comparable](t testing.TB, config SharesConfig[K]) *Shares[K] {
	t.Helper()
	s, err := NewShares(config)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, s.Close()) })
	return s
}

// levelAudit is the level of a funnel without a capacity, in exact ticks.
type levelAudit struct {
	// interval is the ticks of a unit.
	interval uint64
	// empty is the tick at which the funnel is empty.
	empty uint64
	// most is the highest level so far, in ticks.
	most uint64
}

func newLevelAudit(p policy.Policy) *levelAudit {
	return &levelAudit{interval: grantOf(p.(bucket)).interval}
}

func (a *levelAudit) add(now policy.Instant, n int64) {
	a.empty = max(a.empty, uint64(now)*ticksPerNano) + uint64(n)*a.interval
	a.most = max(a.most, a.empty-uint64(now)*ticksPerNano)
}

// units returns the highest level, rounded up.
func (a *levelAudit) units() int64 { return int64((a.most + a.interval - 1) / a.interval) }

// sharesRun is a random history of tenants that come and go. Tenant 0 to known-1 are known in advance.
type sharesRun struct {
	t      testing.TB
	shares *Shares[int]
	clock  *handClock
	dice   *rand.Rand
	// limits are the guarantees.
	limits []policy.Policy
	// own is what each tenant took of its guarantee, by a word of the test's own.
	own      []uint64
	audit    *levelAudit
	patience time.Duration

	guaranteed, borrowed, refused, unguaranteed, cancelled, ahead int
}

const (
	knownTenants  = 100
	callingAtOnce = 200
	allTenants    = 400
)

func newSharesRun(t testing.TB, seed uint64, patience time.Duration) *sharesRun {
	r := &sharesRun{
		t: t, clock: newHandClock(), dice: rand.New(rand.NewPCG(seed, 58)), own: make([]uint64, allTenants),
		patience: patience,
	}
	var tenants []int
	for i := range allTenants {
		r.limits = append(r.limits, funnel(int64(1+i%19), int64(20+i%21), time.Second))
		if i < knownTenants {
			tenants = append(tenants, i)
		}
	}
	total := funnel(3000, 10_000, time.Second)
	r.audit = newLevelAudit(total)
	r.shares = newShares(t, SharesConfig[int]{
		Config: Config{Clock: r.clock.Now, Idle: time.Second},
		Total:  total, Reserved: funnel(1700, 5000, time.Second),
		Tenants: tenants,
		Guarantee: func(tenant int) policy.Policy {
			if tenant == allTenants {
				return nil
			}
			return r.limits[tenant]
		},
		Ceiling: func(tenant int) policy.Policy {
			if tenant%14 == 0 && tenant < allTenants {
				return funnel(500, 1000, time.Second)
			}
			return nil
		},
	})
	return r
}

// step makes a call. Every 20,000 steps other tenants call, and a pause lets the earlier ones leave.
func (r *sharesRun) step(i int) {
	if i%20_000 == 19_999 {
		r.clock.Advance(1500 * time.Millisecond)
		r.rush(i)
	}
	r.clock.Advance(time.Duration(r.dice.IntN(330_000)))
	tenant := r.dice.IntN(callingAtOnce)
	if r.dice.IntN(3) == 0 {
		// The tenant is greedy, and every other greedy tenant is below a ceiling.
		tenant = 7 * r.dice.IntN(5)
	}
	r.call(i, r.tenant(i, tenant), 1+r.dice.Int64N(19))
}

// tenant returns which tenant is the one of that number now.
func (r *sharesRun) tenant(i, number int) int {
	if number < knownTenants {
		return number
	}
	return knownTenants + (number+i/20_000*57)%(allTenants-knownTenants)
}

// rush has a tenant without a guarantee borrow all that there is, and then each tenant use its burst.
func (r *sharesRun) rush(i int) {
	for r.shares.Choke(allTenants) {
		r.audit.add(r.clock.Now(), 1)
		r.borrowed++
	}
	r.refused++
	for number := range callingAtOnce {
		tenant := r.tenant(i, number)
		r.call(i, tenant, r.limits[tenant].Limit())
	}
}

// call makes a call for n units, or the tenant's burst if that is less.
func (r *sharesRun) call(i, tenant int, n int64) {
	p, now := r.limits[tenant], r.clock.Now()
	n = min(n, p.Limit())
	_, own := p.Take(r.own[tenant], now, n, 0)
	var d ShareDecision
	switch r.dice.IntN(10) {
	// The units are given back, and so not used.
	case 0:
		h := r.shares.Reserve(tenant, n, r.patienceOf(i))
		kept := max(r.dice.Int64N(n+3)-2, 0)
		d = h.ShareDecision
		if d.Allowed {
			r.clock.Advance(time.Duration(r.dice.IntN(1000)))
			before := r.shares.Peek(tenant, 0).Remaining
			h.Keep(kept)
			if after := r.shares.Peek(tenant, 0).Remaining; after < before {
				r.t.Fatalf("step %d: a give-back left %d of %d", i, after, before)
			}
			r.cancelled++
			r.audit.add(now, kept)
		}
	case 1:
		h := r.shares.Reserve(tenant, n, r.patienceOf(i))
		if d = h.ShareDecision; d.Allowed {
			r.audit.add(now, n)
		}
	default:
		if d = r.shares.Take(tenant, n); d.Allowed {
			r.audit.add(now, n)
		}
	}
	hasGuarantee := d.Limit == p.Limit()
	switch {
	case !hasGuarantee:
		if r.unguaranteed++; tenant < knownTenants {
			r.t.Fatalf("step %d: a known tenant has no guarantee: %+v", i, d)
		}
	case own.Allowed && (!d.Allowed || d.Borrowed):
		r.t.Fatalf("step %d: tenant %d has room for %d units in its guarantee: %+v", i, tenant, n, d)
	case d.Allowed && !d.Borrowed:
		if d.Wait > 0 {
			r.ahead++
		}
		// Units that were given back stay in this word, so the guarantee may have more room.
		r.own[tenant] = p.(policy.Refunder).Refund(r.own[tenant], now, -n)
	}
	switch {
	case !d.Allowed:
		r.refused++
	case d.Borrowed:
		r.borrowed++
	default:
		r.guaranteed++
	}
}

func (r *sharesRun) patienceOf(i int) time.Duration {
	if i%2 == 0 {
		return 0
	}
	return r.patience
}

// The numbers of calls are in the commands of make: 10^6 in make test, and 10^7 in make check.
//
//  1. The group never holds more than Total's capacity, and with patience p no more than the reserve's rate
//     times p above, by an audit from outside.
//  2. A call with room in its tenant's guarantee is never refused, and does not borrow.
//  3. A give-back leaves no tenant less.
//
// Promise: `Shares` never exceed their bound, and never refuse a tenant below its guarantee.
func TestSharesHoldTheirBound(t *testing.T) {
	calls := 10_000_000
	if testing.Short() {
		calls = 1_000_000 / testenv.RaceSlowdown
	}
	for _, patience := range []time.Duration{0, 40 * time.Millisecond} {
		r := newSharesRun(t, testenv.Seed(t), patience)
		for i := range calls / 2 {
			r.step(i)
		}
		bound := int64(3000) + 5000*int64(patience)/int64(time.Second)
		t.Logf("patience %v: at most %d units of %d; %d guaranteed, %d ahead, %d borrowed, %d refused, %d cancelled, %d without a guarantee; %+v",
			patience, r.audit.units(), bound, r.guaranteed, r.ahead, r.borrowed, r.refused, r.cancelled, r.unguaranteed, r.shares.Stats())
		assert.LessOrEqual(t, r.audit.units(), bound)
		assert.Greater(t, r.audit.units(), int64(2800), "loans alone reach 1300")
		for _, n := range []int{r.guaranteed, r.borrowed, r.refused, r.cancelled, r.unguaranteed} {
			assert.Greater(t, n, calls/5000)
		}
		assert.Equal(t, patience > 0, r.ahead > 0)
		s := r.shares.Stats()
		assert.EqualValues(t, r.guaranteed, s.Guaranteed)
		assert.EqualValues(t, r.borrowed, s.Borrowed)
		assert.EqualValues(t, r.refused, s.Refused)
		assert.GreaterOrEqual(t, s.Unguaranteed, uint64(r.unguaranteed))
	}
}

// 8 goroutines advance a clock and call for tenants of their own, in rounds. In each round d is the
// longest time, by that clock, from before a call to after it.
//
//  1. The group never holds more than C + d*G units.
//  2. By an audit from outside that counts units at the ends of calls, it holds at most d*R more.
//  3. A call with room in its tenant's guarantee is never refused, and does not borrow.
//
// Promise: `Shares` keep their bound under contention, by the longest call.
func TestSharesHoldTheirBoundUnderContention(t *testing.T) {
	const callers, tenantsEach, capacity, rate, reservedRate, lent = 8, 5, 300, 20_000, 10_000, 62
	guarantee := funnel(5, 200, time.Second)
	total := funnel(capacity, rate, time.Second)
	type admitted struct {
		end policy.Instant
		n   int64
	}
	tight, full, borrowed, refused := 0, 0, 0, 0
	rounds := 1000 / testenv.RaceSlowdown
	for round := range rounds {
		clock := newHandClock()
		s := newShares(t, SharesConfig[int]{
			Config: Config{Clock: clock.Now, Idle: time.Millisecond},
			Total:  total, Reserved: funnel(callers*tenantsEach*5, reservedRate, time.Second),
			Guarantee: func(tenant int) policy.Policy {
				if tenant < 0 {
					return nil
				}
				return guarantee
			},
		})
		require.True(t, s.Take(-1, lent).Borrowed)
		// mu guards what follows.
		var mu sync.Mutex
		all := []admitted{{clock.Now(), lent}}
		var longest policy.Instant
		mostUsed := int64(0)
		together(callers, func(caller int) {
			dice := rand.New(rand.NewPCG(testenv.Seed(t), uint64(round*callers+caller)))
			own := make([]uint64, tenantsEach)
			for call := range 100 {
				clock.Advance(time.Duration(dice.IntN(200)))
				i, n := dice.IntN(tenantsEach), 1+dice.Int64N(5)
				tenant, start := caller*tenantsEach+i, clock.Now()
				_, room := guarantee.Take(own[i], start, n, 0)
				if call == 0 {
					// The tenant has no guarantee.
					tenant, n, room.Allowed = -1, 5, false
				}
				d := s.Take(tenant, n)
				end, used := clock.Now(), s.Stats().Used
				mu.Lock()
				longest, mostUsed = max(longest, end-start), max(mostUsed, used)
				if d.Allowed {
					all = append(all, admitted{end, n})
				}
				switch {
				case d.Allowed && !d.Borrowed:
					own[i] = guarantee.(policy.Refunder).Refund(own[i], end, -n)
				case room.Allowed:
					t.Errorf("a call with room in the guarantee: %+v", d)
				case d.Allowed:
					borrowed++
				default:
					refused++
				}
				mu.Unlock()
			}
		})
		extra := func(rate int64) int64 { return rate*int64(longest)/int64(time.Second) + 1 }
		require.LessOrEqual(t, mostUsed, capacity+extra(reservedRate), "d is %v", time.Duration(longest))
		audit := newLevelAudit(total)
		slices.SortFunc(all, func(a, b admitted) int { return cmp.Compare(a.end, b.end) })
		for _, a := range all {
			audit.add(a.end, a.n)
		}
		require.LessOrEqual(t, audit.units(), capacity+extra(reservedRate)+extra(rate), "d is %v", time.Duration(longest))
		if extra(reservedRate) == 1 {
			tight++
		}
		if mostUsed > capacity-40 {
			full++
		}
		require.NoError(t, s.Close())
	}
	assert.Positive(t, borrowed)
	assert.Positive(t, refused)
	assert.Positive(t, full, "rounds that come near the bound")
	t.Logf("of %d rounds %d came near the bound; in %d rounds d*G was below a unit", rounds, full, tight)
}

// promisedLevel returns what the group may come to hold if all guarantees were used up now: its level, and the room of all guarantees.
func (s *Shares[K]) promisedLevel() float64 {
	ticks := float64(s.now()) * ticksPerNano
	level := func(a *account) float64 {
		return max(float64(a.word.Load())-ticks, 0) / float64(grantOf(a.limit).interval)
	}
	sum := level(&s.group) + float64(s.reserve.units)
	s.own.all.Range(func(_ K, a *account) bool {
		sum += float64(a.limit.Limit()) - level(a)
		return true
	})
	return sum
}

// The group's level, and the room of all guarantees and of the reserve, are together never above C. A guaranteed take does not
// change the sum, a loan leaves at most C-B and B, and time lowers it while the group holds units. So the group never exceeds C
// whatever comes, and that is all that a give-back has to keep: it may add as many units to a guarantee as it takes from the group, or leave both
// as if the call had never been made. Reservations of seconds end in any order here, whole or in part, between calls that nothing
// remembers, with patience and without, and guarantees change and leave.
//
// No give-back raises a word, so it refuses no call, now or later.
func TestGiveBacksKeepTheBound(t *testing.T) {
	runs := 300 / testenv.RaceSlowdown
	near, inexact := 0, 0
	for seed := range uint64(runs) {
		clock := newHandClock()
		dice := rand.New(rand.NewPCG(testenv.Seed(t), seed))
		const tenants = 6
		s := newShares(t, SharesConfig[int]{
			Config: Config{Clock: clock.Now, Idle: 5 * time.Second},
			Total:  funnel(60, 6100, 1000*time.Second), Reserved: funnel(40, 6050, 1000*time.Second),
			Guarantee: func(tenant int) policy.Policy {
				if tenant == tenants {
					return nil
				}
				return funnel(int64(4+tenant), 1, time.Second)
			},
			Ceiling: func(tenant int) policy.Policy {
				if tenant == 2 {
					return funnel(12, 2, time.Second)
				}
				return nil
			},
		})
		words := func() (all []uint64) {
			all = append(all, s.group.word.Load())
			for i := range tenants {
				for _, a := range []*account{s.own.load(i), s.ceilings.load(i)} {
					if a == nil {
						all = append(all, 0)
					} else {
						all = append(all, a.word.Load())
					}
				}
			}
			return all
		}
		var open []ShareReservation[int]
		for step := range 400 {
			clock.Advance(time.Duration(dice.Int64N(int64Seconds / 3)))
			tenant, n := dice.IntN(tenants+1), 1+dice.Int64N(8)
			switch kind := dice.IntN(12); {
			case kind < 3 && len(open) > 0:
				i := dice.IntN(len(open))
				before := words()
				used := max(dice.Int64N(5)-2, 0)
				if h := &open[i].held; h.guaranteed && h.group.N > used && len(open) > 1 {
					inexact++
				}
				open[i].Keep(used)
				for j, word := range words() {
					require.LessOrEqual(t, word, before[j], "seed %d, step %d", seed, step)
				}
				open = slices.Delete(open, i, i+1)
			case kind < 7:
				patience := time.Duration(0)
				if kind == 6 {
					patience = time.Duration(dice.Int64N(3 * int64Seconds))
				}
				if r := s.Reserve(tenant, n, patience); r.Allowed {
					open = append(open, r)
				}
			case kind == 7 && dice.IntN(10) == 0 && tenant < tenants:
				_ = s.SetGuarantee(tenant, funnel(1+dice.Int64N(12), 1+dice.Int64N(3), time.Second))
			case kind == 8 && dice.IntN(10) == 0:
				_ = s.SetGuarantee(tenant%tenants, nil)
			case kind == 9 && dice.IntN(10) == 0:
				clock.Advance(20 * time.Second) // entries leave
			case kind >= 10: // loans, and then all guarantees
				for s.Choke(tenants) {
				}
				for i := range tenants {
					if left := s.Peek(i, 0).Remaining; left > 0 {
						open = append(open, s.Reserve(i, left, 0))
					}
				}
			default:
				s.Take(tenant, n)
			}
			level := s.promisedLevel()
			require.LessOrEqual(t, level, 60.0001, "seed %d, step %d", seed, step)
			if level > 58 {
				near++
			}
		}
	}
	assert.Greater(t, near, runs*10)
	assert.Greater(t, inexact, runs*10)
}
