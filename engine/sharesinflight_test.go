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
