package engine

import (
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/internal/testkit/testenv"
	"github.com/ral-limiter/ral/limits"
	"github.com/ral-limiter/ral/policy"
)

func inFlight(n int64) policy.Policy { return policy.Must(policy.InFlight(n, time.Minute)) }

// sharesInFlight has tenants with up to 7 guaranteed units. 20 of 60 units are reserved. Every third tenant borrows at most 9.
func sharesInFlight(t testing.TB, clock func() policy.Instant) *Shares[int] {
	return newShares(t, SharesConfig[int]{
		Config: Config{Clock: clock, Idle: time.Minute}, Total: inFlight(60), Reserved: inFlight(20), Tenants: []int{0, 1, 2},
		Guarantee: func(tenant int) policy.Policy {
			if tenant < 3 {
				return inFlight(int64(3 + 2*tenant))
			}
			return nil
		},
		Ceiling: func(tenant int) policy.Policy {
			if tenant%3 == 0 {
				return inFlight(9)
			}
			return nil
		},
	})
}

// usedInFlight returns the units in use by the words of the group and of all guarantees.
func (s *Shares[K]) usedInFlight() (n int64) {
	add := func(a *account) {
		used, _, _ := a.limit.(interface {
			InUse(word uint64, now policy.Instant) (n int64, from, to time.Duration)
		}).InUse(a.word.Load(), s.now())
		n += used
	}
	s.own.all.Range(func(_ K, a *account) bool {
		add(a)
		return true
	})
	add(&s.group)
	return n
}

// An outside audit knows each unit until it is released, or until a minute after it was taken or extended.
//
//  1. Never more units are in use than the total, and never more are borrowed than C-B.
//  2. A tenant with fewer units in use than its guarantee, by a word of the test's own, is not refused, and does not borrow.
//  3. A release gives back all units where they were taken, also after a change of the guarantee. In the end none is in use.
//
// Promise: `Shares` of units in use never exceed their total, and never refuse a tenant below its guarantee.
func TestSharesInFlightByOutsideAudit(t *testing.T) {
	clock := newHandClock()
	s := sharesInFlight(t, clock.Now)
	dice := rand.New(rand.NewPCG(testenv.Seed(t), 58))
	type use struct {
		ShareReservation[int]
		tenant int
		n      int64
		until  policy.Instant
	}
	var held []*use
	const tenants = 6
	guarantees := [tenants]policy.Policy{inFlight(3), inFlight(5), inFlight(7)}
	own := [tenants]map[*use]uint64{}
	var words [tenants]uint64
	counts := map[string]int{}
	for i := range 200_000 / testenv.RaceSlowdown {
		clock.Advance(time.Duration(dice.Int64N(int64Seconds)))
		now := clock.Now()
		switch k := dice.IntN(len(held) + 16); {
		case i%1000 == 999:
			// Guarantees that fit the reserve of 20.
			tenant, n := dice.IntN(3), 2+dice.Int64N(5)
			if err := s.SetGuarantee(tenant, inFlight(n)); err == nil {
				guarantees[tenant] = inFlight(n)
				counts["changed"]++
			}
		case k < len(held):
			h := held[k]
			inUse := now < h.until
			if dice.IntN(4) == 0 {
				extended := h.Extend()
				require.True(t, extended || !inUse, "a unit in use")
				if extended {
					counts["extended"]++
					if h.until = now + policy.Instant(time.Minute); !h.Borrowed {
						next, ok := guarantees[h.tenant].(policy.Occupier).Extend(words[h.tenant], own[h.tenant][h], now, h.n)
						require.True(t, ok)
						words[h.tenant], own[h.tenant][h] = next, next
					}
				}
				continue
			}
			before := s.usedInFlight()
			h.Keep(dice.Int64N(3))
			if after := s.usedInFlight(); inUse {
				require.Equal(t, before-h.n, after)
			}
			if counts["released"]++; !h.Borrowed {
				words[h.tenant], _ = guarantees[h.tenant].(policy.Occupier).Release(words[h.tenant], own[h.tenant][h], now, h.n)
			}
			h.until, held[k] = 0, held[len(held)-1]
			held = held[:len(held)-1]
		default:
			h := &use{tenant: dice.IntN(tenants), n: 1 + dice.Int64N(4), until: now + policy.Instant(time.Minute)}
			h.ShareReservation = s.Reserve(h.tenant, h.n, time.Hour)
			if g := guarantees[h.tenant]; g != nil {
				next, d := g.Take(words[h.tenant], now, h.n, 0)
				require.Equal(t, d.Allowed, h.Allowed && !h.Borrowed, "step %d: %+v", i, h.ShareDecision)
				if d.Allowed {
					if own[h.tenant] == nil {
						own[h.tenant] = map[*use]uint64{}
					}
					words[h.tenant], own[h.tenant][h] = next, next
				}
			}
			if h.Allowed {
				held = append(held, h)
			} else {
				counts["refused"]++
			}
		}
		all, borrowed := int64(0), int64(0)
		for _, h := range held {
			if now < h.until {
				if all += h.n; h.Borrowed {
					borrowed += h.n
				}
			}
		}
		require.LessOrEqual(t, all, int64(60))
		require.LessOrEqual(t, borrowed, int64(40))
		if borrowed >= 38 {
			counts["full"]++
		}
	}
	for _, count := range []string{"changed", "extended", "released", "refused", "full"} {
		assert.Greater(t, counts[count], 5, count)
	}
	for _, h := range held {
		h.Cancel()
		h.Cancel()
	}
	clock.Advance(2 * time.Minute)
	assert.Zero(t, s.usedInFlight())
}

// 8 goroutines count units in use around their calls, while another changes guarantees.
func TestSharesInFlightAreExactUnderContention(t *testing.T) {
	s := sharesInFlight(t, nil)
	var all, borrowed atomic.Int64
	var over sync.WaitGroup
	ends := make(chan struct{})
	over.Go(func() {
		for n := int64(0); ; n++ {
			select {
			case <-ends:
				return
			default:
				assert.NoError(t, s.SetGuarantee(0, inFlight(3+n%3)))
			}
		}
	})
	together(8, func(caller int) {
		dice := rand.New(rand.NewPCG(testenv.Seed(t), uint64(caller)))
		var held []ShareReservation[int]
		var units []int64
		end := func() {
			if last := len(held) - 1; last >= 0 {
				if all.Add(-units[last]); held[last].Borrowed {
					borrowed.Add(-units[last])
				}
				held[last].Cancel()
				held, units = held[:last], units[:last]
			}
		}
		for range 20_000 / testenv.RaceSlowdown {
			if n := 1 + dice.Int64N(3); dice.IntN(2) == 0 {
				r := s.Reserve(dice.IntN(6), n, 0)
				if !r.Allowed {
					continue
				}
				held, units = append(held, r), append(units, n)
				if r.Borrowed && borrowed.Add(n) > 40 {
					t.Error("more than 40 units are borrowed")
				}
				if all.Add(n) > 60 {
					t.Error("more than 60 units are in use")
				}
			} else {
				end()
			}
		}
		for len(held) > 0 {
			end()
		}
	})
	close(ends)
	over.Wait()
	assert.Zero(t, s.usedInFlight(), "all units were released")
}

// Units that end by themselves before their release, and units that nothing can release, are counted and reported.
//
// Promise: `Shares` of units in use count and report calls that overstay, and calls that hold nothing to release.
func TestSharesReportMisusedUnits(t *testing.T) {
	var mu sync.Mutex
	var events []string
	config := SharesConfig[any]{
		Config: Config{Name: "jobs", OnEvent: func(e Event) {
			mu.Lock()
			defer mu.Unlock()
			events = append(events, e.String())
		}},
		Total: inFlight(10), Tenants: []any{"a"},
		Guarantee: func(tenant any) policy.Policy {
			if tenant == "a" {
				return inFlight(4)
			}
			return nil
		},
		Ceiling: func(tenant any) policy.Policy {
			if tenant == "a" {
				return inFlight(6)
			}
			return nil
		},
	}
	inBubble(t, config, func(t *testing.T, s *Shares[any]) {
		counts := func(overstayed, unheld uint64) {
			t.Helper()
			stats := s.Stats()
			assert.Equal(t, []uint64{overstayed, unheld}, []uint64{stats.Overstayed, stats.Unheld})
		}
		own, loan := s.Reserve("a", 4, 0), s.Reserve("a", 6, 0)
		require.True(t, loan.Borrowed && !own.Borrowed && own.Allowed)
		assert.True(t, own.Extend() && loan.Extend())
		time.Sleep(2 * time.Minute)
		counts(0, 0)
		laterOwn, laterLoan := s.Reserve("a", 4, 0), s.Reserve("a", 6, 0)
		require.True(t, laterLoan.Borrowed && laterOwn.Allowed, "the units have ended")
		assert.False(t, own.Extend())
		own.Cancel()
		loan.Cancel()
		loan.Cancel()
		counts(3, 0)
		laterOwn.Cancel()
		laterLoan.Cancel()
		counts(3, 0)
		for i, verb := range []func() bool{
			func() bool { return s.Choke("a") },
			func() bool { return s.Take("a", 3).Allowed },
			func() bool { return s.Take("a", 1).Borrowed },
			func() bool { return s.Wait(t.Context(), "x", 1) == nil },
			func() bool { a, err := s.Admit(t.Context(), "x", 1); return err == nil && a.Allowed },
		} {
			require.True(t, verb(), "verb %d", i)
			counts(3, uint64(i+1))
		}
		assert.False(t, s.Take("x", 7).Allowed)
		assert.True(t, s.Take("x", 0).Allowed)
		require.NoError(t, s.Wait(t.Context(), "x", 0))
		r := s.Reserve("x", 1, 0)
		require.True(t, r.Allowed)
		r.Cancel()
		counts(3, 5)
		require.NoError(t, s.Close())
	})
	require.Len(t, events, 2)
	assert.Regexp(t, `^jobs: misuse: key [0-9a-f]{16}: a call lasted longer`, events[0])
	assert.Regexp(t, `^jobs: misuse: key [0-9a-f]{16}: a call took units in use and returned nothing to release`, events[1])

	// A tenant without a hash borrows, and is reported, too.
	s := newShares(t, SharesConfig[any]{Total: inFlight(10)})
	assert.True(t, s.Choke([]int{1}))
	assert.EqualValues(t, 1, s.Stats().Unheld)
	assert.Zero(t, newShares(t, SharesConfig[any]{Total: funnel(1, 1, time.Second)}).Stats().Unheld)
}

func TestExplainHasTheCeilingOfUnitsInUse(t *testing.T) {
	s := sharesInFlight(t, newHandClock().Now)
	require.True(t, s.Reserve(0, 3, 0).Allowed)
	require.True(t, s.Reserve(0, 9, 0).Borrowed)
	x := s.Explain(0)
	require.Len(t, x.Each, 3)
	assert.Equal(t, []any{false, 2, "ral/ceiling"}, []any{x.Allowed, x.Binding, x.Each[2].Name})
	assert.Equal(t, []int64{3, 9, 9}, []int64{x.Each[0].Used, x.Each[1].Used, x.Each[2].Used})
	assert.Contains(t, x.String(), "ral/ceiling: At most 9 at a time, each for no longer than 1m. 9 of 9 in use")
}

// Units in use that are released early let what a smaller guarantee leaves return early.
func TestReleasedUnitsLetAGuaranteeReturn(t *testing.T) {
	clock := newHandClock()
	s := sharesInFlight(t, clock.Now)
	r := s.Reserve(2, 7, 0)
	require.NoError(t, s.SetGuarantee(2, inFlight(3)))
	require.EqualValues(t, 5, s.Stats().Unreserved)
	require.Error(t, s.SetGuarantee(1, inFlight(11)))
	clock.Advance(time.Second)
	r.Cancel()
	require.NoError(t, s.SetGuarantee(1, inFlight(14)))
	assert.Zero(t, s.Stats().Unreserved)
}

// Unused guaranteed units stay idle, a guarantee does not wait, and a release lets the next waiting call borrow.
func TestReleaseOfSharesWakesCallsInLine(t *testing.T) {
	config := SharesConfig[string]{
		Total: inFlight(10), Tenants: []string{"a"}, Guarantee: func(tenant string) policy.Policy {
			return map[string]policy.Policy{"a": inFlight(4)}[tenant]
		},
	}
	inBubble(t, config, func(t *testing.T, s *Shares[string]) {
		assert.False(t, s.Reserve("x", 7, 0).Allowed, "6 are lent, although no other is used")
		first, err := s.Hold(t.Context(), limits.Call[string]{Key: "x", N: 6})
		require.NoError(t, err)
		var all sync.WaitGroup
		all.Go(func() {
			r, err := s.Acquire(t.Context(), "y", 5, policy.Never)
			assert.NoError(t, err)
			assert.Equal(t, 10*time.Second, r.Waited)
			time.Sleep(time.Minute + time.Minute/8)
			assert.False(t, r.Extend(), "the units have ended")
		})
		synctest.Wait()
		assert.False(t, s.Take("z", 1).Allowed)
		own := s.Reserve("a", 4, 0)
		assert.True(t, own.Allowed && !own.Borrowed)
		all.Go(func() {
			r, err := s.Acquire(t.Context(), "a", 4, time.Minute)
			assert.NoError(t, err)
			assert.Equal(t, 5*time.Second, r.Waited, "its guarantee has room first")
			r.Cancel()
		})
		time.Sleep(5 * time.Second)
		own.Cancel()
		time.Sleep(5 * time.Second)
		require.NoError(t, first.Release(t.Context())) //nolint:testifylint // each step depends on the one before
		synctest.Wait()
		assert.EqualValues(t, 5, s.Stats().Used, "borrowed units")
		assert.False(t, s.Take("z", 2).Allowed)
		_, err = s.Acquire(t.Context(), "z", 7, policy.Never)
		require.ErrorIs(t, err, ErrNever)
		e := open[string](t, Config{Policy: funnel(3, 1, time.Second), PackageTime: true})
		out := TakeAll(s.Claim("z", 1), e.Claim("k", 3))
		assert.True(t, out.Allowed)
		out.Release()
		assert.Equal(t, []int64{5, 0}, []int64{s.Stats().Used, e.Peek("k", 0).Remaining}, "units of rates stay spent")
		all.Wait()
		assert.Zero(t, s.usedInFlight())
	})
}
