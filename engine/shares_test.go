package engine

import (
	"fmt"
	"math"
	"math/big"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/internal/testkit/must"
	"github.com/ral-limiter/ral/internal/testkit/testenv"
	"github.com/ral-limiter/ral/limits"
	"github.com/ral-limiter/ral/policy"
	"github.com/ral-limiter/ral/supervisor"
)

// twoTenants has "a" with (10, 1/s) and "b" with (20, 2/s), out of (30, 5/s), of (100, 10/s).
func twoTenants(clock *handClock) SharesConfig[string] {
	return SharesConfig[string]{
		Config: Config{Clock: clock.Now, Idle: time.Minute},
		Total:  funnel(100, 10, time.Second), Reserved: funnel(30, 5, time.Second),
		Guarantee: func(tenant string) policy.Policy {
			switch tenant {
			case "a":
				return funnel(10, 1, time.Second)
			case "b":
				return funnel(20, 2, time.Second)
			}
			return nil
		},
	}
}

func TestSharesTakeTheGuaranteeFirst(t *testing.T) {
	clock := newHandClock()
	s := newShares(t, twoTenants(clock))
	decide := func(want string, d ShareDecision) {
		t.Helper()
		assert.Equal(t, want, fmt.Sprintf("%v, borrowed %v", d.Decision, d.Borrowed))
	}
	decide("admitted, 4 of 10 left, all in 6s, borrowed false", s.Take("a", 6))
	// The call is whole: 11 of 70.
	decide("admitted, 4 of 10 left, all in 6s, borrowed true", s.Take("a", 5))
	decide("admitted, 0 of 10 left, all in 10s, borrowed false", s.Take("a", 4))
	// The group has 70 units now.
	decide("admitted, 0 of 70 left, borrowed true", s.Take("stranger", 55))
	decide("refused for 100ms, 0 of 10 left, all in 10s, borrowed false", s.Take("a", 1))
	assert.False(t, s.Choke("stranger"))
	decide("refused for 5s, 0 of 70 left, borrowed false", s.Peek("stranger", 50))
	decide("admitted, 0 of 20 left, all in 10s, borrowed false", s.Take("b", 20))
	assert.EqualValues(t, 90, s.Stats().Used)
	// The tenant's own units come before a loan.
	decide("refused for 1s, 0 of 10 left, all in 10s, borrowed false", s.Take("a", 1))
	clock.Advance(time.Second)
	decide("admitted, 0 of 10 left, all in 10s, borrowed false", s.Take("a", 1))
	clock.Advance(time.Hour)
	decide("refused for ever, of 10, borrowed false", s.Take("a", 71))
	decide("refused for ever, of 70, borrowed false", s.Take("stranger", 71))
	decide("refused for ever, of 70, borrowed false", s.Take("stranger", -1))
	decide("refused for ever, of 10, borrowed false", s.Take("a", -1))
	decide("admitted, 10 of 10 left, borrowed false", s.Take("a", 0))
	decide("admitted, 0 of 70 left, borrowed false", s.Take("stranger", 0))
	decide("admitted, 10 of 10 left, borrowed true", s.Take("a", 70))
	st := s.Stats()
	assert.Equal(t, SharesStats{
		Name: "ral", Guaranteed: 4, Borrowed: 3, Refused: 7, Tenants: 2, Used: 70, Reserved: 30, Unreserved: 0,
	}, st)
}

// Promise: A tenant that is alone uses all of the rate of `Shares`.
func TestLoneTenantUsesTheWholeRate(t *testing.T) {
	clock := newHandClock()
	s := newShares(t, twoTenants(clock))
	taken := int64(0)
	const seconds = 1000
	for range seconds * 100 {
		for s.Choke("a") {
			taken++
		}
		clock.Advance(10 * time.Millisecond)
	}
	assert.GreaterOrEqual(t, taken, int64(seconds*10))
	assert.LessOrEqual(t, taken, int64(seconds*10+100))
}

// Promise: A guaranteed burst passes whole at once, while other tenants borrow all that there is.
func TestGuaranteedBurstPassesWholeWhileOthersBorrow(t *testing.T) {
	clock := newHandClock()
	s := newShares(t, twoTenants(clock))
	dice := rand.New(rand.NewPCG(testenv.Seed(t), 1))
	for next := clock.Now(); clock.Now() < policy.Instant(time.Hour); {
		for s.Choke("stranger") {
		}
		if clock.Now() >= next {
			for _, c := range []struct {
				tenant string
				burst  int64
			}{{"a", 10}, {"b", 20}} {
				d := s.Take(c.tenant, c.burst)
				require.True(t, d.Allowed && !d.Borrowed, "%+v", d)
			}
			next = clock.Now() + policy.Instant(10*time.Second)
		}
		clock.Advance(time.Duration(dice.Int64N(int64Seconds)))
	}
}

const int64Seconds = int64(time.Second)

func TestCeilingBoundsLoansAlone(t *testing.T) {
	clock := newHandClock()
	config := twoTenants(clock)
	config.Ceiling = func(tenant string) policy.Policy {
		switch tenant {
		case "a":
			return funnel(5, 1, time.Second)
		case "window":
			return policy.Must(policy.FixedWindow(1, time.Second))
		}
		return nil
	}
	s := newShares(t, config)
	assert.False(t, s.Take("a", 10).Borrowed)
	assert.True(t, s.Take("a", 5).Borrowed)
	d := s.Take("a", 1)
	assert.False(t, d.Allowed)
	assert.Equal(t, time.Second, d.RetryAfter, "of both")
	assert.Equal(t, d, s.Peek("a", 1))
	assert.EqualValues(t, 15, s.Stats().Used)
	assert.True(t, s.Take("b", 40).Borrowed, "it has no ceiling")
	assert.True(t, s.Take("stranger", 15).Borrowed)
	clock.Advance(time.Second)
	assert.True(t, s.Take("stranger", 10).Borrowed)
	used := s.ceilings.load("a").word.Load()
	assert.False(t, s.Take("a", 2).Allowed, "the group has no room")
	assert.Equal(t, used, s.ceilings.load("a").word.Load(), "a refused call leaves the ceiling as it was")
	clock.Advance(time.Hour)
	assert.False(t, s.Take("window", 1).Allowed, "a ceiling that cannot be kept bars loans")
	assert.False(t, s.Peek("window", 1).Allowed)
	assert.True(t, s.Take("window", 0).Allowed)

	// At most MaxKeys tenants have an entry.
	config.Config.MaxKeys = 1
	config.Ceiling = func(string) policy.Policy { return funnel(5, 1, time.Second) }
	s = newShares(t, config)
	assert.True(t, s.Choke("x"))
	assert.False(t, s.Choke("y"))
	assert.Equal(t, time.Minute, s.Take("y", 1).RetryAfter, "a guess")
	clock.Advance(2 * time.Minute)
	assert.True(t, s.Choke("y"), "x has left")
}

// Promise: A guarantee returns to the reserve when its tenant's entry leaves, and not while the tenant owes.
func TestGuaranteesComeOutOfTheReserve(t *testing.T) {
	clock := newHandClock()
	var events atomic.Int64
	config := SharesConfig[string]{
		Config: Config{Clock: clock.Now, Idle: time.Minute, OnEvent: func(e Event) {
			if e.Kind == supervisor.Notice && strings.Contains(e.String(), "Unguaranteed") {
				events.Add(1)
			}
		}},
		Total: funnel(100, 10, time.Second), Reserved: funnel(30, 3, time.Second),
		Guarantee: func(string) policy.Policy { return funnel(10, 1, time.Second) },
	}
	s := newShares(t, config)
	for _, tenant := range []string{"a", "b", "c"} {
		d := s.Take(tenant, 10)
		assert.True(t, d.Allowed && !d.Borrowed)
	}
	assert.Zero(t, events.Load())
	assert.True(t, s.Take("d", 1).Borrowed)
	assert.True(t, s.Take("e", 1).Borrowed)
	st := s.Stats()
	assert.Equal(t, []any{uint64(2), 3, int64(0)}, []any{st.Unguaranteed, st.Tenants, st.Unreserved})
	must.Await(t, func() bool { return events.Load() == 1 }, "the first is told")
	// a owes longer than the others.
	clock.Advance(10 * time.Second)
	assert.True(t, s.Take("a", 10).Allowed)
	clock.Advance(time.Minute - 1)
	assert.True(t, s.Peek("d", 10).Borrowed)
	clock.Advance(time.Minute/16 - 1)
	assert.True(t, s.Peek("d", 10).Borrowed, "looks for entries that may leave are apart by a sixteenth of Idle")
	clock.Advance(1)
	assert.Equal(t, 3, s.Stats().Tenants, "no call has asked")
	assert.Equal(t, policy.Decision{Allowed: true, Limit: 10}, withoutReset(s.Peek("d", 10).Decision))
	d := s.Take("d", 10)
	assert.True(t, d.Allowed && !d.Borrowed)
	assert.Equal(t, 2, s.Stats().Tenants, "b and c have left, and d has come")
	assert.EqualValues(t, 10, s.Stats().Unreserved)
	assert.EqualValues(t, 1, events.Load())
}

func withoutReset(d policy.Decision) policy.Decision {
	d.ResetAfter = 0
	return d
}

// A tenant that comes again at an earlier instant, by a clock that goes back, gets no second burst.
func TestEntryThatLeftIsNotBackEarlier(t *testing.T) {
	clock := newHandClock()
	config := twoTenants(clock)
	config.Config.Idle = time.Second
	s := newShares(t, config)
	early := clock.Now()
	assert.False(t, s.Take("a", 10).Borrowed)
	clock.Advance(12 * time.Second)
	assert.False(t, s.Take("b", 1).Borrowed)
	assert.Nil(t, s.own.load("a"), "it has left")
	clock.now.Store(int64(early))
	assert.False(t, s.Take("a", 10).Borrowed, "its bucket was empty when it left")
	clock.Advance(12 * time.Second)
	assert.True(t, s.Take("a", 1).Borrowed, "its bucket is full since the entry left")
}

// Promise: `Reserve` and `Cancel` of a tenant's units leave the group, its guarantee and its ceiling as if the call had
// never been made.
func TestSharesGiveBackExactly(t *testing.T) {
	for seed := range uint64(60) {
		clock := newHandClock()
		config := twoTenants(clock)
		ceiling := funnel(30, 2, time.Second)
		config.Ceiling = func(string) policy.Policy { return ceiling }
		s := newShares(t, config)
		dice := rand.New(rand.NewPCG(testenv.Seed(t), seed))
		tenants := []string{"a", "b", "stranger"}
		type call struct {
			ShareReservation[string]
			tenant string
			at     policy.Instant
			n      int64
		}
		var open, done []*call
		for range 100 {
			clock.Advance(time.Duration(dice.Int64N(int64Seconds)))
			if len(open) > 0 && dice.IntN(3) > 0 {
				i := dice.IntN(len(open))
				kept := max(dice.Int64N(open[i].n+1)-2, 0)
				open[i].Keep(kept)
				open[i].n = kept
				open = slices.Delete(open, i, i+1)
				continue
			}
			c := &call{tenant: tenants[dice.IntN(3)], at: clock.Now(), n: 1 + dice.Int64N(12)}
			if c.ShareReservation = s.Reserve(c.tenant, c.n, 0); c.Allowed {
				open, done = append(open, c), append(done, c)
			}
		}
		for _, c := range open {
			c.Cancel()
			c.n = 0
		}
		words := map[any]uint64{}
		take := func(word any, limit policy.Policy, c *call) {
			if c.n > 0 {
				words[word], _ = limit.Take(words[word], c.at, c.n, 0)
			}
		}
		for _, c := range done {
			take("group", s.whole, c)
			if a := s.own.load(c.tenant); !c.Borrowed {
				take(a, a.limit, c)
			} else {
				take(s.ceilings.load(c.tenant), ceiling, c)
			}
		}
		// A word that has drained stands for an unused one.
		left := func(word uint64) uint64 { return max(word, uint64(clock.Now())*ticksPerNano) }
		assert.Equal(t, left(words["group"]), left(s.group.word.Load()), "seed %d", seed)
		for _, tenant := range tenants {
			for _, a := range []*account{s.own.load(tenant), s.ceilings.load(tenant)} {
				if a != nil {
					assert.Equal(t, left(words[a]), left(a.word.Load()), "seed %d: %s", seed, tenant)
				}
			}
		}
	}
}

// If other calls have changed the group, the guarantee gets back no more units than the group. The group has drained
// half of the units, and nothing remembers the takes.
func TestGuaranteeGetsBackAtMostWhatTheGroupDoes(t *testing.T) {
	clock := newHandClock()
	s := newShares(t, twoTenants(clock))
	r := s.Reserve("a", 10, 0)
	// Of the group's 10 units 5 have drained.
	clock.Advance(500 * time.Millisecond)
	assert.True(t, s.Take("stranger", 1).Borrowed)
	r.Cancel()
	assert.EqualValues(t, 1, s.Stats().Used)
	assert.EqualValues(t, 5, s.Peek("a", 0).Remaining)
	r.Cancel()
	assert.EqualValues(t, 5, s.Peek("a", 0).Remaining, "once")

	// Alone, all units come back.
	clock.Advance(time.Hour)
	r = s.Reserve("a", 10, 0)
	clock.Advance(500 * time.Millisecond)
	r.Cancel()
	assert.EqualValues(t, 10, s.Peek("a", 0).Remaining)
	assert.Zero(t, s.Stats().Used)
	var none ShareReservation[string]
	none.Cancel()
}

func TestReservationOfSharesEndsOnce(t *testing.T) {
	clock := newHandClock()
	s := newShares(t, twoTenants(clock))
	r := s.Reserve("stranger", 5, 0)
	s.Reserve("stranger", 5, 0)
	s.Take("stranger", 1)
	r.Cancel()
	assert.EqualValues(t, 6, s.Stats().Used)
	r.Cancel()
	r.Keep(1)
	assert.EqualValues(t, 6, s.Stats().Used)
}

// hookedBucket runs hook before each Take.
type hookedBucket struct {
	bucket
	hook func()
}

func (h *hookedBucket) Take(word uint64, now policy.Instant, n int64, patience time.Duration) (uint64, policy.Decision) {
	h.hook()
	return h.bucket.Take(word, now, n, patience)
}

// A call changes its own funnel's word first, and the group's at the instant at which it began. So a refused call never charges the
// group, not even for a moment in which it would refuse a loan.
func TestGroupIsChargedAfterTheTenant(t *testing.T) {
	clock := newHandClock()
	s := newShares(t, twoTenants(clock))
	require.True(t, s.Take("a", 1).Allowed)
	account, calls := s.own.load("a"), 0
	before, began := s.group.word.Load(), clock.Now()
	account.limit = &hookedBucket{account.limit, func() {
		calls++
		assert.Equal(t, before, s.group.word.Load())
		clock.Advance(10 * time.Second)
	}}
	require.True(t, s.Take("a", 2).Allowed)
	assert.Equal(t, 1, calls)
	want, _ := s.whole.Take(before, began, 2, 0)
	assert.Equal(t, want, s.group.word.Load())
	before = want
	assert.True(t, s.Take("a", 11).Borrowed)
	assert.Equal(t, 2, calls)
}

// If another call borrows between the look at the group and the take, the ceiling gets its units back.
func TestOvertakenLoanLeavesTheCeiling(t *testing.T) {
	clock := newHandClock()
	config := twoTenants(clock)
	config.Ceiling = func(tenant string) policy.Policy {
		if tenant == "a" {
			return funnel(50, 1, time.Second)
		}
		return nil
	}
	s := newShares(t, config)
	require.True(t, s.Take("a", 20).Borrowed)
	clock.Advance(5 * time.Second)
	account := s.ceilings.load("a")
	looks := 0
	account.limit = &hookedBucket{account.limit, func() {
		if looks++; looks == 2 {
			assert.True(t, s.Take("stranger", 70).Borrowed)
		}
	}}
	for _, take := range []func() ShareDecision{
		func() ShareDecision { return s.Take("a", 20) },
		func() ShareDecision { return s.Reserve("a", 20, 0).ShareDecision },
	} {
		looks = 0
		word := account.word.Load()
		d := take()
		assert.Equal(t, 2, looks)
		assert.False(t, d.Allowed)
		assert.Equal(t, 2*time.Second, d.RetryAfter)
		assert.Equal(t, word, account.word.Load())
		clock.Advance(7 * time.Second)
	}
}

// A call that has found an entry takes nothing from it once it has left.
func TestEntryThatLeftIsNotTakenFrom(t *testing.T) {
	clock := newHandClock()
	s := newShares(t, twoTenants(clock))
	require.True(t, s.Take("a", 10).Allowed)
	c := shareCall[string]{shares: s, tenant: "a", n: 10}
	c.findOwn()
	clock.Advance(time.Hour)
	require.True(t, s.Take("b", 1).Allowed) // a leaves
	var d ShareDecision
	c.now = clock.Now()
	assert.False(t, c.takeOnce(&d))
	c.take(&d)
	assert.True(t, d.Allowed && !d.Borrowed, "it has an entry again")
}

func TestSharesReserveAhead(t *testing.T) {
	clock := newHandClock()
	s := newShares(t, twoTenants(clock))
	require.True(t, s.Take("a", 10).Allowed)
	r := s.Reserve("a", 2, time.Second)
	assert.True(t, r.Borrowed, "a loan now comes before a turn of its own")
	require.True(t, s.Take("stranger", 58).Borrowed)
	r = s.Reserve("a", 2, time.Second)
	assert.False(t, r.Allowed)
	assert.Equal(t, 200*time.Millisecond, r.RetryAfter)
	r = s.Reserve("a", 2, 2*time.Second)
	assert.True(t, r.Allowed && !r.Borrowed)
	assert.Equal(t, 2*time.Second, r.Wait)
	assert.EqualValues(t, 72, s.Stats().Used)
	r.Cancel()
	assert.EqualValues(t, 70, s.Stats().Used)
	assert.Equal(t, time.Second, s.Reserve("a", 1, time.Minute).Wait)
	assert.Equal(t, 11*time.Second, s.Reserve("a", 10, policy.Never).Wait)
}

func TestSetGuaranteeKeepsUsedUnits(t *testing.T) {
	clock := newHandClock()
	config := twoTenants(clock)
	s := newShares(t, config)
	require.True(t, s.Take("a", 10).Allowed)
	unreserved := func(want int64) {
		t.Helper()
		assert.Equal(t, want, s.Stats().Unreserved)
	}
	unreserved(20)
	// A smaller guarantee keeps the used units, and the reserve gets nothing while the tenant owes.
	require.NoError(t, s.SetGuarantee("a", funnel(2, 1, 2*time.Second)))
	unreserved(20)
	assert.EqualValues(t, 0, s.Peek("a", 0).Remaining)
	assert.Equal(t, 20*time.Second, s.Peek("a", 0).ResetAfter)
	// Raised again it has what it had, and not the units that the smaller one could not count.
	require.NoError(t, s.SetGuarantee("a", funnel(10, 1, time.Second)))
	assert.EqualValues(t, 0, s.Peek("a", 0).Remaining)
	unreserved(20)
	require.NoError(t, s.SetGuarantee("a", funnel(2, 1, 2*time.Second)))
	clock.Advance(time.Hour)
	assert.True(t, s.Take("b", 20).Allowed)
	unreserved(8)
	assert.EqualValues(t, 2, s.Peek("a", 0).Remaining)
	// A larger one comes out of what is left.
	err := s.SetGuarantee("a", funnel(11, 1, time.Second))
	var field *policy.FieldError
	require.ErrorAs(t, err, &field)
	assert.Equal(t, "SetGuarantee limit", field.Of+" "+field.Field)
	unreserved(8)
	require.Error(t, s.SetGuarantee("a", funnel(1, 4, time.Second)), "the rate")
	unreserved(8)
	require.NoError(t, s.SetGuarantee("a", funnel(10, 1, time.Second)))
	unreserved(0)
	// It stays until it is given up, and then leaves as any other.
	clock.Advance(time.Hour)
	s.Choke("stranger")
	assert.NotNil(t, s.own.load("a"))
	require.NoError(t, s.SetGuarantee("a", nil))
	clock.Advance(time.Hour)
	require.NoError(t, s.SetGuarantee("new", funnel(30, 5, time.Second)), "all have left")
	assert.Nil(t, s.own.load("a"))
	unreserved(0)

	require.ErrorContains(t, s.SetGuarantee("a", policy.Must(policy.FixedWindow(1, time.Second))), "what a window lends is not back before the window ends")
	require.NoError(t, s.SetCeiling("a", funnel(3, 1, time.Second)))
	assert.True(t, s.Take("a", 3).Borrowed)
	assert.False(t, s.Take("a", 1).Borrowed)
	require.NoError(t, s.SetCeiling("a", funnel(5, 1, time.Second)))
	assert.True(t, s.Take("a", 2).Borrowed)
	require.NoError(t, s.Close())
	require.ErrorIs(t, s.SetGuarantee("a", nil), ErrClosed)
}

// Promise: What a smaller guarantee leaves returns to the reserve of `Shares` as soon as its tenant owes nothing.
func TestSmallerGuaranteeReturnsOnceNothingIsOwed(t *testing.T) {
	for name, fits := range map[string]func(s *Shares[string]) bool{
		"a larger guarantee": func(s *Shares[string]) bool { return s.SetGuarantee("b", funnel(5, 1, 2*time.Second)) == nil },
		"a new tenant":       func(s *Shares[string]) bool { return !s.Take("c", 1).Borrowed },
		"a look":             func(s *Shares[string]) bool { return !s.Peek("c", 1).Borrowed },
		"Stats":              func(s *Shares[string]) bool { return s.Stats().Unreserved == 5 },
	} {
		t.Run(name, func(t *testing.T) {
			clock := newHandClock()
			s := newShares(t, SharesConfig[string]{
				Config: Config{Clock: clock.Now, Idle: 24 * time.Hour},
				Total:  funnel(100, 10, time.Second), Reserved: funnel(10, 1, time.Second),
				Guarantee: func(tenant string) policy.Policy {
					return map[string]policy.Policy{"a": funnel(10, 1, time.Second), "c": funnel(5, 1, 2*time.Second)}[tenant]
				},
			})
			require.False(t, s.Take("a", 4).Borrowed)
			require.False(t, fits(s))
			require.NoError(t, s.SetGuarantee("a", funnel(5, 1, 2*time.Second)))
			require.False(t, fits(s), "a owes 4 units")
			clock.Advance(8*time.Second - 1)
			require.False(t, fits(s), "a owes a part of a unit")
			clock.Advance(time.Duration(owedPause))
			assert.True(t, fits(s))
			assert.NotNil(t, s.own.load("a"))
			assert.Empty(t, s.own.owed)
		})
	}
	// It returns at once from a tenant that owes nothing.
	s := newShares(t, twoTenants(newHandClock()))
	require.True(t, s.Take("a", 0).Allowed)
	require.NoError(t, s.SetGuarantee("a", funnel(2, 1, time.Second)))
	assert.EqualValues(t, 28, s.Stats().Unreserved)
}

// A give-back may let a tenant owe nothing long before a look expected it.
func TestGiveBackLetsTheTenantLeave(t *testing.T) {
	clock := newHandClock()
	config := twoTenants(clock)
	config.Ceiling = func(string) policy.Policy { return inFlight(1) } // It bars loans.
	s := newShares(t, config)
	var ahead []ShareReservation[string]
	for range 5 {
		ahead = append(ahead, s.Reserve("a", 10, time.Hour))
	}
	s.mu.Lock()
	s.own.nextDue.Store(0)
	s.own.leave(clock.Now())
	s.mu.Unlock()
	for _, r := range slices.Backward(ahead) {
		require.True(t, r.Allowed)
		r.Cancel()
	}
	require.EqualValues(t, 10, s.Peek("a", 0).Remaining)
	clock.Advance(time.Minute - 1)
	assert.NotNil(t, s.own.load("a"))
	clock.Advance(1)
	require.True(t, s.Take("b", 1).Allowed)
	assert.Nil(t, s.own.load("a"))
}

// Guarantee is asked for tenants without an entry. So a known tenant keeps its guarantee until SetGuarantee gives it up, and its
// entry leaves.
func TestGuaranteeOfAnEntryIsNotAskedAgain(t *testing.T) {
	clock := newHandClock()
	config, gone := twoTenants(clock), false
	guarantee := config.Guarantee
	config.Tenants = []string{"a"}
	config.Guarantee = func(tenant string) policy.Policy {
		if gone {
			return nil
		}
		return guarantee(tenant)
	}
	s := newShares(t, config)
	require.False(t, s.Take("b", 1).Borrowed)
	gone = true
	for _, tenant := range []string{"a", "b"} {
		d := s.Take(tenant, 10)
		assert.True(t, d.Allowed && !d.Borrowed, tenant)
	}
	clock.Advance(time.Hour)
	assert.False(t, s.Take("a", 10).Borrowed)
	require.NoError(t, s.SetGuarantee("c", funnel(20, 2, time.Second)), "b has left")
	assert.True(t, s.Take("b", 1).Borrowed)
	require.NoError(t, s.SetGuarantee("a", nil))
	clock.Advance(time.Hour)
	require.NoError(t, s.SetGuarantee("c", funnel(30, 3, time.Second)), "a has left")
	assert.True(t, s.Take("a", 1).Borrowed)
}

// A guarantee that is replaced again and again admits no more than the largest of them.
func TestGuaranteesThatChangeAdmitNoMore(t *testing.T) {
	clock := newHandClock()
	s := newShares(t, twoTenants(clock))
	dice := rand.New(rand.NewPCG(testenv.Seed(t), 2))
	audit := newLevelAudit(funnel(10, 1, time.Second))
	for range 20_000 {
		clock.Advance(time.Duration(dice.Int64N(int64Seconds / 4)))
		if dice.IntN(4) == 0 {
			require.NoError(t, s.SetGuarantee("a", funnel(1+dice.Int64N(10), 1, time.Duration(1+dice.Int64N(5))*time.Second)))
		}
		n := 1 + dice.Int64N(4)
		if d := s.Take("a", n); d.Allowed && !d.Borrowed {
			audit.add(clock.Now(), n)
		}
	}
	assert.LessOrEqual(t, audit.units(), int64(10))
	assert.Greater(t, audit.units(), int64(5))
}

func TestSharesConfigIsChecked(t *testing.T) {
	window := policy.Must(policy.FixedWindow(10, time.Second))
	guarantee := func(string) policy.Policy { return funnel(10, 1, time.Second) }
	good := SharesConfig[string]{Total: funnel(100, 10, time.Second), Reserved: funnel(30, 10, time.Second), Guarantee: guarantee}
	for want, change := range map[string]func(c *SharesConfig[string]){
		"ral: engine.SharesConfig: Total is <nil>, want a policy.Funnel, or a policy.InFlight if all limits are": func(c *SharesConfig[string]) { c.Total = nil },
		"ral: engine.SharesConfig: Total is window 10/s, want":                                                   func(c *SharesConfig[string]) { c.Total = window },
		"Reserved is funnel 30, 10/s, want a policy.InFlight with the longest time of Total, 1m0s": func(c *SharesConfig[string]) {
			c.Total = policy.Must(policy.InFlight(10, time.Minute))
		},
		"Total is funnel 1, 1/10y":                                                              func(c *SharesConfig[string]) { c.Total = funnel(2, 1, 3*365*24*time.Hour) },
		"Reserved is window 10/s, want a policy.Funnel":                                         func(c *SharesConfig[string]) { c.Reserved = window },
		"Reserved is 100, want a capacity below Total's, which is 100":                          func(c *SharesConfig[string]) { c.Reserved = funnel(100, 10, time.Second) },
		"Reserved is funnel 30, 11/s, want at most the rate of Total, which is rounded to 10/s": func(c *SharesConfig[string]) { c.Reserved = funnel(30, 11, time.Second) },
		"Reserved is funnel 30, 11/d, want at most the rate of Total, which is rounded to a unit every 2h24m0s": func(c *SharesConfig[string]) {
			c.Total, c.Reserved = funnel(100, 10, 24*time.Hour), funnel(30, 11, 24*time.Hour)
		},
		"Reserved is nil, want a funnel":    func(c *SharesConfig[string]) { c.Reserved = nil },
		"Guarantee is nil, want a function": func(c *SharesConfig[string]) { c.Tenants, c.Guarantee = []string{"x"}, nil },
		"Guarantee(Tenants[3]) is funnel 10, 1/s, want a limit within the rest of the reserve: a capacity of at most 0, and a rate of at most 7/s": func(c *SharesConfig[string]) {
			c.Tenants = []string{"a", "b", "c", "d"}
		},
		// Without Reserved, all capacity but a unit and all of the rate can be guaranteed.
		"Guarantee(Tenants[1]) is funnel 3000000000000, 600000/s, want a limit within the rest of the reserve: a capacity of at most 999999999999, and a rate of at most 400000/s": func(c *SharesConfig[string]) {
			c.Total, c.Reserved, c.Tenants = funnel(4e12, 1e6, time.Second), nil, []string{"a", "b"}
			c.Guarantee = func(string) policy.Policy { return funnel(3e12, 600_000, time.Second) }
		},
		"Guarantee(Tenants[1]) is funnel 10, 10/s, want a limit within the rest of the reserve: a capacity of at most 89, and nothing of the rate is left": func(c *SharesConfig[string]) {
			c.Reserved, c.Tenants = nil, []string{"a", "b"}
			c.Guarantee = func(string) policy.Policy { return funnel(10, 10, time.Second) }
		},
		"Guarantee(Tenants[1]) is in flight 6, 1m at most, want a limit within the rest of the reserve: a capacity of at most 3": func(c *SharesConfig[string]) {
			c.Total, c.Reserved, c.Tenants = inFlight(10), nil, []string{"a", "b"}
			c.Guarantee = func(string) policy.Policy { return inFlight(6) }
		},
		"Guarantee(Tenants[1]) is funnel 10, 1/s, want each tenant once": func(c *SharesConfig[string]) { c.Tenants = []string{"a", "a"} },
		"Guarantee(Tenants[0]) is window 10/s, want a policy.Funnel": func(c *SharesConfig[string]) {
			c.Tenants, c.Guarantee = []string{"a"}, func(string) policy.Policy { return window }
		},
		"Tenants is 2, want at most Config.MaxKeys, 1": func(c *SharesConfig[string]) { c.Tenants, c.Config.MaxKeys = []string{"a", "b"}, 1 },
		"Config.Policy is set, want it unset":          func(c *SharesConfig[string]) { c.Config.Policy = window },
		"Config.WhenFull is set":                       func(c *SharesConfig[string]) { c.Config.WhenFull = RefuseNew },
		"engine.Config: Idle is -1ns":                  func(c *SharesConfig[string]) { c.Config.Idle = -1 },
	} {
		c := good
		change(&c)
		if strings.HasPrefix(want, "Total is funnel 1") {
			want = "want a funnel that drains within 4 years"
		}
		_, err := NewShares(c)
		var field *policy.FieldError
		if assert.ErrorAs(t, err, &field, want) {
			assert.ErrorContains(t, err, want)
		}
	}
	_, err := NewShares(good, PolicyFor(guarantee))
	require.ErrorContains(t, err, "ral: engine.NewShares: more is 1, want no option")
	// Without Reserved it is the sum of the guarantees, and nothing is left for others.
	good.Reserved, good.Tenants = nil, []string{"a", "b", "c"}
	s := newShares(t, good)
	assert.True(t, s.Take("d", 70).Borrowed)
	assert.False(t, s.Take("a", 10).Borrowed)
	assert.EqualValues(t, 30, s.Stats().Reserved)
	assert.Zero(t, s.Stats().Unreserved)
	// Without a guarantee all tenants borrow.
	s = newShares(t, SharesConfig[string]{Total: funnel(100, 10, time.Second)})
	assert.True(t, s.Take("d", 100).Borrowed)
	assert.Zero(t, s.Stats().Unguaranteed)
}

func TestTenantsThatCannotBeKeptBorrow(t *testing.T) {
	clock := newHandClock()
	shares := func(guarantee policy.Policy) *Shares[any] {
		return newShares(t, SharesConfig[any]{
			Config: Config{Clock: clock.Now, MaxKeys: 2},
			Total:  funnel(100, 10, time.Second), Reserved: funnel(30, 5, time.Second),
			Guarantee: func(any) policy.Policy { return guarantee },
			Ceiling: func(key any) policy.Policy {
				if key == "bounded" {
					return funnel(1, 1, time.Second)
				}
				return nil
			},
		})
	}
	s := shares(funnel(1, 1, time.Second))
	for _, key := range []any{math.NaN(), []int{1}, struct{ f any }{func() {}}} {
		assert.True(t, s.Take(key, 1).Borrowed, "%T", key)
		assert.True(t, s.Peek(key, 1).Borrowed, "%T", key)
		r := s.Reserve(key, 1, time.Second)
		assert.True(t, r.Borrowed)
		r.Cancel()
		assert.True(t, s.Explain(key).Allowed)
		require.ErrorContains(t, s.SetGuarantee(key, funnel(1, 1, time.Second)), "want one that equals itself and can be hashed")
	}
	assert.EqualValues(t, 3, s.Stats().Used)
	assert.EqualValues(t, 6, s.Stats().Unguaranteed)
	assert.False(t, s.Take("x", 1).Borrowed)
	assert.False(t, s.Take("y", 1).Borrowed)
	assert.True(t, s.Take("z", 1).Borrowed, "the table is full")
	require.ErrorContains(t, s.SetGuarantee("z", funnel(1, 1, time.Second)), "as 2 tenants have theirs")
	assert.True(t, shares(policy.Must(policy.FixedWindow(1, time.Second))).Take("x", 1).Borrowed)
	var nilFunnel *struct{ policy.Policy }
	assert.True(t, shares(nilFunnel).Take("x", 1).Borrowed)
}

func TestClosedSharesTakeNothing(t *testing.T) {
	clock := newHandClock()
	s := newShares(t, twoTenants(clock))
	require.NoError(t, s.Close())
	assert.Equal(t, policy.Decision{Limit: 70, RetryAfter: 10 * time.Millisecond}, s.Take("a", 1).Decision)
	assert.False(t, s.Reserve("a", 1, time.Hour).Allowed)
	assert.Zero(t, s.Stats().Used)
	require.NoError(t, s.Close())
}

func TestExplainSharesNamesTheBindingPart(t *testing.T) {
	clock := newHandClock()
	config := twoTenants(clock)
	config.Ceiling = func(string) policy.Policy { return funnel(5, 1, time.Second) }
	s := newShares(t, config)
	x := s.Explain("a")
	assert.Zero(t, s.Stats().Tenants, "it opens no entry")
	assert.Equal(t, []any{true, 0, 3}, []any{x.Allowed, x.Binding, len(x.Each)})
	s.Take("a", 10)
	x = s.Explain("a")
	assert.Equal(t, []any{true, 1}, []any{x.Allowed, x.Binding}, "a loan, and the group has less of its part left than the ceiling")
	s.Take("a", 5)
	s.Take("b", 20)
	x = s.Explain("a")
	assert.Equal(t, []any{false, time.Second, 2}, []any{x.Allowed, x.RetryAfter, x.Binding}, "the ceiling refuses the loan")
	assert.Equal(t, []int64{10, 35, 5}, []int64{x.Each[0].Used, x.Each[1].Used, x.Each[2].Used})
	x = s.Explain("stranger")
	assert.Equal(t, []any{true, 0, 2}, []any{x.Allowed, x.Binding, len(x.Each)})
	for i := range 7 {
		assert.True(t, s.Take(fmt.Sprint(i), 5).Allowed)
	}
	x = s.Explain("b")
	assert.Equal(t, []any{false, 1}, []any{x.Allowed, x.Binding}, "the group refuses the loan")
	assert.Contains(t, x.String(), "ral/group: At most 70 at once")
}

// An Explanation of a tenant without a guarantee has the figures of the group and of its ceiling, and their decision.
func TestExplanationWithoutGuaranteeAgreesWithTheGroup(t *testing.T) {
	clock := newHandClock()
	config := twoTenants(clock)
	config.Ceiling = func(tenant string) policy.Policy {
		switch tenant {
		case "bounded":
			return funnel(50, 1, time.Second)
		case "barred":
			return inFlight(3)
		}
		return nil
	}
	s := newShares(t, config)
	require.True(t, s.Take("bounded", 5).Borrowed)
	x := s.Explain("stranger")
	assert.Equal(t, policy.Decision{Allowed: true, Limit: 70, Remaining: 65, ResetAfter: 500 * time.Millisecond}, x.Decision)
	assert.Equal(t, []int64{5, 70}, []int64{x.Each[0].Used, x.Each[0].Of})
	x = s.Explain("bounded")
	assert.Equal(t, policy.Decision{Allowed: true, Limit: 50, Remaining: 45, ResetAfter: 5 * time.Second}, x.Decision)
	x = ExplainClaims(s.Claim("bounded", 46)).Each[0]
	assert.Equal(t, []any{false, time.Second, 1}, []any{x.Allowed, x.RetryAfter, x.Binding})
	x = s.Explain("barred")
	assert.Equal(t, []any{false, time.Minute, 1}, []any{x.Allowed, x.RetryAfter, x.Binding}, "the ceiling bars loans")
	assert.Contains(t, x.String(), "ral/ceiling: At most 3 at a time, each for no longer than 1m. A call cannot be recorded: the ceiling is of another kind")
}

func TestExplainSaysThatSharesAreClosed(t *testing.T) {
	for _, total := range []policy.Policy{funnel(10, 1, time.Second), inFlight(10)} {
		s := newShares(t, SharesConfig[string]{
			Config: Config{Clock: newHandClock().Now}, Total: total, Ceiling: func(string) policy.Policy { return total },
		})
		require.True(t, s.Explain("a").Allowed)
		require.NoError(t, s.Close())
		x := s.Explain("a")
		assert.Equal(t, []any{s.Peek("a", 1).Decision, limits.SourceUnrecorded, -1}, []any{x.Decision, x.Source(), x.Binding})
		require.Len(t, x.Each, 2)
		for _, each := range x.Each {
			assert.Contains(t, each.String(), "A call cannot be recorded: the shares are closed. A call is refused for 10ms.")
		}
	}
}

// The exact sums are compared with fractions, near the limit and with many intervals.
func TestReserveComparesRatesExactly(t *testing.T) {
	dice := rand.New(rand.NewPCG(testenv.Seed(t), 3))
	accepted, refused, ties := 0, 0, 0
	for range 300 {
		var r reserve
		count, ticks := big.NewInt(1+dice.Int64N(20)), big.NewInt(1+dice.Int64N(1000))
		r.init(math.MaxInt64, count, ticks)
		limit, sum := new(big.Rat).SetFrac(count, ticks), new(big.Rat)
		var grants []grant
		for range 60 {
			if len(grants) > 0 && dice.IntN(4) == 0 {
				i := dice.IntN(len(grants))
				r.release(grants[i])
				sum.Sub(sum, new(big.Rat).SetFrac64(1, int64(grants[i].interval)))
				grants = slices.Delete(grants, i, i+1)
			}
			g := grant{dice.Int64N(10), uint64(1 + dice.IntN(3000))}
			rest := new(big.Rat).Sub(limit, sum)
			if inverse := new(big.Rat); rest.Sign() > 0 && dice.IntN(3) == 0 && inverse.Inv(rest).IsInt() {
				// The grant takes exactly what is left.
				g.interval = inverse.Num().Uint64()
				ties++
			}
			next := new(big.Rat).Add(sum, new(big.Rat).SetFrac(big.NewInt(1), unsigned(g.interval)))
			fits := next.Cmp(limit) <= 0
			if fits {
				require.True(t, r.mayFit(g), "%v of %v", g, rest)
			}
			require.Equal(t, fits, r.take(g), "%v of %v", g, rest)
			if fits {
				sum, grants = next, append(grants, g)
				accepted++
			} else {
				refused++
			}
		}
		for _, g := range grants {
			r.release(g)
		}
		assert.Equal(t, []any{int64(math.MaxInt64), int64(0), 0, 0}, []any{r.units, r.number, len(r.grants), r.scaled.Sign()})
	}
	assert.Positive(t, accepted)
	assert.Positive(t, refused)
	assert.Positive(t, ties)
}

// A sum that is above the limit by less than the roundings is compared as a fraction.
func TestReserveIsNotExceededByRoundings(t *testing.T) {
	first, second := uint64(1)<<62-1, uint64(1)<<62-3
	sum := new(big.Rat).Add(big.NewRat(1, int64(first)), big.NewRat(1, int64(second)))
	ticks := new(big.Int).Add(new(big.Int).Lsh(big.NewInt(1), 200), big.NewInt(1))
	count := new(big.Int).Mul(sum.Num(), ticks)
	count.Div(count, sum.Denom())
	for _, more := range []int64{0, 1} {
		var r reserve
		r.init(10, new(big.Int).Add(count, big.NewInt(more)), ticks)
		require.True(t, r.take(grant{1, first}))
		assert.Equal(t, more == 1, r.take(grant{1, second}))
	}
}

// Promise: A call of a tenant with a guarantee allocates nothing.
func TestSharesAllocateNothing(t *testing.T) {
	config := SharesConfig[string]{
		Total: funnel(1_000_000, 1, time.Second), Reserved: funnel(500_000, 1, 10*time.Second),
		Guarantee: func(tenant string) policy.Policy {
			if tenant == "guaranteed" {
				return funnel(400_000, 1, 20*time.Second)
			}
			return nil
		},
	}
	s := newShares(t, config)
	require.True(t, s.Choke("guaranteed"))
	ceiling := newShares(t, SharesConfig[string]{
		Total: funnel(1_000_000, 1, time.Second), Ceiling: func(string) policy.Policy { return funnel(300_000, 1, time.Second) },
	})
	require.True(t, ceiling.Choke("x"))
	for name, call := range map[string]func(){
		"guaranteed": func() { s.Take("guaranteed", 2) },
		"Choke":      func() { s.Choke("guaranteed") },
		"borrowed":   func() { s.Take("stranger", 2) },
		"ceiling":    func() { ceiling.Take("x", 2) },
		"refused":    func() { s.Take("stranger", 600_000) },
		"Peek":       func() { s.Peek("guaranteed", 2) },
		"Stats":      func() { s.Stats() },
		"Reserve": func() {
			r := s.Reserve("guaranteed", 2, 0)
			r.Cancel()
		},
		"Reserve, borrowed": func() {
			r := s.Reserve("stranger", 2, 0)
			r.Keep(1)
		},
		"Acquire": func() {
			r, err := s.Acquire(t.Context(), "guaranteed", 2, time.Hour)
			if r.Cancel(); err != nil {
				t.Error(err)
			}
		},
	} {
		assert.Zero(t, testing.AllocsPerRun(1000, call), name)
	}
}
